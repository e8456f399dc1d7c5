"""The run's first optimizer step beside the later ones: whether its backward may need more (stage 3)."""

from __future__ import annotations

from collections.abc import Sequence

from zeroplan.costs.deepspeed.allocation_tracker import START, AllocationTracker
from zeroplan.costs.deepspeed.cache import cached
from zeroplan.costs.deepspeed.event_log import RepeatedBlock, extreme_events
from zeroplan.costs.deepspeed.events import GatheredMemory
from zeroplan.costs.deepspeed.fetch import first_step_micro_steps, gathers_key, micro_steps
from zeroplan.costs.deepspeed.partitions import persistent_elements
from zeroplan.specs.job import Job

More = dict[int, tuple[int, int]]
"""By the number of a hook of backward, elements that the early micro-step has more: at most, and when gradients are
ready."""


def may_need_more(job: Job, number: int, later: AllocationTracker) -> bool:
    """Whether the early backward of that number, with the later ones' gradients, may have more alive at any event than
    they at most, and the persistent parameters, which it comes with.

    Gradients that are ready belong to the event that follows.
    """
    more, width = _more(job)[number], job.strategy.element_bytes
    if not _may_gather_more(job, number):
        return False
    if surely_needs_more(job) == number:
        return True
    most, concurrent = later.most + width * persistent_elements(job), 0
    for block in reversed(later.snapshots.blocks()):
        for time in reversed(range(block.times)):
            by = block.offset.times(time)
            grown = by.more[0] if by.more else 0
            for snapshot in reversed(block.events):
                if snapshot.key == START:
                    return False
                now = concurrent
                if snapshot.key >= 0 and (found := more.get(snapshot.key + by.hooks)):
                    now, concurrent = found
                if snapshot.most + grown + width * now > most:
                    return True
    return False


@cached(gathers_key)
def surely_needs_more(job: Job) -> int | None:
    """The number of the early micro-step in whose backward more is gathered than ever later, where no other may need
    more: then it is looked at.
    """
    first_step = first_step_micro_steps(job)
    others = [number for number in range(len(first_step)) if _may_gather_more(job, number)]
    if len(others) != 1:
        return None
    both = micro_steps(job).later, first_step[others[0]]
    steady, result = (max(event.most for event in extreme_events(one.backward)) for one in both)
    return others[0] if result > steady + persistent_elements(job) else None


def _may_gather_more(job: Job, number: int) -> bool:
    """At any event, beyond the persistent parameters that it comes with."""
    most = max((max(found) for found in _more(job)[number].values()), default=0)
    return most > persistent_elements(job)


@cached(gathers_key)
def _more(job: Job) -> tuple[More, ...]:
    """What each micro-step of the first optimizer step gathers more than the one that repeats."""
    steady = _by_hook(micro_steps(job).later.backward)
    return tuple(_beyond(steady, _by_hook(first_step.backward)) for first_step in first_step_micro_steps(job))


def _beyond(steady: More, first_step: More) -> More:
    both = ((at, found, first_step[at]) for at, found in steady.items() if at in first_step)
    return {at: (most - before[0], ready - before[1]) for at, before, (most, ready) in both}


def _by_hook(blocks: Sequence[RepeatedBlock[GatheredMemory]]) -> More:
    """Elements at most and when gradients are ready."""
    result: More = {}
    for events, times, by in blocks:
        log, grown = [(event.at, event.most, event.ready) for event in events], sum(by.more)
        for time in range(times):
            more = time * grown
            result.update([(at + time * by.hooks, (most + more, ready + more)) for at, most, ready in log])
    return result
