"""Replay of the optimizer's step at stages 1 and 2: norm, then group by group flatten, convert, update, free.

It follows runtime/zero/stage_1_and_2.py:step of DeepSpeed 0.19.8, after the gradients that `Stages12Backward` left.
"""

from __future__ import annotations

from zeroplan.costs.allocations import Allocation
from zeroplan.costs.deepspeed.muon_update import gradient_dtype, users_of_the_buffer
from zeroplan.costs.deepspeed.resident import temporaries
from zeroplan.costs.deepspeed.stages_1_2_backward import Stages12Backward
from zeroplan.formulas import moments, muon


def update(reducing: Stages12Backward) -> None:
    """The norm, then every group's gradients: flattened, converted, read by the optimizer, then gone."""
    if reducing.strategy.compute_grad_norm:
        _norm(reducing)
    for number in range(len(reducing.groups)):
        _free_others(reducing, number)
        read = _read_by_the_optimizer(reducing, number)
        if read:
            _free_own(reducing, number)
        share = reducing.groups[number].partition
        copies = 0 if reducing.groups[number].muon else temporaries(reducing.job, [share])
        reducing.tracker.transient_peak((moments.optimizer_temporaries, reducing.strategy.master, copies))
        for copy in read:
            reducing.tracker.free(*copy)
        if not read:
            _free_own(reducing, number)


def _read_by_the_optimizer(reducing: Stages12Backward, number: int) -> list[Allocation]:
    """The group's gradients in one tensor of the master weights' dtype; nothing new when they are that already."""
    strategy, tracker = reducing.strategy, reducing.tracker
    share, dtype_of_gradients = reducing.groups[number].partition, strategy.dtype
    if number in reducing.muon:  # with padding of another dtype, the joined tensor takes the wider one
        dtype_of_gradients = (
            reducing.padding_dtype(number) if reducing.padding(number) else gradient_dtype(reducing.job)
        )
    flattened: list[Allocation] = [(moments.flattened_gradients, dtype_of_gradients, share)]
    if number in reducing.fp32:
        dtype_of_gradients, flattened = strategy.accumulation, []
    elif _is_one_piece(reducing, number):
        flattened = []
    for copy in flattened:
        tracker.allocate(*copy)
    if dtype_of_gradients == strategy.master:
        return flattened
    converted: Allocation = (moments.fp32_gradients, strategy.master, share)
    tracker.allocate(*converted)
    for copy in flattened:
        tracker.free(*copy)
    return [converted]


def _is_one_piece(reducing: Stages12Backward, number: int) -> bool:
    """Whether the partition is one gradient's slice and nothing else, which is not copied."""
    pieces = [piece for piece in reducing.own.values() if piece.group == number]
    return len(pieces) == 1 and not reducing.padding(number)


def _free_others(reducing: Stages12Backward, number: int) -> None:
    """Gradients of the group that this rank does not update; the buffers go with the last ones that lie in them."""
    for index in reducing.groups[number].order:
        if index not in reducing.own:
            reducing.drop(index)
    if number == len(reducing.groups) - 1 and reducing.buffers:
        reducing.free_buffers()


def _free_own(reducing: Stages12Backward, number: int) -> None:
    """Gradients of the group that have been copied; the buffer that groups share goes with the last of them."""
    strategy, tracker = reducing.strategy, reducing.tracker
    if number in reducing.fp32:
        tracker.free(moments.gradient_partition, strategy.accumulation, reducing.groups[number].partition)
        return
    tracker.free(moments.padding, reducing.padding_dtype(number), reducing.padding(number))
    for index in reducing.muon.get(number, ()):
        tracker.free(muon.updates, gradient_dtype(reducing.job), reducing.sizes[index])
        reducing.drop(index)
    for index in [index for index in reducing.stored if reducing.own[index].group == number]:
        reducing.stored.discard(index)
        tracker.free(moments.own_gradients, strategy.dtype, reducing.sizes[index])
    if reducing.kept and number == max(users_of_the_buffer(reducing.job)):
        tracker.free(moments.own_gradients, strategy.dtype, reducing.kept)
        reducing.kept = 0


def _norm(reducing: Stages12Backward) -> None:
    """One gradient at a time is copied to double for its norm."""
    largest = max((piece.elements for piece in reducing.own.values()), default=0)
    reducing.tracker.transient_peak((moments.gradient_for_the_norm, "float64", largest))
