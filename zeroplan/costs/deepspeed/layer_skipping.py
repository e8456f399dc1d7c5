"""Where the coordinator of stage 3 does for one layer what it did for the one before, and so for those that follow.

What it does next follows from its state, the hooks and uses that come, and how far away a tensor's next use is. Where
two identical layers leave the same state behind, offset by a layer, the next identical ones are not replayed.
Persistent parameters that come with a layer, and what autograd keeps of it, are no part of that: nothing depends on
them but the live limit, so they only become more, or fewer, by as much with each layer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from zeroplan.costs.deepspeed.decisions import ReleaseOffset, RepeatedDecisions
from zeroplan.costs.deepspeed.events import EventLog, GatheredMemory
from zeroplan.costs.deepspeed.layer_intervals import LayerInterval, is_all_its_own, layer_offset
from zeroplan.specs.execution import ModuleHook

if TYPE_CHECKING:
    from zeroplan.costs.deepspeed.coordinator import Coordinator


class IntervalState(NamedTuple):
    """What an interval has left behind."""

    interval: LayerInterval
    summary: tuple[int, ...]
    state: Hashable
    """None unless the summary is that of the interval before."""
    persistent: set[int]
    """Those that are there: while they come with their layers, more after each."""
    kept: dict[int, int]
    """By autograd: in forward more after each layer, in backward fewer."""
    elements: int
    """Gathered; and counted against max_live_parameters."""
    live_parameters: int
    logged_gathers: int
    logged: int
    """Length of the event log so far."""


class LayerSkipper:
    """The layers of a micro-step, and how many of them follow from the two before."""

    def __init__(self, coordinator: Coordinator, intervals: Sequence[LayerInterval]) -> None:
        self.coordinator, self.hooks, self.intervals = coordinator, coordinator.hooks, intervals
        self.remembers = coordinator.settings.grad_accum > 1  # else one steady micro-step is replayed, from nothing
        self.persists = [index in coordinator.persistent for index in range(len(coordinator.sizes))]
        self.begin()

    def begin(self) -> None:
        """A micro-step begins."""
        self.reached: IntervalState | None = None
        self.stay = frozenset[int]() if self.coordinator.records else self.coordinator.persistent
        """What is never released: while the trace is recorded, nothing; nothing is gathered ahead or kept then."""

    def skip(self, number: int, log: EventLog[GatheredMemory]) -> int:
        """After the interval of this number: how many more are done, their events added and the state shifted."""
        coordinator = self.coordinator
        if len(coordinator.secondary | coordinator.persistent) < len(
            coordinator.settings.second
        ):  # each layer that is left makes more (hpZ)
            return 0
        before, now = self.reached, self._reach(number, log)
        self.reached = now
        if before is None or now.state is None or before.state != now.state:
            return 0
        hooks, by = self.hooks[now.interval.pass_index], layer_offset(before.interval, now.interval)
        own = is_all_its_own(hooks[before.interval.end : now.interval.end], now.interval.layer, by)
        count = self._count_identical(number) if own else 0
        while (
            count
            and not self.coordinator.records
            and not self._releases_identically(before.interval, now.interval, count)
        ):
            count -= 1
        if before.kept or now.kept:
            count = self._count_keeping(before, now, number, count)
        if count and len(now.persistent) < len(self.stay):
            count = self._count_growing(before, now, number, count)
        if count:
            self._shift(before, now, count, log)
            self.reached = None
        return count

    def _reach(self, number: int, log: EventLog[GatheredMemory]) -> IntervalState:
        coordinator, interval = self.coordinator, self.intervals[number]
        ahead = (
            0
            if coordinator.records
            else len(coordinator.trace) - len(coordinator.queue) - self._uses_before(interval.step)
        )
        there = coordinator.available & self.stay
        grown = (
            (coordinator.gathered, coordinator.live_parameters)
            if len(there) == len(self.stay) and not coordinator.kept
            else (0, 0)
        )
        passing = len(coordinator.available) - len(there)
        summary = (*grown, coordinator.copied, ahead, passing, len(coordinator.flying), interval.layer.like)
        known = (
            self.reached and self.reached.summary == summary and self.reached.interval.pass_index == interval.pass_index
        )
        state = self._state(interval) if known else None
        return IntervalState(
            interval, summary, state, there, dict(coordinator.kept), coordinator.gathered, coordinator.live_parameters,
            len(coordinator.gathers.open), len(log.open),
        )  # fmt: skip

    def _uses_before(self, step: int) -> int:
        return bisect_left(self.coordinator.trace, step, key=lambda use: use[1])

    def _state(self, interval: LayerInterval) -> Hashable:
        """All that the next hooks depend on, as seen from the layer; None while a module is at work on a tensor."""
        coordinator, start = self.coordinator, interval.layer.tensor
        passing = (coordinator.available | coordinator.flying) - self.stay
        if any(coordinator.inside.get(index) for index in passing):
            return None
        return (
            frozenset(index - start for index in coordinator.available - self.stay),
            frozenset(index - start for index in coordinator.flying),
            frozenset((index - start, coordinator.storage[index]) for index in coordinator.storage.keys() - self.stay),
            tuple(
                (frozenset(index - start for index in members), elements) for members, elements in coordinator.buffers
            ),
            frozenset(index - start for index in coordinator.joined_low_precision),
            frozenset(index - start for index in coordinator.views & passing),
            frozenset((index - start, coordinator.recent[index] - coordinator.step) for index in self._ahead(interval)),
        )

    def _ahead(self, interval: LayerInterval) -> list[int]:
        """Tensors that are off the queue before their use."""
        trace = self.coordinator.trace if not self.coordinator.records else []
        return [
            index for index, _used in trace[self._uses_before(interval.step) : len(trace) - len(self.coordinator.queue)]
        ]

    def _count_identical(self, number: int) -> int:
        """How many intervals after this one, and all that is prefetched in them, are the one before it shifted."""
        coordinator, intervals = self.coordinator, self.intervals
        first, last = intervals[number - 1], intervals[number]
        period, shift = last.end - first.end, last.layer.tensor - first.layer.tensor
        identical = 0
        for found in intervals[number + 1 :]:
            before = intervals[number + identical]
            same = found.layer.like == last.layer.like and found.end - before.end == period
            if not same or found.layer.tensor - before.layer.tensor != shift or not self._is_identical(before, found):
                break
            identical += 1
        if coordinator.records:
            return identical
        uses = self._uses_before(last.step) - self._uses_before(first.step)
        head, end = (
            len(coordinator.trace) - len(coordinator.queue),
            self._uses_before(intervals[number + identical].step),
        )
        return max(0, min(identical, (end - head) // uses)) if uses else 0

    def _is_identical(self, one: LayerInterval, other: LayerInterval) -> bool:
        """Their tensors are of the same sizes, and the same of them persistent."""
        coordinator, size = self.coordinator, one.layer.tensors
        start, begin = one.layer.tensor, other.layer.tensor
        return (
            coordinator.sizes[start : start + size] == coordinator.sizes[begin : begin + size]
            and self.persists[start : start + size] == self.persists[begin : begin + size]
        )

    def _releases_identically(self, before: LayerInterval, now: LayerInterval, count: int) -> bool:
        """Whether so many layers keep for reuse what this one did.

        Decisions that were taken in an earlier micro-step are remembered; of new ones the last tells: in forward,
        distances only shrink.
        """
        coordinator, offset = self.coordinator, _stride(before, now)
        for hook, step in self._exits(before, now):
            distances = coordinator.distances(hook)
            for index in hook.tensors:
                later = index + count * offset.tensors, step + count * offset.steps
                if coordinator.is_near(distances.to_next_use(*later)) != coordinator.is_near(
                    distances.to_next_use(index, step)
                ):
                    return False
            if self.remembers and not coordinator.decisions.are_repeated((hook.module, step), offset, count):
                return False
        return True

    def _count_growing(self, before: IntervalState, now: IntervalState, number: int, count: int) -> int:
        """For how many layers, of so many, persistent parameters come as they came with this one, and the live limit
        decides with them as it did before.
        """
        coordinator, shift = self.coordinator, now.interval.layer.tensor - before.interval.layer.tensor
        for layer, interval in enumerate(self.intervals[number : number + count]):
            start, size = interval.layer.tensor, interval.layer.tensors
            own = self.stay.intersection(range(start, start + size))
            if any((index in before.persistent) != (index + shift in now.persistent) for index in own):
                count = layer
                break
        return coordinator.live.grows(now.live_parameters - before.live_parameters, count)

    def _count_keeping(self, before: IntervalState, now: IntervalState, number: int, count: int) -> int:
        """For how many layers, of so many, autograd keeps what it kept of this one as that began."""
        own = _within(now.interval, before.kept)
        for layer, interval in enumerate(self.intervals[number + 1 : number + 1 + count]):
            if _within(interval, now.kept) != own:
                return layer
        return count

    def _exits(self, before: LayerInterval, now: LayerInterval) -> Iterator[tuple[ModuleHook, int]]:
        """Where tensors are released: the hook, and the coordinator's step."""
        step = before.step
        for hook in self.hooks[now.pass_index][before.end : now.end]:
            step += hook.enters
            if hook.tensors and not hook.enters:
                yield hook, step

    def _shift(self, before: IntervalState, now: IntervalState, count: int, log: EventLog[GatheredMemory]) -> None:
        """Events of so many layers, and the state that the last of them leaves."""
        coordinator = self.coordinator
        steps = now.interval.step - before.interval.step
        identical = layer_offset(before.interval, now.interval)
        ahead = [(index, coordinator.recent[index]) for index in self._ahead(now.interval)]
        coordinator.gathers.repeat(before.logged_gathers, count, identical)
        grown = now.elements - before.elements
        log.repeat(before.logged, count, identical._replace(more=(grown,)) if grown else identical)
        if self.remembers and not coordinator.records:
            self._remember(before.interval, now.interval, count)
        by = count * identical.tensors
        coordinator.available = {index if index in self.stay else index + by for index in coordinator.available}
        coordinator.flying = {index + by for index in coordinator.flying}
        coordinator.storage = {
            index if index in self.stay else index + by: size for index, size in coordinator.storage.items()
        }
        coordinator.buffers = [
            ({index + by for index in members}, elements) for members, elements in coordinator.buffers
        ]
        coordinator.joined_low_precision = {index + by for index in coordinator.joined_low_precision}
        coordinator.views = {index + by for index in coordinator.views}
        self._come(now.persistent - before.persistent, identical.tensors, count)
        self._keep(before.kept, now.kept, identical.tensors, count)
        coordinator.gathered += count * grown
        coordinator.live_parameters += count * (now.live_parameters - before.live_parameters)
        if coordinator.records:
            return
        coordinator.recent.update({index + by: used + count * steps for index, used in ahead})
        for _use in range(count * (self._uses_before(now.interval.step) - self._uses_before(before.interval.step))):
            coordinator.queue.popleft()
        coordinator.step += count * steps

    def _come(self, persistent: set[int], shift: int, count: int) -> None:
        """Persistent parameters of so many layers, as those of the last one came."""
        coordinator = self.coordinator
        for layer in range(1, count + 1) if persistent else ():
            coordinator.available.update([index + layer * shift for index in persistent])
            coordinator.storage.update(
                {
                    index + layer * shift: coordinator.storage[index]
                    for index in persistent
                    if index in coordinator.storage
                }
            )

    def _keep(self, before: dict[int, int], now: dict[int, int], shift: int, count: int) -> None:
        """What autograd keeps after so many layers, as the last one changed it."""
        kept = self.coordinator.kept
        for layer in range(1, count + 1) if before != now else ():
            kept.update({index + layer * shift: now[index] for index in now.keys() - before.keys()})
            for index in before.keys() - now.keys():
                del kept[index + layer * shift]

    def _remember(self, before: LayerInterval, now: LayerInterval, count: int) -> None:
        """What the layers that are not replayed release."""
        coordinator, marks = self.coordinator, [(hook.module, step) for hook, step in self._exits(before, now)]
        decided = {mark: coordinator.decisions[mark] for mark in marks}
        coordinator.decisions.take_repeated(RepeatedDecisions(now.layer.module, _stride(before, now), count, decided))


def _stride(one: LayerInterval, other: LayerInterval) -> ReleaseOffset:
    by = layer_offset(one, other)
    return ReleaseOffset(by.modules, other.step - one.step, by.tensors)


def _within(interval: LayerInterval, kept: dict[int, int]) -> dict[int, int]:
    """What autograd keeps of a layer's tensors, by their place in it."""
    start, size = interval.layer.tensor, interval.layer.tensors
    return {index - start: elements for index, elements in kept.items() if start <= index < start + size}
