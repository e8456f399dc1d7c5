"""Muon in stage 3's step: whole gradients and momentum gathered, some matrices at a time, and shared out.

DeepSpeed 0.19.8 runtime/zero/stage3.py: _apply_muon_to_accumulated_grads, _partitioned_buffers_all_gather and
_muon_update_sub_group. Every rank orthogonalizes one matrix of a round. The buffers that its gathers go through, here
and at stages 1 and 2 (stage_1_and_2.py:_muon_all_gather_partitions), stay for later steps, up to 256 MiB in all.
Sizes are elements.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence

from zeroplan.costs.allocations import Allocation, AllocationTracker, Variables
from zeroplan.costs.cache import cached, order_free_key
from zeroplan.costs.deepspeed.layout import rank_of, tensor_sizes
from zeroplan.costs.deepspeed.muon import GATHER_BUFFERS, matrices
from zeroplan.costs.deepspeed.muon_update import newton_schulz_temporary
from zeroplan.costs.deepspeed.partitions import shard_sizes, sub_group_members
from zeroplan.formulas import muon, transient_stage_3
from zeroplan.ledger import DTYPE_BYTES, Line, line
from zeroplan.specs.job import Job


def chunks(job: Job) -> Iterator[list[int]]:
    """Matrices gathered together: of one sub-group, up to reduce_bucket_size elements, or a single larger one."""
    sizes, limit = tensor_sizes(job), job.strategy.reduce_bucket_size
    for members in sub_group_members(job):
        chunk: list[int] = []
        filled = 0
        for index in members if members[0] in matrices(job) else ():
            if chunk and filled + sizes[index] > limit:
                yield chunk
                chunk, filled = [], 0
            chunk.append(index)
            filled += sizes[index]
        if chunk:
            yield chunk


def shards(job: Job, tensors: Sequence[int]) -> int:
    """Elements of this rank's partitions of them."""
    return sum(map(shard_sizes(job).__getitem__, tensors))


def rounds(job: Job, chunk: Sequence[int]) -> Iterator[Sequence[int]]:
    """One matrix for each rank, the last round perhaps fewer."""
    return (chunk[start : start + job.ranks] for start in range(0, len(chunk), job.ranks))


def sent(job: Job) -> list[int]:
    """Elements of each all-gather: gradients and momentum of a chunk, then both of a round, as long as its longest."""
    sizes, result = tensor_sizes(job), []
    for chunk in chunks(job):
        result += 2 * [job.ranks * shards(job, chunk)]
        result += [
            job.ranks * max(sizes[index] for index in tensors) for tensors in rounds(job, chunk) for _ in range(2)
        ]
    return result


@cached(order_free_key)
def kept(job: Job) -> GatherBuffers:
    """The buffers that are there between steps, which the third step leaves as it found them."""
    buffers = GatherBuffers(AllocationTracker(), job.strategy.communication)
    for _step in range(2):
        for chunk in chunks(job):
            for _what in ("gradients", "momentum"):
                buffers.gather(job.ranks, shards(job, chunk))
    return buffers


def apply(job: Job, tracker: AllocationTracker) -> None:
    """All chunks; the gradients of one are there until those of the next have been written back."""
    strategy, ranks, dtype = job.strategy, job.ranks, job.strategy.communication
    buffers, variables = GatherBuffers(tracker, dtype, kept(job).kept), Variables(tracker)
    for chunk in chunks(job):
        own = shards(job, chunk)
        made = ranks * own if ranks > 1 or strategy.accumulation != dtype else 0  # else the partitions themselves
        gradients: Allocation = (muon.gathered_gradients, dtype, made)
        buffers.gather(ranks, own, gradients)
        variables.allocations["gathered"] = (gradients,)
        momentum: list[Allocation] = [(muon.gathered_momentum, dtype, own)]
        tracker.allocate(*momentum[0])
        if ranks > 1:
            momentum.append((muon.gathered_momentum, dtype, ranks * own))
        buffers.gather(ranks, own, *momentum[1:])
        _update(job, tracker, chunk)
        for copy in momentum:
            tracker.free(*copy)
        variables.rename("gathered", "gradients")
    variables.leave()


def _update(job: Job, tracker: AllocationTracker, chunk: Sequence[int]) -> None:
    """Round by round: this rank's matrix, then every rank's; of unequal shapes they are padded to the longest."""
    dtype, rank, sizes, variables = job.strategy.communication, rank_of(job), tensor_sizes(job), Variables(tracker)

    def padded(count: int) -> Allocation:
        return muon.exchanged_updates, dtype, count * longest

    for tensors in rounds(job, chunk):
        longest = max(sizes[index] for index in tensors)
        if rank < len(tensors):
            tracker.transient_peak(newton_schulz_temporary(job, tensors[rank], dtype))
            variables.put("update", (muon.updates, dtype, sizes[tensors[rank]]))
        same_shape = len({job.model.tensors[index].shape for index in tensors}) == 1 and len(tensors) == job.ranks
        for name in ("gradient", "momentum"):
            variables.put(f"local {name}", *([] if same_shape else [padded(1)]))
        for name in ("gradient", "momentum"):
            if same_shape:
                variables.put(f"{name}s")
                continue
            variables.put(f"next {name}", padded(1))
            variables.put(f"{name}s", padded(job.ranks - 1))
        for name in ("gradient", "momentum") if not same_shape else ():
            variables.rename(f"next {name}", f"last {name}")  # the loop's own variable, which outlives its list
    short = [share for index in chunk if (share := shards(job, [index])) * (rank + 1) > sizes[index]]
    for share in short:  # momentum that reaches beyond its matrix is copied to be written back
        variables.put("own momentum", (transient_stage_3.padded_partitions, job.strategy.accumulation, share))
    variables.leave()


MOST_KEPT = 256 * 1024**2
"""Bytes (_muon_allgather_max_cached_bytes)."""
NONE: Mapping[Hashable, int] = {}


class GatherBuffers:
    """Elements of what this rank sends and of what all send, by what tells them apart; the oldest use first."""

    def __init__(self, tracker: AllocationTracker, dtype: str, kept: Mapping[Hashable, int] = NONE) -> None:
        self.tracker, self.dtype, self.kept = tracker, dtype, dict(kept)
        for elements in kept.values():
            tracker.allocate(*self.pair(elements))

    def pair(self, elements: int) -> Allocation:
        return muon.gathering, self.dtype, elements

    def take(self, key: Hashable, elements: int) -> bool:
        """Those that are kept, or new ones. Whether they will be kept: what is too large never is."""
        if key in self.kept:
            self.kept[key] = self.kept.pop(key)
            return True
        self.tracker.allocate(*self.pair(elements))
        fits = DTYPE_BYTES[self.dtype] * elements <= MOST_KEPT
        if fits:
            self.make_room(elements)
            self.kept[key] = elements
        return fits

    def make_room(self, elements: int) -> None:
        while self.kept and DTYPE_BYTES[self.dtype] * (sum(self.kept.values()) + elements) > MOST_KEPT:
            self.tracker.free(*self.pair(self.kept.pop(next(iter(self.kept)))))

    def gather(self, ranks: int, elements: int, *into: Allocation) -> None:
        """At stage 3: this rank's elements beside those of all, and then what comes of it; one rank gathers nothing."""
        size = (ranks + 1) * elements
        stays = ranks == 1 or self.take(elements, size)
        for copy in into:
            self.tracker.allocate(*copy)
        if not stays:
            self.tracker.free(*self.pair(size))


def lines(buffers: GatherBuffers) -> list[Line]:
    """What is held between steps."""
    size = DTYPE_BYTES[buffers.dtype] * sum(buffers.kept.values())
    return [line(GATHER_BUFFERS, muon.gather_buffers, buffers.dtype, size=size)] if size else []
