"""Gradients on their way: which share a bucket, which collectives a flush sends, and when each is ready at stage 3.

It follows DeepSpeed 0.19.8's own order of events: runtime/zero/stage_1_and_2.py
(reduce_independent_p_g_buckets_and_remove_grads, average_tensor, allreduce_and_scatter) and, for stage 3,
runtime/zero/stage3.py (reduce_independent_p_g_buckets_and_remove_grads). Sizes are elements.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from operator import attrgetter
from typing import NamedTuple

from zeroplan.costs.allocations import END
from zeroplan.costs.cache import by_execution, cached
from zeroplan.costs.deepspeed.events import Flush
from zeroplan.costs.deepspeed.layout import (
    bucket_dtypes,
    communication_dtypes,
    flat_groups,
    fp32_groups,
    group_members,
    groups_key,
    layout_key,
    own_pieces,
    rank_of,
    tensor_sizes,
)
from zeroplan.costs.deepspeed.partitions import own_shares, padded_sizes
from zeroplan.costs.deepspeed.quantized_collectives import CollectiveCall, quantizes_gradients, reduced
from zeroplan.errors import ContradictionError
from zeroplan.specs.execution import Execution, ModuleHook
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Strategy


class Bucket(NamedTuple):
    """Tensors reduced together, by index, in the order they arrived."""

    tensors: tuple[int, ...]
    elements: int


class ReduceCall(NamedTuple):
    kind: str
    """all_reduce or reduce."""
    elements: int
    pieces: int
    """Slices that are copied into one tensor for it, when there are several."""
    kept: int
    """The largest slice in it that this rank adds to its fp32 partition."""


def buckets(order: Iterable[int], sizes: list[int], limit: int) -> Iterator[Bucket]:
    """Close a bucket when the next tensor would overflow it; a tensor over the limit goes alone."""
    members: list[int] = []
    elements = 0
    for index in order:
        if elements + sizes[index] > limit and members:
            yield Bucket(tuple(members), elements)
            members, elements = [], 0
        members.append(index)
        elements += sizes[index]
    if members:
        yield Bucket(tuple(members), elements)


def all_reduced(strategy: Strategy, filled: int) -> bool:
    """Whether stage 3 all-reduces a bucket of so many elements whole, rather than to each partition's owner."""
    fits = strategy.contiguous_gradients and filled <= strategy.reduce_bucket_size
    return fits and not strategy.scatters


class Slice(NamedTuple):
    owner: int
    elements: int
    added: bool = False
    """This rank adds it to its fp32 partition."""
    shared: tuple[int, ...] = ()
    """All ranks that keep it, where a matrix of Muon's lies on several."""


def runs(parts: Iterable[Slice], limit: int) -> Iterator[list[Slice]]:
    """Slices joined into runs: one closes as soon as its elements exceed the limit."""
    run: list[Slice] = []
    filled = 0
    for part in parts:
        run.append(part)
        filled += part.elements
        if filled > limit:
            yield run
            run, filled = [], 0
    if run:
        yield run


ENGINE_RUN = 500_000_000
"""Elements after which the engine closes a run of gradients (runtime/engine.py:allreduce_no_retain)."""


def engine_runs(sizes: Iterable[int]) -> Iterator[list[Slice]]:
    """Tensors that the engine joins and all-reduces together, at stage 0 and for BF16_Optimizer."""
    return runs((Slice(0, size) for size in sizes), ENGINE_RUN)


class Reduction:
    """What buckets of a job's gradients send at stages 1 and 2."""

    def __init__(self, job: Job) -> None:
        self.strategy, self.sizes, self.rank = job.strategy, tensor_sizes(job), rank_of(job)
        self.groups, self.fp32 = flat_groups(job), fp32_groups(job)
        self.own = {index: piece for index, piece in own_pieces(job).items() if piece.group in self.fp32}
        self.group_of = {index: number for number, group in enumerate(self.groups) for index in group.pieces}
        self.scatters = job.strategy.contiguous and job.strategy.scatters
        self.known: dict[tuple[int, ...], tuple[ReduceCall, ...]] = {}

    def of(self, bucket: tuple[int, ...]) -> tuple[ReduceCall, ...]:
        """The collectives of a bucket's tensors, worked out once."""
        if bucket not in self.known:
            self.known[bucket] = tuple(self._scattered(bucket)) if self.scatters else (self._whole(bucket),)
        return self.known[bucket]

    def _whole(self, bucket: tuple[int, ...]) -> ReduceCall:
        """Without reduce_scatter it is all-reduced: in place, or, without contiguous gradients, copied into one."""
        kept = max((self.own[index].elements for index in bucket if index in self.own), default=0)
        pieces = 1 if self.strategy.contiguous else len(bucket)
        return ReduceCall("all_reduce", sum(self.sizes[index] for index in bucket), pieces, kept)

    def _scattered(self, bucket: tuple[int, ...]) -> Iterator[ReduceCall]:
        """With use_multi_rank_bucket_allreduce its slices are joined and all-reduced, else reduced to each owner.

        Either way a run closes once it exceeds the bucket size. A matrix of Muon's that lies on several ranks is
        all-reduced in any case.
        """
        by_target: dict[int | None, list[Slice]] = {}
        for piece in self._slices(bucket):
            to_all = self.strategy.use_multi_rank_bucket_allreduce or piece.shared
            by_target.setdefault(None if to_all else piece.owner, []).append(piece)
        for target, slices in by_target.items():
            for run in runs(slices, self.strategy.reduce_bucket_size):
                kept = max((piece.elements for piece in run if piece.added), default=0)
                kind = "all_reduce" if target is None else "reduce"
                yield ReduceCall(kind, sum(piece.elements for piece in run), len(run), kept)

    def _slices(self, bucket: tuple[int, ...]) -> list[Slice]:
        """A bucket cut at partition boundaries; neighbours of one owner join unless this rank adds them to its fp32
        partition. Of Muon's matrices neighbours join only if the same ranks keep them.
        """
        apart = frozenset[int]() if self.strategy.selective else self.fp32  # ZenFlow joins them all the same
        result: list[Slice] = []
        last: Slice | None = None
        filled = 0
        """Elements that have joined the last one."""
        for index in bucket:
            number = self.group_of[index]
            group = self.groups[number]
            pieces = group.pieces[index]
            shared = tuple(owner for owner, _elements in pieces) if group.muon and len(pieces) > 1 else ()
            for owner, elements in pieces:
                added = owner == self.rank and number in apart
                if last and not added and last.owner == owner and not last.added and last.shared == shared:
                    filled += elements
                    continue
                if last:
                    result.append(last._replace(elements=filled))
                last, filled = Slice(owner, elements, added, shared), elements
        return [*result, last._replace(elements=filled)] if last else result


def _reduction_key(strategy: Strategy) -> Hashable:
    return (
        layout_key(strategy), strategy.keeps_fp32_partition, strategy.contiguous, strategy.scatters,
        strategy.selective is not None, strategy.use_multi_rank_bucket_allreduce, strategy.reduce_bucket_size,
    )  # fmt: skip


@cached(_reduction_key)
def reduction(job: Job) -> Reduction:
    return Reduction(job)


class Reductions(NamedTuple):
    """What one backward reduces."""

    sent: tuple[CollectiveCall, ...]
    flushes: tuple[Flush, ...]


def _arrivals_key(strategy: Strategy) -> Hashable:
    """Gradients come in one order, however far parameters are gathered ahead, wherever they go."""
    recomputes = strategy.recomputing.every > 0
    return recomputes, strategy.memory_efficient_linear, groups_key(strategy), strategy.autocast_dtype


cached_per_order = cached(_arrivals_key, order=by_execution)


def reductions_key(strategy: Strategy) -> Hashable:
    return (
        _arrivals_key(strategy), strategy.reduce_bucket_size, strategy.scatters or strategy.contiguous_gradients,
        strategy.scatters, strategy.communication, strategy.quantized_gradients,
    )  # fmt: skip


cached_per_reductions = cached(reductions_key, order=by_execution)


class GradientEvent(NamedTuple):
    """A gradient is there, whole, or reaches its bucket."""

    tensor: int
    at: int
    """The hook of backward that comes next; END when none does."""


@cached_per_order
def ready_gradients(job: Job) -> tuple[GradientEvent, ...]:
    """When each is there, in order: once backward has entered the module that makes it whole, before the next hook of
    one that has tensors.

    What a checkpointed layer runs again comes before: backward of its last module waits for what that saves.
    """
    hooks = job.backward_hooks
    in_backward = [at for at, hook in enumerate(hooks) if hook.backward and hook.tensors]
    entered: dict[int, int] = {}
    users = last_users(hooks)
    for at in in_backward:
        if hooks[at].enters:
            for index in hooks[at].tensors:
                if users[index] == hooks[at].module:
                    entered.setdefault(index, at)
    execution, latest, result = job.execution, -1, []
    entered |= _left_inside(execution, hooks, {index: users[index] for index in execution.computing if index in users})
    for index in execution.gradients_stage_3 if job.strategy.memory_efficient_linear else execution.gradients:
        latest = max(latest, entered.get(index, END))
        following = bisect_right(in_backward, latest)
        result.append(GradientEvent(index, in_backward[following] if following < len(in_backward) else END))
    return tuple(result)


def _left_inside(execution: Execution, hooks: Sequence[ModuleHook], wrappers: Mapping[int, int]) -> dict[int, int]:
    """The last hook inside the wrapper of each of these tensors; inside a leaf there is none."""
    if not wrappers:
        return {}
    paths, latest = execution.modules, {hook.module: at for at, hook in enumerate(hooks)}
    result: dict[int, int] = {}
    for index, wrapper in wrappers.items():
        start = f"{paths[wrapper]}."
        for module in range(wrapper + 1, len(paths)):  # numbered as they are entered: those inside follow
            if not paths[module].startswith(start):
                break
            result[index] = max(result.get(index, -1), latest.get(module, -1))
    return result


@cached_per_order
def gradients_by_hook(job: Job) -> dict[int, list[int]]:
    """Tensors whose gradients are ready before each hook, in order."""
    result: dict[int, list[int]] = {}
    for index, at in ready_gradients(job):
        result.setdefault(at, []).append(index)
    return result


def last_users(hooks: Sequence[ModuleHook]) -> dict[int, int]:
    """The module whose backward makes a tensor's gradient whole: of a tied one the embedding, of a bias that one module
    lends another (BERT's decoder) that other.
    """
    return {index: hook.module for hook in hooks if hook.backward and hook.enters for index in hook.tensors}


@cached_per_order
def left_leaves(job: Job) -> dict[int, tuple[int, ...]]:
    """Tensors of each leaf module, by the hook that ends its backward: then their gradients go to the bucket.

    Raises `ContradictionError` for a leaf through which no gradient goes back: no hook tells its end, or that of its
    hooks which does fires first.
    """
    execution, frozen = job.execution, job.model.frozen
    if not execution.leaves:
        return {}
    left = {hook.module for hook in execution.backward if hook.backward and not hook.enters}
    trained = {hook.module for hook in execution.forward if not frozen.issuperset(hook.tensors)}
    if stuck := (execution.leaves & trained) - left:
        if frozen:
            raise ContradictionError(
                f"leaf_module: {execution.modules[min(stuck)] or 'the model'} trains as a leaf and is given nothing "
                "that needs a gradient: DeepSpeed reduces its gradients before they are there, and stops; let a layer "
                "before it train too, as q_proj, or checkpoint activations"
            )
        raise ContradictionError(
            f"leaf_module: {execution.modules[min(stuck)] or 'the model'} as a leaf is called with token ids or by "
            "keywords alone: no hook tells when its backward ends, and DeepSpeed stops or never reduces its "
            "gradients; write a smaller stage3_module_granularity_threshold, or another leaf_module"
        )
    position = {index: at for at, index in enumerate(chain.from_iterable(group_members(job)))}
    return {
        at: tuple(sorted(position.keys() & hook.tensors, key=position.__getitem__))
        for at, hook in enumerate(job.backward_hooks)
        if hook.backward and not hook.enters and hook.module in execution.leaves
    }  # fmt: skip


def waiting_in_leaves(job: Job) -> frozenset[int]:
    """Tensors whose gradients wait until their leaf's backward is over."""
    return frozenset(chain.from_iterable(left_leaves(job).values()))


@cached_per_order
def arrivals(job: Job) -> tuple[GradientEvent, ...]:
    """Gradients in the order in which they reach their bucket, each when its module's backward is done."""
    waiting = waiting_in_leaves(job)
    ready = [GradientEvent(index, at) for index, at in ready_gradients(job) if index not in waiting or at == END]
    of_leaves = [GradientEvent(index, at) for at, tensors in left_leaves(job).items() for index in tensors]
    return tuple(sorted([*ready, *of_leaves], key=attrgetter("at")))


@cached_per_reductions
def reductions(job: Job) -> Reductions:
    """What a backward sends, bucket by bucket."""
    sent: list[CollectiveCall] = []
    flushes: list[Flush] = []
    padded, ranks, quantizes = padded_sizes(job), job.ranks, quantizes_gradients(job)
    for dtype, bucket, at in _full(job):
        flushes.append(Flush(bucket.elements, at))
        if all_reduced(job.strategy, bucket.elements):
            sent.append(CollectiveCall("all_reduce", bucket.elements, dtype, ranks))
        elif quantizes:  # tensor by tensor
            sent += [part for index in sorted(bucket.tensors) for part in reduced(job, index)]
        else:
            sent.append(
                CollectiveCall("reduce_scatter", sum([padded[index] for index in bucket.tensors]), dtype, ranks)
            )
    return Reductions(tuple(sent), tuple(flushes))


@cached_per_reductions
def to_host(job: Job) -> dict[int, int]:
    """Elements of each reduced partition that goes to the host: an all-reduce leaves it padded."""
    own, result = own_shares(job), dict[int, int]()
    for _dtype, bucket, _at in _full(job):
        shares = own.padded if all_reduced(job.strategy, bucket.elements) else own.cut
        result.update({index: shares[index] for index in bucket.tensors})
    return result


def _full(job: Job) -> Iterator[tuple[str, Bucket, int]]:
    """Buckets, dtype by dtype, and the hook before which each is reduced: when the next gradient has no room in it."""
    dtypes, sizes, limit = communication_dtypes(job), tensor_sizes(job), job.strategy.reduce_bucket_size
    for dtype in bucket_dtypes(job):
        here = {tensor: at for tensor, at in arrivals(job) if dtypes[tensor] == dtype}
        in_order = list(buckets(here, sizes, limit))
        for bucket, following in zip_longest(in_order, in_order[1:]):
            yield dtype, bucket, here[following.tensors[0]] if following else END
