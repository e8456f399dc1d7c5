"""The best strategy of a space: each configuration that may win is counted and timed, and the best ones are refined.

Configurations come in the order of a lower bound of what is minimised (`queue`); once that is above the best nothing
else can win. They are evaluated exactly with a few numbers each, and the numbers of the best ones are changed as long
as that helps (`refinement`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from math import inf
from typing import NamedTuple

from zeroplan.search.candidate import Candidate, Evaluator
from zeroplan.search.queue import ConfigurationQueue, families
from zeroplan.search.refinement import GAIN, Contender, Refinement
from zeroplan.search.space import Configuration, Space
from zeroplan.specs.job import Job
from zeroplan.specs.objective import FASTEST, LEAST_MEMORY

REFINED = 3
"""The best configurations, whose numbers are refined."""
NEAR = 1.05
"""Of the best's seconds, up to which others are looked at closer: refined, they may overtake it."""


class SearchSummary(NamedTuple):
    """What a search came to."""

    best: Candidate | None
    strategies: int = 0
    """The space's; its configurations, those without room for what they hold and their activations, and those counted
    and timed."""
    configurations: int = 0
    without_room: int = 0
    evaluated: int = 0


class Search:
    """Search one space for one objective."""

    def __init__(self, space: Space, reserve: float | None, objective: str, below: float = inf) -> None:
        self.space, self.objective, self.evaluator, self.below = space, objective, Evaluator(reserve), below
        self.timed, self.fitting = self.evaluator.timed, self.evaluator.fitting
        self.queue = ConfigurationQueue(space, self.evaluator, objective, below)
        self.refinement = Refinement(self.evaluator, objective)
        self.order = self.refinement.order

    def run(self) -> Contender | None:
        """The best of all; None where nothing fits."""
        entries: list[tuple[Contender, float]] = []
        best: Contender | None = None
        for least, configuration in self.queue:
            if entry := self._first(configuration, best, least):
                entries.append((entry, least))
                best = min(best or entry, entry, key=self.order)
                self.queue.limit = min(self.below, self._limit(best))
            self.queue.failed = self.queue.failed + 1 if best is None else 0
        if best is None:
            return None
        best = self._best_refined(best, entries)
        if self.objective == LEAST_MEMORY:
            best = self.refinement.refined(self.refinement.leaner(best))
        return self.refinement.simplest(best)

    def finds_any(self) -> bool:
        """Whether any configuration fits with the numbers that need least, and of each family with most layers that
        run again.
        """
        leanest = sorted((family[0] for family in families(self.space)), key=self.queue.held)
        return any(self.queue.has_room(one) and self.evaluator.first_lean(one) for one in leanest)

    def _best_refined(self, first: Contender, entries: list[tuple[Contender, float]]) -> Contender:
        """The best once the numbers of a few are refined: the first's, then those of what has the lowest bounds."""
        near = [(entry, least) for entry, least in entries if entry is not first and self._may_overtake(entry, first)]
        best = self.refinement.descended(first) if first.seconds < NEAR * self.below else first
        for entry, least in near[: REFINED - 1]:
            if self._may_overtake(entry, best) and least <= self._limit(best):
                best = min(best, self.refinement.descended(entry), key=self.order)
        return self.refinement.refined(best) if best.seconds < NEAR * self.below else best

    def _may_overtake(self, entry: Contender, best: Contender) -> bool:
        """Whether it may be better than the best once its numbers are refined."""
        if self.objective == LEAST_MEMORY:
            return entry.candidate.fit.gpu.needed <= best.candidate.fit.gpu.needed
        return entry.seconds < NEAR * min(best.seconds, self.below)

    def _limit(self, best: Contender) -> float:
        """What is worth looking at: bytes are exact, seconds are not known to the last."""
        return self.order(best)[0] if self.objective == LEAST_MEMORY else (1 - GAIN) * best.seconds

    def _first(self, configuration: Configuration, best: Contender | None, least: float) -> Contender | None:
        """Where its numbers may be refined from: the fastest that fits of a few that come near the best; else None.

        `least`: what it takes with the fastest numbers; no more are tried once it takes hardly longer.
        """
        if self.objective == LEAST_MEMORY:
            return self._leanest(configuration)
        if self.queue.failed and not self.evaluator.first_lean(configuration):
            return None
        if one := self.fitting(min(self.queue.fast(configuration), key=self.timed)):
            return Contender(one, configuration)
        lean = self.evaluator.first_lean(configuration) if best is None else None
        if best is None and lean is None:
            return None
        entry = Contender(lean, configuration) if lean else None
        near = NEAR * min(self.below, best.seconds if best else inf)
        for jobs, monotone in self._starts(configuration, near):
            if entry and self._limit(entry) <= least:
                break
            limit = min(near, entry.seconds if entry else inf)
            if one := self._fastest_fitting(jobs, limit, monotone=monotone, is_first=best is None):
                entry = Contender(one, configuration)
        return entry

    def _starts(self, configuration: Configuration, limit: float) -> Iterator[tuple[list[Job], bool]]:
        """Rows from which refining its numbers may begin, and whether each of a row needs no more than the one before.

        Not those of which what needs least below that limit does not fit.
        """
        for rows, monotone in configuration.starts():
            if not monotone or self._any_may_fit(rows, limit):
                yield from ((jobs, monotone) for jobs in rows)

    def _any_may_fit(self, rows: list[list[Job]], limit: float) -> bool:
        """Whether any below that limit may fit, where each needs no more than those before it and above."""
        first, last = rows[0], rows[-1]
        if not self.evaluator.has_room(last[-1]):  # which takes no seconds
            return False
        leanest = self._leanest_below(first, limit)
        return leanest is not None and self.evaluator.may_fit(last[leanest])

    def _leanest_below(self, jobs: list[Job], limit: float) -> int | None:
        """The place of the last that is faster than that limit."""
        return next((at for at in reversed(range(len(jobs))) if self.timed(jobs[at]) < limit), None)

    def _leanest(self, configuration: Configuration) -> Contender | None:
        """What needs least of those that fit."""
        fitting = [*self.evaluator.lean_fitting(configuration)]
        least = min((one.fit.gpu.needed for one in fitting), default=0)
        equals = [Contender(one, configuration) for one in fitting if one.fit.gpu.needed == least]
        return min(equals, key=self.order, default=None)

    def _fastest_fitting(
        self, jobs: list[Job], limit: float, *, monotone: bool, is_first: bool
    ) -> Candidate | None:  # fmt: skip
        """The fastest below that limit that fits; `monotone`: the first, for each needs no more than the one before.

        `is_first`: of the first configuration that fits, whose fastest numbers often do too.
        """
        if not monotone:
            near = [job for job in jobs if self.timed(job) < limit]
            return next(filter(None, map(self.fitting, sorted(near, key=self.timed))), None)
        if is_first and self.timed(jobs[0]) < limit and (one := self.fitting(jobs[0])):
            return one
        leanest = self._leanest_below(jobs, limit)
        if leanest is None or not self.fitting(jobs[leanest]):
            return None
        first = bisect_left(jobs, True, hi=leanest, key=lambda job: self.fitting(job) is not None)
        return self.fitting(next(job for job in jobs[first:] if self.timed(job) < limit))


def best(space: Space, reserve: float | None, objective: str = FASTEST, below: float = inf) -> SearchSummary:
    """The fastest strategy of a space that fits, keeping `reserve` of each card free, or the one that needs least.

    `below`: seconds of a step above which none is of use: nothing slower is looked for, though one may be returned.
    """
    search = Search(space, reserve, objective, below)
    entry = search.run()
    configurations, evaluated = len(space.variants) * len(space.sizes), len(search.evaluator.candidates)
    fastest_or_leanest = entry.candidate if entry else None
    return SearchSummary(fastest_or_leanest, space.size, configurations, search.queue.without_room, evaluated)


def fits_any(space: Space, reserve: float | None) -> bool:
    """Whether any strategy of a space fits, those first that may need least."""
    return Search(space, reserve, LEAST_MEMORY).finds_any()
