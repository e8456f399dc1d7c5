"""One strategy, counted and timed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from math import inf

from zeroplan.clock import Speed, StepTime
from zeroplan.costs.engines import engine_of
from zeroplan.costs.ledger import tiers, tiers_within, with_moved
from zeroplan.costs.timing import is_timed
from zeroplan.costs.timing.computing import computing
from zeroplan.costs.timing.step import software_of, step_time
from zeroplan.errors import ContradictionError
from zeroplan.fit import Fit, fit, gpu_limit
from zeroplan.ledger import Detail, Ledger, Tier, Tiers
from zeroplan.search.room import fits_beside_gpu, fits_by_bound, fits_gathered
from zeroplan.search.space import Configuration
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Strategy


@dataclass(frozen=True, eq=False)
class Candidate:
    """One strategy, what it needs, whether that is there, and how long a step takes."""

    job: Job
    held: Tiers
    fit: Fit

    @cached_property
    def ledger(self) -> Ledger:
        """What it moves too: of most that are counted nobody reads that."""
        return with_moved(self.job, self.held)

    @cached_property
    def time(self) -> StepTime:
        """The terms of a step."""
        return step_time(self.job, self.ledger)

    @property
    def strategy(self) -> Strategy:
        return self.job.strategy

    @property
    def sequences(self) -> int:
        """That a GPU sees in a step."""
        return self.strategy.micro_batch * self.strategy.micro_steps

    @property
    def throughput(self) -> float:
        """Sequences per second over all GPUs."""
        return self.sequences * self.job.ranks / self.time.total

    @property
    def speed(self) -> Speed | None:
        """The speed of the step; None where no clock is known."""
        from zeroplan.costs.timing.speed import speed_of  # for a screen, which a search has no need of

        return speed_of(self.job, self.time) if is_timed(self.job) else None


class Evaluator:
    """Counts and times strategies of one request, keeping `reserve` of each card free."""

    def __init__(self, reserve: float | None) -> None:
        self.reserve = reserve
        self.seconds: dict[Strategy, float] = {}
        self.candidates: dict[Strategy, Candidate | None] = {}
        """By the strategies whose lower bounds have room: the candidate, or None where the exact count does not fit."""

    def timed(self, job: Job) -> float:
        """Seconds of a step; without end where DeepSpeed stops in training (too few buffers for NVMe)."""
        key = job.strategy
        if key not in self.seconds:
            try:
                self.seconds[key] = rounded(timed(job))
            except ContradictionError:
                self.seconds[key] = inf
        return self.seconds[key]

    def evaluate(self, job: Job) -> Candidate | None:
        """Count it in full; None where DeepSpeed refuses it or stops."""
        try:
            return evaluate(job, self.reserve)
        except ContradictionError:
            return None

    def fitting(self, job: Job) -> Candidate | None:
        """Count it once, as far as it fits; None where it does not, or DeepSpeed refuses it or stops."""
        key = job.strategy
        if key not in self.candidates:
            if not self.may_fit(job):
                return None
            try:
                self.candidates[key] = fitting(job, self.reserve)
            except ContradictionError:
                self.candidates[key] = None
        return self.candidates[key]

    def has_room(self, job: Job) -> bool:
        """Whether there is room for what is counted most easily."""
        return fits_beside_gpu(job, self.reserve) and fits_by_bound(job, self.reserve)

    def may_fit(self, job: Job) -> bool:
        """Whether there is room for that, and for what is gathered."""
        return self.has_room(job) and fits_gathered(job, self.reserve)

    def lean(self, configuration: Configuration) -> list[Candidate]:
        """What may need least of the GPU, whether it fits or not; where the host alone is short, what fits with less
        there.
        """
        candidates = [one for job in configuration.lean() if (one := self.evaluate(job))]
        if candidates and candidates[0].fit.gpu_accepted and not any(one.fit.accepted for one in candidates):
            return self._with_less_on_host(configuration) or candidates
        return candidates

    def lean_fitting(self, configuration: Configuration) -> Iterator[Candidate]:
        """Those of them that fit."""
        fitting = filter(None, map(self.fitting, configuration.lean()))
        first = next(fitting, None)
        return chain([first], fitting) if first else iter(self._with_less_on_host(configuration))

    def first_lean(self, configuration: Configuration) -> Candidate | None:
        """The first of those, the leanest between steps; None where none fits."""
        return next(self.lean_fitting(configuration), None)

    def _with_less_on_host(self, configuration: Configuration) -> list[Candidate]:
        """What needs least of the GPU of what leaves the host room, where that fits: the rest is on the GPU."""
        least = configuration.minimum_memory
        if fits_beside_gpu(least, self.reserve):
            return []
        lighter = configuration.with_less_on_host(least)
        first = next((job for job in lighter if fits_beside_gpu(job, self.reserve)), None)
        candidate = self.fitting(first) if first else None
        return [candidate] if candidate else []


def rounded(seconds: float) -> float:
    """To twelve digits: those behind say in which order terms were added."""
    return float(f"{seconds:.12g}")


def evaluate(job: Job, reserve: float | None) -> Candidate:
    """Count one job, keeping `reserve` of each card free."""
    job = engine_of(job).completed(job)
    held = tiers(job, detail=Detail.WHOLE)
    return Candidate(job, held, fit(job, held, reserve=reserve))


def fitting(job: Job, reserve: float | None) -> Candidate | None:
    """Count one job, keeping `reserve` of each card free; None where it does not fit, as soon as that is known."""
    job = engine_of(job).completed(job)
    held = tiers_within(job, gpu_limit(job, reserve))
    if held is None:
        return None
    candidate = Candidate(job, held, fit(job, held, reserve=reserve))
    return candidate if candidate.fit.accepted else None


def passes_seconds(job: Job, *, traced: bool = True) -> float:
    """Seconds of the passes of a step, without traffic, offload and update; not `traced`: without what of forward
    checkpointing runs again.
    """
    alone = computing(job, software_of(job), traced=traced)
    return job.strategy.micro_steps * (alone.forward.seconds + alone.backward.seconds)


def timed(job: Job) -> float:
    """Seconds of a step, from what is moved alone: no memory is counted."""
    job = engine_of(job).completed(job)
    return step_time(job, with_moved(job, Tiers(Tier()))).total
