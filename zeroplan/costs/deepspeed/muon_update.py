"""Replay of Muon at stages 0 to 2: updates of whole matrices, in the step, or as the last backward of a step ends.

DeepSpeed 0.19.8 runtime/zero/muon/muon_optimizer.py (step), runtime/zero/stage_1_and_2.py (get_flat_partition).
"""

from __future__ import annotations

from collections.abc import Iterable

from zeroplan.costs.deepspeed.allocation_tracker import Allocation, AllocationTracker
from zeroplan.costs.deepspeed.cache import cached, strategy_key
from zeroplan.costs.deepspeed.layout import flat_groups, fp32_groups, own_pieces, tensor_sizes
from zeroplan.costs.deepspeed.muon import matrices
from zeroplan.formulas import moments, muon
from zeroplan.specs.job import Job


def gradient_dtype(job: Job) -> str:
    """What Muon reads: contiguous gradients come in the weights' dtype, also where they accumulated in fp32."""
    strategy = job.strategy
    return strategy.accumulation if strategy.stage == 1 and not strategy.contiguous else strategy.dtype


@cached(strategy_key)
def own_matrices(job: Job) -> dict[int, tuple[int, ...]]:
    """Tensors that touch this rank's partition in each group that Muon updates, in the group's order."""
    result: dict[int, tuple[int, ...]] = {}
    for index, piece in own_pieces(job).items():
        if index in matrices(job):
            result[piece.group] = (*result.get(piece.group, ()), index)
    return result


def own_elements(job: Job) -> int:
    """O: elements of those tensors, which are whole on each rank that they touch."""
    sizes = tensor_sizes(job)
    return sum(sizes[index] for members in own_matrices(job).values() for index in members)


def users_of_the_buffer(job: Job) -> set[int]:
    """Groups of which the step reads gradients in the buffer of own gradients: Adam's, unless they lie in fp32.

    Where gradients accumulate apart (stage 1), Muon's stay as well until the step has read the updates.
    """
    groups = {piece.group for piece in own_pieces(job).values()} - fp32_groups(job)
    return groups if job.strategy.stage == 1 and job.strategy.keeps_fp32_partition else groups - set(own_matrices(job))


def orthogonalize(job: Job, tracker: AllocationTracker, members: Iterable[int]) -> None:
    """One matrix after the other; the updates stay."""
    dtype = gradient_dtype(job)
    for index in members:
        tensor = job.model.tensors[index]
        tracker.transient_peak(newton_schulz_temporary(job, index, dtype))
        tracker.allocate(muon.updates, dtype, tensor.elements)


def newton_schulz_temporary(job: Job, index: int, dtype: str) -> Allocation:
    """What `muon_update` makes for a while, the update that it gives back included."""
    from zeroplan.costs.deepspeed.newton_schulz import workspace

    size = workspace(job.model.tensors[index].shape, dtype, job.strategy.ns_method)
    return muon.orthogonalizing, "uint8", size


def update_whole(job: Job, tracker: AllocationTracker, *, makes_states: bool) -> None:
    """Stage 0: one matrix after the other, the update of the one before still there; then Adam's half goes."""
    before: list[Allocation] = []
    for layout in flat_groups(job):
        for index in layout.order if layout.muon else ():
            if makes_states:
                tracker.allocate(moments.first_states, "float32", tensor_sizes(job)[index])
            tracker.transient_peak(*before, newton_schulz_temporary(job, index, "float32"))
            before = [_update(job, index)]


def last_update(job: Job) -> list[Allocation]:
    """The one that is there until the step ends."""
    last = [layout.order[-1] for layout in flat_groups(job) if layout.muon]
    return [_update(job, last[-1])] if last else []


def _update(job: Job, index: int) -> Allocation:
    return muon.updates, "float32", tensor_sizes(job)[index]
