"""The course of a step on one GPU: allocated bytes moment by moment, as the ledger's peaks are the largest of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from zeroplan.costs.allocations import PassProfile
from zeroplan.costs.engines import engine_of
from zeroplan.costs.ledger import ledger
from zeroplan.costs.passes import intervals_reached, timeline_of, timeline_request
from zeroplan.formulas.transient import token_ids
from zeroplan.ledger import Detail, Line, Moment, is_activation, total
from zeroplan.specs.execution import PassTimeline
from zeroplan.specs.job import Job


class Instant(NamedTuple):
    """Bytes in one interval of a step, at most."""

    phase: str
    """init, forward, backward or step."""
    place: str
    """The module at work, by its path, or what else happens."""
    held: int
    """Bytes held between steps."""
    beside: int
    """DeepSpeed's own bytes beside that: gradients, gathered parameters, copies."""
    activations: int
    """Bytes of activations."""

    @property
    def bytes(self) -> int:
        return self.held + self.beside + self.activations


def step_timeline(job: Job) -> list[Instant]:
    """Initialize, the last micro-step of a later optimizer step, and its update, in order."""
    return [*_moments(job, ("init",)), *_passes(job), *_moments(job, ("step",))]


def _moments(job: Job, phases: Sequence[str]) -> Iterator[Instant]:
    tier = ledger(job, detail=Detail.WHOLE).gpu
    resident = {id(entry) for entry in tier.resident}
    for moment in tier.moments:
        if moment.phase in phases:
            yield _instant(moment, resident)


def _instant(moment: Moment, resident: set[int]) -> Instant:
    held = total(entry for entry in moment.lines if id(entry) in resident)
    activations = total(entry for entry in moment.lines if is_activation(entry))
    return Instant(moment.phase, moment.place, held, total(moment.lines) - held - activations, activations)


def _passes(job: Job) -> Iterator[Instant]:
    """Forward and backward, interval by interval; only their largest moments where no timeline is."""
    timeline = timeline_of(job)
    if timeline is None:
        yield from _moments(job, ("forward", "backward"))
        return
    engine = engine_of(job)
    phase_memory, held, ids = engine.phase_memory(job), total(engine.resident(job)), token_ids(job.tokens)
    for phase, model, profile, still in (
        ("forward", timeline.forward, phase_memory.forward_pass, phase_memory.forward),
        ("backward", timeline.backward, phase_memory.backward_pass, phase_memory.loss),
    ):
        places = job.model.profile.places(timeline_request(job), job.leaves, backward=phase == "backward")
        for at, concurrent, activations in _aligned(model, profile, still):
            yield Instant(phase, places[at] or "loss", held, concurrent + ids, activations)


def _aligned(
    model: PassTimeline, profile: PassProfile | None, still: tuple[Line, ...]
) -> Iterator[tuple[int, int, int]]:
    """Each interval with DeepSpeed's bytes and the model's, and each of DeepSpeed's events that has more."""
    if profile is None:
        yield from ((at, total(still), most) for at, most in enumerate(model.most))
        return
    snapshots = profile.snapshots
    last = snapshots.passes[-1]
    own = slice(last.start, last.stop)
    concurrent, at, before = total(profile.concurrent), -1, snapshots.now[last.start]
    reached = intervals_reached(snapshots.keys[own], model)
    for to, most, now in zip(reached, snapshots.most[own], snapshots.now[own], strict=True):
        for interval in range(at + 1, to + 1):
            yield interval, concurrent + before, model.most[interval]
        at, before = to, now
        here = max(at, 0)
        if most > now:
            yield here, concurrent + most, model.now[here]
