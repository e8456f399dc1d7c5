"""Replay of Muon in the step of an offloaded optimizer: gradients and momentum come to the GPU, and go back.

DeepSpeed 0.19.8 _apply_muon_updates_cpu_offload of runtime/zero/stage_1_and_2.py and of stage3.py. Every rank
orthogonalizes every matrix. Sizes are elements.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from zeroplan.arithmetic import ceil_div
from zeroplan.costs.allocations import Allocation, AllocationTracker, Variables
from zeroplan.costs.cache import cached, order_free_key
from zeroplan.costs.deepspeed.layout import flat_groups, own_pieces, tensor_sizes
from zeroplan.costs.deepspeed.muon import matrices
from zeroplan.costs.deepspeed.muon_gather import GatherBuffers, shards
from zeroplan.costs.deepspeed.muon_update import newton_schulz_temporary
from zeroplan.costs.deepspeed.partitions import sub_group_members
from zeroplan.formulas import muon, transient_stage_3
from zeroplan.ledger import DTYPE_BYTES
from zeroplan.specs.job import Job

LARGEST = 64 * 1024**2
"""Bytes of one batch's gradients and momentum, and of the buffers of one gather (_muon_allgather_max_buffer_bytes)."""


class Batch(NamedTuple):
    """Matrices of one flat group that are updated together."""

    group: int
    tensors: tuple[int, ...]
    most: int
    """Elements of the rank that has most of them."""


@cached(order_free_key)
def batches(job: Job) -> list[Batch]:
    """Stages 1 and 2: up to 64 MiB of matrices at once, or a single larger one."""
    sizes, limit, result = tensor_sizes(job), LARGEST // (2 * DTYPE_BYTES[job.strategy.master]), []
    for number, layout in enumerate(flat_groups(job)):
        batch: list[int] = []
        filled = 0
        for index in layout.pieces if layout.muon else ():
            if batch and filled + sizes[index] > limit:
                result.append(_batch(job, number, batch))
                batch, filled = [], 0
            batch.append(index)
            filled += sizes[index]
        if batch:
            result.append(_batch(job, number, batch))
    return result


def _batch(job: Job, group: int, tensors: list[int]) -> Batch:
    pieces = flat_groups(job)[group].pieces
    of_rank: dict[int, int] = {}
    for index in tensors:
        for owner, elements in pieces[index]:
            of_rank[owner] = of_rank.get(owner, 0) + elements
    return Batch(group, tuple(tensors), max(of_rank.values()))


def _at_once(job: Job, batch: Batch, kinds: int) -> int:
    """Elements of each rank, of each of `kinds` (gradients, momentum), that one all-gather takes."""
    most = LARGEST // ((job.ranks + 1) * kinds * DTYPE_BYTES[job.strategy.master])
    return min(batch.most, max(1, most))


def sub_groups_of_muon(job: Job) -> list[list[int]]:
    result = matrices(job)
    return [members for members in sub_group_members(job) if members[0] in result] if result else []


def sent(job: Job) -> tuple[str, list[int]]:
    """Dtype and elements of each all-gather: momentum beside the gradients."""
    if job.strategy.stage == 3:
        return job.strategy.accumulation, [2 * job.ranks * shards(job, members) for members in sub_groups_of_muon(job)]
    result = []
    for batch in batches(job):
        chunk = _at_once(job, batch, 2)
        result += ceil_div(batch.most, chunk) * [2 * chunk * job.ranks]
    return job.strategy.master, result


def own_elements(job: Job) -> int:
    """Elements of this rank's pieces of matrices, which it copies both ways, with their momentum."""
    if job.strategy.stage == 3:
        return sum(shards(job, members) for members in sub_groups_of_muon(job))
    muons = matrices(job)
    return sum(piece.elements for index, piece in own_pieces(job).items() if index in muons)


def dtype_of_gathers(job: Job) -> str:
    return job.strategy.accumulation if job.strategy.stage == 3 else job.strategy.master


@cached(order_free_key)
def kept(job: Job) -> GatherBuffers:
    """The buffers that are there between steps; at stages 1 and 2 the first gathers gradients alone."""
    buffers = GatherBuffers(AllocationTracker(), dtype_of_gathers(job))
    for kinds in (1, 2):
        for batch in batches(job) if job.strategy.stage < 3 and job.ranks > 1 else ():
            _take(job, buffers, batch, kinds)
        for members in sub_groups_of_muon(job) if job.strategy.stage == 3 else ():
            buffers.gather(job.ranks, 2 * shards(job, members))
    return buffers


def _take(job: Job, buffers: GatherBuffers, batch: Batch, kinds: int) -> None:
    chunk = _at_once(job, batch, kinds)
    key, elements = (batch.group, chunk, kinds), kinds * chunk * (job.ranks + 1)
    if key not in buffers.kept:
        buffers.make_room(elements)
    buffers.take(key, elements)


def apply(job: Job, tracker: AllocationTracker) -> None:
    """The buffers stay; the norms of what was updated are numbers."""
    buffers = GatherBuffers(tracker, dtype_of_gathers(job), kept(job).kept)
    (_apply_sub_groups if job.strategy.stage == 3 else _apply_batches)(job, tracker, buffers)


def _apply_batches(job: Job, tracker: AllocationTracker, buffers: GatherBuffers) -> None:
    """Whole gradients and momentum of a batch, then one matrix after the other."""
    sizes, master, own = tensor_sizes(job), job.strategy.master, own_pieces(job)
    for batch in batches(job):
        elements = sum(sizes[index] for index in batch.tensors)
        both: tuple[Allocation, ...] = (
            (muon.gathered_gradients, master, elements),
            (muon.gathered_momentum, master, elements),
        )
        for copy in both:
            tracker.allocate(*copy)
        if job.ranks > 1:
            _take(job, buffers, batch, 2)
        variables = Variables(tracker)
        for index in batch.tensors:
            tracker.transient_peak(newton_schulz_temporary(job, index, master))
            variables.put("update", (muon.updates, master, sizes[index]))
            piece = own[index].elements if index in own else 0
            norm = transient_stage_3.gradient_for_the_norm, "float64", piece
            tracker.transient_peak(*_scaled(job, piece, master), norm)
        variables.leave()
        for copy in both:
            tracker.free(*copy)


def _scaled(job: Job, elements: int, dtype: str) -> Iterable[Allocation]:
    """An update takes the loss scale of fp16, which its gradient's had lost."""
    return [(muon.updates, dtype, elements)] if job.strategy.precision == "fp16" else []


def _apply_sub_groups(job: Job, tracker: AllocationTracker, buffers: GatherBuffers) -> None:
    """A sub-group's partitions from the host, gathered; what it leaves goes as the next one takes its place."""
    ranks, sizes, variables, dtype = job.ranks, tensor_sizes(job), Variables(tracker), job.strategy.accumulation
    for members in sub_groups_of_muon(job):
        own = shards(job, members)
        variables.put("parts")
        parts = (job.strategy.master, job.strategy.communication)  # gradients and momentum
        variables.put("parts", *((muon.partitions_from_host, kind, own) for kind in parts))
        whole_ones = [kind for kind in parts if ranks > 1 or kind != dtype]  # one rank takes them as they are
        made: Allocation = (muon.gathered_gradients, dtype, ranks * own * len(whole_ones))
        buffers.gather(ranks, 2 * own, made)
        variables.allocations["gathered"] = (made,)
        variables.rename("gathered", "both")  # now the loop's own variables let go of those before
        for index in members:
            share = ceil_div(sizes[index], ranks)
            tracker.transient_peak(newton_schulz_temporary(job, index, dtype))
            variables.put("update", (muon.updates, dtype, sizes[index]))
            variables.put("own update", (muon.updates, dtype, share))
            variables.put("scaled update", *_scaled(job, share, dtype))
            tracker.transient_peak((muon.updates, job.strategy.master, share * (dtype != job.strategy.master)))
            variables.put("own momentum", (muon.gathered_momentum, dtype, share))
            converted = share * (dtype != job.strategy.communication)
            tracker.transient_peak((muon.gathered_momentum, job.strategy.communication, converted))
            tracker.transient_peak((transient_stage_3.gradient_for_the_norm, "float64", share))
    variables.leave()
