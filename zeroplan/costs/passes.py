"""Forward and backward as one timeline: what the model's operators have alive beside what DeepSpeed has."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from operator import attrgetter

from zeroplan.costs.alignment import aligned_events, interval_of
from zeroplan.costs.deepspeed.allocation_tracker import START, MemorySnapshot
from zeroplan.costs.deepspeed.backward import Gradients
from zeroplan.costs.deepspeed.cache import cached
from zeroplan.costs.deepspeed.event_log import RepeatedBlock, extreme_events, offset_key
from zeroplan.costs.deepspeed.events import GatheredMemory
from zeroplan.costs.deepspeed.layout import tensor_sizes
from zeroplan.costs.deepspeed.module_hooks import backward_hooks, hook_order_key, pass_hooks
from zeroplan.costs.deepspeed.partitions import own_bytes, persistence_key, persistent_tensors
from zeroplan.formulas import activations as forms
from zeroplan.ledger import Activations, Detail, Line, line
from zeroplan.record import NamedTuple
from zeroplan.specs.execution import PassTimeline, Timeline
from zeroplan.specs.job import Job
from zeroplan.specs.model import MIN_IDENTICAL_BATCH, TimelineRequest


def timeline_of(job: Job) -> Timeline | None:
    """The model's own timeline under this job; None where it is not written out: closed forms serve then."""
    return job.model.timeline(timeline_request(job), job.leaves)


def alone(job: Job) -> Activations | None:
    """The model's own bytes without DeepSpeed, whose stage 3 runs another linear function."""
    result = job.model.timeline.alone(timeline_request(job)._replace(zero_linear=False), job.leaves)
    return Activations(*result) if result else None


def activations_key(job: Job) -> Hashable:
    """All that `least_activations` reads of a job, beside the model and the ranks."""
    strategy = job.strategy
    return (
        timeline_request(job),
        job.leaves,
        strategy.stage == 3 and (persistence_key(strategy), strategy.autocast_dtype),
    )


def least_activations(job: Job) -> tuple[int, int] | None:
    """Bytes that the model's own forward and backward have alive at their fullest, or fewer.

    None where it is not written out. At stage 3 beside the parameters of the module at work, which are gathered at
    least.
    """
    return _growing(job, _fullest)


def alone_at_least(job: Job) -> tuple[int, int] | None:
    """The same without anything of DeepSpeed's, which takes no walk along its events."""
    return _growing(job, _alone)


def saved_at_least(job: Job) -> tuple[int, int] | None:
    """Bytes that forward leaves for backward: as many with stage 3's own linear function as with torch's. Not under
    autocast, where that keeps what came as it came.
    """
    return None if job.strategy.autocast else _growing(job, _saved)


def _growing(job: Job, of: Callable[[Job, TimelineRequest], tuple[int, int] | None]) -> tuple[int, int] | None:
    """Each moment's bytes grow in proportion with the micro-batch, so the fullest moment's grow no slower the larger it
    is: from three sequences on, what one more added to two is added for each.
    """
    request, batch = timeline_request(job), job.strategy.micro_batch
    if batch <= MIN_IDENTICAL_BATCH + 1:
        return of(job, request)
    two, three = (of(job, request._replace(batch=size)) for size in (MIN_IDENTICAL_BATCH, MIN_IDENTICAL_BATCH + 1))
    if two is None or three is None:
        return None
    forward, backward = (
        high + (batch - MIN_IDENTICAL_BATCH - 1) * (high - low) for low, high in zip(two, three, strict=True)
    )
    return forward, backward


def _alone(job: Job, request: TimelineRequest) -> tuple[int, int] | None:
    result = job.model.timeline.alone(request, job.leaves)
    return result and result[1:]


def _saved(job: Job, request: TimelineRequest) -> tuple[int, int] | None:
    result = job.model.timeline.alone(request._replace(zero_linear=False), job.leaves)
    return result and (result[0], result[0])


def _fullest(job: Job, request: TimelineRequest) -> tuple[int, int] | None:
    alone = _alone(job, request)
    if alone is None or job.strategy.stage < 3 or job.ranks == 1:
        return alone
    result, own = job.model.timeline(request, job.leaves), own_bytes(job)
    if result is None:
        return alone
    return (
        max(alone[0], with_own(result.forward, pass_hooks(job, 0), own)),
        max(alone[1], with_own(result.backward, pass_hooks(job, 1), own)),
    )


def beside_kept(job: Job) -> int | None:
    """Bytes of the model's own, or fewer, beside all that stage 3 has gathered when forward ends: what backward has
    released by then is taken off, as if all it reads had been there. None where they are not written out.

    Like the fullest moment's they grow no slower the larger the micro-batch is.
    """
    request, batch = timeline_request(job), job.strategy.micro_batch
    if batch <= MIN_IDENTICAL_BATCH + 1:
        return _beside_kept(job, request)
    two, three = (
        _beside_kept(job, request._replace(batch=size)) for size in (MIN_IDENTICAL_BATCH, MIN_IDENTICAL_BATCH + 1)
    )
    return None if two is None or three is None else three + (batch - MIN_IDENTICAL_BATCH - 1) * (three - two)


def _beside_kept(job: Job, request: TimelineRequest) -> int | None:
    found = job.model.timeline(request, job.leaves)
    if found is None:
        return None
    one, width, fullest = found.backward, job.strategy.element_bytes, found.backward.fullest[0]
    most, released, reached = found.saved, 0, -1
    for at, elements in _first_reads(job):
        if (here := one.hooks[at]) > reached:
            most = max(most, max(one.most[reached + 1 : here + 1]) - width * released)
            reached = here
        released += elements
        if fullest - width * released <= most:
            break
    return most


@cached(lambda strategy: (hook_order_key(strategy), persistence_key(strategy)))
def _first_reads(job: Job) -> list[tuple[int, int]]:
    """Backward's hooks that read partitioned tensors for the first time, and how many elements these have."""
    left, sizes = set(range(len(job.model.tensors))) - set(persistent_tensors(job)), tensor_sizes(job)
    result = []
    for at, hook in enumerate(backward_hooks(job)):
        if hook.enters and hook.tensors and (new := left.intersection(hook.tensors)):
            result.append((at, sum([sizes[index] for index in new])))
            left -= new
    return result


def with_own(one: PassTimeline, hooks: Sequence[RepeatedBlock[GatheredMemory]], own: dict[int, int]) -> int:
    """The fullest moment of a pass with what the module at work reads; `own`: bytes of each tensor."""
    entered: dict[int, int] = {}
    most = 0
    for event, _before, at in aligned_events(hooks, one, HOOK_NUMBER):
        hook = event.hook
        if hook.enters:
            entered[hook.module] = at
        elif hook.tensors and at > (start := entered.get(hook.module, at)):
            reads = sum([own.get(index, 0) for index in hook.tensors])
            most = max(most, reads + max(one.most[start + 1 : at + 1]))
    return most


def with_gathered(blocks: Sequence[RepeatedBlock[GatheredMemory]], width: int, one: PassTimeline) -> int:
    """The fullest moment of a pass beside what is gathered, in elements of so many bytes: what is there before a hook
    and still when gradients are ready, or after it, and at most in the hook beside what is then; and secondary
    partitions, which only become more.
    """
    most, now, second, reached = 0, 0, 0, -1
    for event, at, to in aligned_events(blocks, one, HOOK_NUMBER):
        if to > at:
            most = max(most, width * (second + min(now, event.ready)) + max(one.most[at + 1 : to + 1]))
        now, second, reached = event.elements, event.secondary, max(at, to)
        most = max(most, width * event.most + (one.now[reached] if reached >= 0 else one.start))
    return max(most, width * (second + now) + max(one.most[reached + 1 :], default=0))


def with_gradients(
    blocks: Sequence[RepeatedBlock[GatheredMemory]], found: Gradients, made: Sequence[int], kept: Sequence[int],
    width: int, one: PassTimeline,
) -> int:  # fmt: skip
    """The fullest moment of backward beside what is gathered, a gradient as it is made, those that wait until their
    module is left, and the one that reached its bucket last. Elements are of `width` bytes; `made`: bytes of each
    tensor's gradient, `kept`: those that stay until the next comes. Of a part that comes many times the first time is
    looked at.
    """
    most, elements, second, waiting, last, reached = 0, 0, 0, 0, 0, -1

    def until(to: int) -> int:
        """The fullest moment so far, with what lies between."""
        between = one.most[reached + 1 : to + 1] if waiting or last else ()
        return max(most, width * (second + elements) + waiting + last + max(between)) if between else most

    for events, times, by in blocks:
        for event in events:
            for index in found.ready.get(event.at, ()):
                most, reached = until(to := one.ready.get(index, reached)), max(reached, to)
                elements = event.ready
                there = width * (second + elements) + waiting + last + made[index]
                most = max(most, there + (one.now[reached] if reached >= 0 else one.start))
                if index in found.in_leaves:
                    waiting += made[index]
                else:
                    last = kept[index]
            most, reached = until(to := one.hooks[event.at]), max(reached, to)
            elements, second = event.elements, event.secondary
            if event.hook.backward and not event.hook.enters:
                waiting = 0
                if left := found.in_leaves.intersection(event.hook.tensors):
                    last = min([kept[index] for index in left])
        end = by.times(times - 1)
        elements += sum(end.more)
        reached = max([reached, *(interval_of(offset_key(event.at, end), one, reached) for event in events)])
    return most


def timeline_request(job: Job) -> TimelineRequest:
    """What decides the timeline."""
    strategy = job.strategy
    return TimelineRequest(
        batch=strategy.micro_batch, seq=job.workload.seq, width=strategy.element_bytes,
        half=strategy.dtype == "float16", attention=strategy.attention,
        kernel="cpu" if strategy.backend == "cpu" else "cuda", recomputing=strategy.recomputing,
        zero_linear=strategy.runs_zero_linear, kernels=strategy.kernels,
        autocast_bytes=2 if strategy.autocast else 0,
    )  # fmt: skip


SNAPSHOT_KEY, HOOK_NUMBER = attrgetter("key"), attrgetter("at")


class PassPeak(NamedTuple):
    """The moment of a pass at which most is alive."""

    bytes: int
    elements: tuple[int, ...]
    """DeepSpeed's, in the order of its kinds."""
    activations: int
    at: int
    """The interval of the pass."""


def pass_peak(snapshots: Sequence[RepeatedBlock[MemorySnapshot]], activations: PassTimeline) -> PassPeak:
    """The largest moment of passes: at an interval's most with what DeepSpeed has meanwhile, or at one of its
    events.
    """
    most, at = activations.fullest
    best = PassPeak(most, (), most, at)
    for one in passes(snapshots):
        at_most = most + max([snapshot.most for snapshot in extreme_events(one)])
        if at_most > best.bytes and (found := _pass_peak(one, activations, at_most)).bytes > best.bytes:
            best = found
    return best


def passes(snapshots: Sequence[RepeatedBlock[MemorySnapshot]]) -> Iterator[Sequence[RepeatedBlock[MemorySnapshot]]]:
    """Each from its start to the next one's."""
    starts = [at for at, block in enumerate(snapshots) if block.events[0].key == START]
    for start, end in zip(starts, [*starts[1:], len(snapshots)], strict=False):
        yield snapshots[start:end]


def _pass_peak(snapshots: Sequence[RepeatedBlock[MemorySnapshot]], activations: PassTimeline, at_most: int) -> PassPeak:
    """`at_most`: bytes that no moment is above, so that the first with as many is the largest."""
    most, now = activations.most, activations.now
    before = snapshots[0].events[0]
    best: tuple[tuple[int, ...], int, int] = (), 0, 0
    largest, there = 0, before.now
    for snapshot, at, to in aligned_events(snapshots, activations, SNAPSHOT_KEY):
        if to > at:
            interval = most[to] if to == at + 1 else max(most[at + 1 : to + 1])
            if interval + there > largest:
                largest = interval + there
                best = before.at_end, interval, most.index(interval, at + 1)
        reached = to if to > at else at
        concurrent = now[reached] if reached >= 0 else activations.start
        before, (_key, here, _elements, there, _at_end) = snapshot, snapshot
        if here + concurrent > largest:
            largest = here + concurrent
            best = snapshot.at_most, concurrent, reached
        if largest == at_most:
            break
    return PassPeak(largest, *best)


def at_work(job: Job, found: PassPeak, *, backward: bool, detail: Detail) -> tuple[str, list[Line]]:
    """The module at that moment, and what the model has by kind, the largest first; one line where nobody asks."""
    if not detail:
        return "activations", [line("activations", forms.at_work, size=found.activations)]
    module, kinds = job.model.timeline.allocated(
        timeline_request(job),
        job.leaves,
        backward=backward,
        at=found.at,
        size=found.activations,
        named=detail == Detail.EQUATIONS,
    )
    largest_first = sorted(kinds.items(), key=lambda entry: (-entry[1], entry[0]))
    lines = [
        line(name, getattr(forms, name.lower().replace(" ", "_")), size=int(size))._replace(equation=_equation(size))
        for name, size in largest_first
    ]
    return module or "loss", lines


def _equation(size: int) -> str:
    """The equation of a size that remembers how it came about."""
    if type(size) is int:
        return ""
    from zeroplan.autograd.equation import equation

    return equation(size)
