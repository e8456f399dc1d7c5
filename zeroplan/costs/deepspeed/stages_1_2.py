"""Stages 1 and 2: flat parameters whole, master copy and optimizer states partitioned (DeepSpeed 0.19.8).

The optimizer's step is replayed as runtime/zero/stage_1_and_2.py:step has it, after the gradients that
`Stages12Backward` left: the norm, then group by group flatten, convert, update, free.
"""

from __future__ import annotations

from zeroplan.costs.allocations import Allocation, PassProfile
from zeroplan.costs.cache import cached, gradients, order_free_key
from zeroplan.costs.deepspeed import optimizer_states
from zeroplan.costs.deepspeed.layout import flat_groups
from zeroplan.costs.deepspeed.muon import GATHER_BUFFERS, gradient_dtype
from zeroplan.costs.deepspeed.optimizer_states import (
    built_states,
    frozen_parameters,
    master_name,
    model_buffers,
    numbers,
    state_bytes,
    state_dtype,
    temporaries,
)
from zeroplan.costs.deepspeed.stages_1_2_backward import Stages12Backward, users_of_the_buffer
from zeroplan.costs.memory import PhaseMemory
from zeroplan.formulas import states, transient
from zeroplan.ledger import DTYPE_BYTES, Line, line
from zeroplan.specs.job import Job


def resident(job: Job) -> list[Line]:
    """Between steps."""
    strategy, w = job.strategy, job.strategy.element_bytes
    flat = sum(layout.flat for layout in flat_groups(job))
    lines = [line("parameters", states.flat_parameters, strategy.dtype, flat=flat, w=w)]
    lines += frozen_parameters(job)
    if strategy.offload_optimizer:
        largest = job.model.largest_trainable.elements
        lines.append(line("offload scratch", states.offload_scratch, strategy.dtype, largest=largest, g=w))
        lines += _of_optimizers_on_the_host(job)
    else:
        lines += _optimizer(job, flat)
    if strategy.runs_bf16_optimizer:
        lines.append(line("fp32 gradients", states.whole_gradients, "float32", psi=flat, g=4))
    norms = {"float32": int(strategy.compute_grad_norm and not strategy.offload_optimizer)}
    return [*lines, *built_states(job), *model_buffers(job), *numbers(job, norms), *optimizer_states.on_gpu(job)]


def _of_optimizers_on_the_host(job: Job) -> list[Line]:
    """What Muon and ZenFlow keep on the GPU though states are the host's."""
    from zeroplan.costs.deepspeed import muon_gather, muon_offload, zenflow

    return [*muon_gather.lines(muon_offload.kept(job)), *zenflow.resident(job)]


@cached(order_free_key, order=gradients)
def phase_memory(job: Job) -> PhaseMemory:
    """The micro-steps and the step, from the replay: the first, one between, and the last, which the step follows."""
    if job.strategy.runs_bf16_optimizer:
        from zeroplan.costs.deepspeed import bf16_optimizer

        return bf16_optimizer.phase_memory(job)
    if job.strategy.selective:
        from zeroplan.costs.deepspeed import zenflow_backward

        return zenflow_backward.phase_memory(job, job.strategy.selective)
    reducing = Stages12Backward(job)
    tracker, accumulated = reducing.tracker, reducing.tracker.lines()
    for _micro in range(min(job.strategy.grad_accum, 3) - 1):
        reducing.micro_step(boundary=False)
        accumulated = tracker.lines()
    reducing.micro_step(boundary=True)
    backward, together = tracker.peak_lines(), PassProfile(tracker)
    tracker.reset_peak()
    if job.strategy.offload_optimizer:
        from zeroplan.costs.deepspeed import muon_offload

        muon_offload.apply(job, tracker)
    else:
        step(reducing)
    come_and_go = (GATHER_BUFFERS,)
    return PhaseMemory(
        accumulated, accumulated, backward, tracker.peak_lines(), come_and_go,
        backward_pass=together,
    )  # fmt: skip


def _optimizer(job: Job, flat: int) -> list[Line]:
    master = job.strategy.master
    lines = [line(master_name(job), states.flat_master, master, flat=flat, n_d=job.ranks, master=DTYPE_BYTES[master])]
    matrices = sum(layout.flat for layout in flat_groups(job) if layout.muon)
    if size := state_bytes(job, state_dtype(job)):
        of_adam = flat - matrices
        lines.append(
            line("optimizer states", states.flat_states, state_dtype(job), flat=of_adam, m=size, n_d=job.ranks)
        )
    return [*lines, *_momentum(job, matrices)] if matrices else lines


def _momentum(job: Job, flat: int) -> list[Line]:
    """Muon's, partitioned like the master weights in BF16_Optimizer; elsewhere of whole matrices, and twice."""
    if job.strategy.runs_bf16_optimizer:
        return [line("Muon's momentum", states.flat_states, "float32", flat=flat, m=4, n_d=job.ranks)]
    from zeroplan.costs.deepspeed.muon_update import own_elements
    from zeroplan.formulas import muon

    own, dtype = own_elements(job), gradient_dtype(job)
    symbols = {"own": own, "g": DTYPE_BYTES[dtype]}
    momentum = line("Muon's momentum", muon.momentum, dtype, **symbols)
    return [momentum, line("staged momentum", muon.staged_momentum, dtype, **symbols)] if own else []


def step(reducing: Stages12Backward) -> None:
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
        reducing.tracker.transient_peak((transient.optimizer_temporaries, reducing.strategy.master, copies))
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
    flattened: list[Allocation] = [(transient.flattened_gradients, dtype_of_gradients, share)]
    if number in reducing.fp32:
        dtype_of_gradients, flattened = strategy.accumulation, []
    elif _is_one_piece(reducing, number):
        flattened = []
    for copy in flattened:
        tracker.allocate(*copy)
    if dtype_of_gradients == strategy.master:
        return flattened
    converted: Allocation = (transient.fp32_gradients, strategy.master, share)
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
        tracker.free(transient.gradient_partition, strategy.accumulation, reducing.groups[number].partition)
        return
    tracker.free(transient.padding, reducing.padding_dtype(number), reducing.padding(number))
    if number in reducing.muon:
        from zeroplan.costs.deepspeed.muon_update import free_updates

        free_updates(reducing.job, tracker, reducing.muon[number])
        for index in reducing.muon[number]:
            reducing.drop(index)
    for index in [index for index in reducing.stored if reducing.own[index].group == number]:
        reducing.stored.discard(index)
        tracker.free(transient.own_gradients, strategy.dtype, reducing.sizes[index])
    if reducing.kept and number == max(users_of_the_buffer(reducing.job)):
        tracker.free(transient.own_gradients, strategy.dtype, reducing.kept)
        reducing.kept = 0


def _norm(reducing: Stages12Backward) -> None:
    """One gradient at a time is copied to double for its norm."""
    largest = max((piece.elements for piece in reducing.own.values()), default=0)
    reducing.tracker.transient_peak((transient.gradient_for_the_norm, "float64", largest))
