"""The run's first optimizer step beside the later ones: whether its backward may need more (stage 3)."""

from __future__ import annotations

from collections.abc import Sequence

from zeroplan.costs.deepspeed.alive import START, Alive
from zeroplan.costs.deepspeed.events import Held
from zeroplan.costs.deepspeed.fetch import decides_gathers, early_micro_steps, micro_steps
from zeroplan.costs.deepspeed.once import once
from zeroplan.costs.deepspeed.told import Part
from zeroplan.specs.job import Job

More = dict[int, tuple[int, int]]
"""By the number of a visit of backward, elements that the early micro-step has more: at most, and when gradients are
ready."""


def may_need_more(job: Job, number: int, later: Alive, resident: int) -> bool:
    """Whether the early backward of that number, with the later ones' gradients, may have more alive at any event than
    they at most; `resident`: bytes that it comes with, and they do not.

    Gradients that are ready belong to the event that follows.
    """
    more, width = _more(job)[number], job.strategy.element_bytes
    if width * max((max(found) for found in more.values()), default=0) <= resident:
        return False
    most, beside = later.most + resident, 0
    for part in reversed(later.entries.parts()):
        for time in reversed(range(part.times)):
            by = part.by.times(time)
            for entry in reversed(part.events):
                if entry.key == START:
                    return False
                now = beside
                if entry.key >= 0 and (found := more.get(entry.key + by.visits)):
                    now, beside = found
                if entry.most + width * now > most:
                    return True
    return False


@once(decides_gathers)
def _more(job: Job) -> tuple[More, ...]:
    """Of each early micro-step, beside the one that repeats."""
    steady = _by_visit(micro_steps(job).later.backward)
    return tuple(_beyond(steady, _by_visit(early.backward)) for early in early_micro_steps(job))


def _beyond(steady: More, early: More) -> More:
    both = ((at, found, early[at]) for at, found in steady.items() if at in early)
    return {at: (most - before[0], ready - before[1]) for at, before, (most, ready) in both}


def _by_visit(parts: Sequence[Part[Held]]) -> More:
    """Elements at most and when gradients are ready, which are the same in all layers that a part stands for."""
    found: More = {}
    for events, times, by in parts:
        told = [(event.at, (event.most, event.ready)) for event in events]
        for time in range(times):
            found.update([(at + time * by.visits, elements) for at, elements in told])
    return found
