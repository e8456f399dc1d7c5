"""What `recommend` comes to: a plan, what the others lost by, and its ds_config.json."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from zeroplan.errors import ContradictionError
from zeroplan.fit import DOES_NOT_FIT
from zeroplan.ledger import Detail
from zeroplan.outcome import Outcome, outcome
from zeroplan.plan import Plan, Rejected, Suggestion
from zeroplan.report.depth import BRIEF, EVERYTHING, QUIET
from zeroplan.results.result import Result
from zeroplan.search import Candidate
from zeroplan.specs.headroom import Headroom
from zeroplan.specs.job import Job
from zeroplan.specs.scope import Scope, scope
from zeroplan.specs.target import known_target

if TYPE_CHECKING:
    from rich.console import RenderableType

    from zeroplan.emit.folder import WrittenFiles
    from zeroplan.report.rendered import Screen
    from zeroplan.schema import recommend as schema
    from zeroplan.sizing import Fewest
    from zeroplan.training import TrainingRun
    from zeroplan.why import Why


class Alternative(NamedTuple):
    """A neighbour of the plan, or what is nearest to fitting: what it changes, and why it lost."""

    change: str
    reason: str
    outcome: Outcome


class WayOut(NamedTuple):
    """A single change after which something fits."""

    change: str
    outcome: Outcome


class Recommendation(Result):
    """The fastest strategy that fits, or what would."""

    target = "hf"
    """Who reads the config, as --for has them."""
    written: WrittenFiles | None = None
    """What was written, where anything was."""

    stated: Mapping[str, Any] | None = None
    """The options that it is of, where these ask for one plan."""

    in_time: Fewest | None = None
    """Where the deadline is missed, the fewest GPUs that make it."""

    cards: Mapping[str, Outcome | None] = MappingProxyType({})
    """Each card's plan where there are several, None where nothing fits; `plan` is that of the fastest per GPU."""

    front: tuple[Outcome, ...] = ()
    """With objective pareto the plans from the fastest, which is `plan`, to the leanest."""

    def __init__(
        self,
        job: Job,
        search_result: Plan,
        assumed: tuple[str, ...],
        given: dict[str, Any] | None = None,
        fewest: Fewest | None = None,
        *,
        why: tuple[Why, ...] = (),
        headroom: Headroom | None = None,
        run: TrainingRun | None = None,
        flash: Rejected | None = None,
        coded: Rejected | None = None,
        equations: bool = False,
        other_stage: Why | None = None,
        ways: Callable[[], tuple[Suggestion, ...]] = tuple,
    ) -> None:
        self.assumed = assumed
        """What nobody stated."""
        self.job, self.search_result, self.given, self.fewest = job, search_result, given, fewest
        self.run = run
        """The whole training run, where its tokens or a price were said."""
        self._flash, self._coded, self._equations = flash, coded, equations
        self._ways = ways
        """Works out what would fit, where nothing does with room to spare."""
        self._other_stage = other_stage
        """Where adapters train, why the plan does not divide the frozen weights, or does."""
        self.headroom = headroom
        """What of each card is kept free."""
        self.why = why
        """What each alternative that was asked after comes to, as `why=` had them."""

    @cached_property
    def plan(self) -> Outcome | None:
        """The numbers of the plan; None when nothing fits."""
        return numbers(self.search_result.chosen) if self.search_result.chosen else None

    @cached_property
    def rejected(self) -> tuple[Alternative, ...]:
        lost = self.search_result.rejected
        return tuple(Alternative(one.change, one.reason, numbers(one.candidate)) for one in lost)

    @cached_property
    def suggestions(self) -> tuple[Suggestion, ...]:
        """What would fit, with plans: searched for where somebody reads it, for that takes as long as the plan."""
        return self._ways()

    @cached_property
    def ways_out(self) -> tuple[WayOut, ...]:
        return tuple(WayOut(way.change, numbers(way.candidate)) for way in self.suggestions)

    @property
    def verdict(self) -> str | None:
        """The plan's; `does_not_fit` where there is none, or none that ends before the deadline."""
        if self.search_result.chosen is None or not (self.run is None or self.run.in_time):
            return DOES_NOT_FIT
        return self.search_result.chosen.fit.verdict

    @property
    def scope(self) -> Scope:
        """The job that the numbers are of."""
        return scope([self.job.model], self.job.workload.seq)

    def ds_config(self, target: str | None = None) -> dict[str, Any]:
        """The plan's ds_config.json, for `target` as --for has them.

        Raises `ContradictionError` when nothing fits, `QuantityError` for another target.
        """
        from zeroplan.deepspeed.write import ds_config

        return ds_config(self._chosen().job, known_target(target or self.target), self.given)

    def _chosen(self) -> Candidate:
        if self.search_result.chosen is None or self.verdict == DOES_NOT_FIT:
            raise ContradictionError(f"no plan to write: {self.answer}")
        return self.search_result.chosen

    def write(self, path: str | os.PathLike[str], *, target: str | None = None, force: bool = False) -> None:
        """Write the plan's ds_config.json, whole or not at all; an existing file stays unless `force`.

        For `accelerate` its YAML, with the ds_config.json beside it.
        """
        from zeroplan.emit.folder import write_alone

        to = known_target(target or self.target)
        write_alone(self._chosen().job, to, os.fspath(path), given=self.given, force=force)

    def screen(self, level: int = BRIEF) -> Screen:
        from zeroplan.report import recommend as report
        from zeroplan.report.rendered import Screen
        from zeroplan.report.subject import scope_lines

        quiet, outside = level == QUIET, self.outside
        summary = report.summary(self.job, self.search_result, self.run)
        if self.fewest:
            from zeroplan.report.sizing import fewest

            summary.append(f" {fewest(self.fewest, self.search_result.chosen)}")
        if self.in_time:
            from zeroplan.report.training import in_time

            summary.append(f" {in_time(self.in_time)}")
        head = [*scope_lines(self.scope, quiet=quiet), *self._reasons(quiet=quiet)]
        if level == BRIEF:
            from zeroplan.report.brief import recommend as brief
            from zeroplan.report.brief.lines import within

            body, tail = brief.details(
                self.search_result, self.assumed, self.typed, target=self.target, given=self.given,
                written=self.written, run=self.run, outside=outside, in_time=self.in_time,
                other_stage=self._other_stage, ways=self.suggestions if self.search_result.chosen is None else (),
            )  # fmt: skip
            return Screen(summary, within(summary, head, [] if self.why else body, tail[-2:-1] if self.why else tail))
        shown = [] if quiet else report.details(
            self.search_result, self.assumed, self.target, self.given, self.written, self.run, outside,
            self._other_stage, self.suggestions,
        )  # fmt: skip
        if level == EVERYTHING and self.search_result.chosen:
            from zeroplan.costs.ledger import ledger
            from zeroplan.report.estimate import every_line

            shown += every_line(ledger(self.search_result.chosen.job, detail=Detail.EQUATIONS))
        return Screen(summary, [*head, *shown])

    def _in_full(self, chosen: Candidate) -> Candidate:
        """The plan with the equation of each line, where --json has them."""
        if not self._equations:
            return chosen
        from zeroplan.costs.ledger import tiers

        return replace(chosen, held=tiers(chosen.job, detail=Detail.EQUATIONS))

    @property
    def outside(self) -> list[Rejected]:
        """What another package, or lines of code in the training script, would gain."""
        return [one for one in (self._flash, self._coded) if one]

    def _reasons(self, *, quiet: bool) -> list[RenderableType]:
        if not self.why:
            return []
        from zeroplan.report import why as report

        parts: list[RenderableType] = []
        for one in self.why:
            below = [] if quiet else report.details(one, self.search_result.chosen)
            parts += [*[""] * (not quiet), report.summary(one), *below]
        return parts

    def content(self) -> schema.RecommendDocument:
        """`plan` (or null), `rejected` with what each changes and why it lost, `searched`, `ways_out`."""
        from zeroplan.report import json_objects, json_plan
        from zeroplan.schema import recommend as schema

        result = self.search_result
        return schema.PlanDocument(
            scope=json_objects.scope_object(self.scope),
            plan=json_plan.entry(self._in_full(result.chosen)) if result.chosen else None,
            rejected=[json_plan.rejected(rejected) for rejected in result.rejected],
            searched=json_plan.searched(result.searched),
            ways_out=[json_plan.way_out(way) for way in self.suggestions],
            assumed=self.assumed,
            kept_free=json_objects.kept_free(self.headroom, self.job.cluster.capacity),
            flash_attention_2=json_plan.rejected(self._flash) if self._flash else None,
            with_code=json_plan.rejected(self._coded) if self._coded else None,
            fewest=json_plan.fewest(self.fewest) if self.fewest else None,
            run=json_plan.training_run(self.run) if self.run else None,
            in_time=json_plan.fewest(self.in_time) if self.in_time else None,
            why=[json_plan.why(one) for one in self.why] or None,
        )


def numbers(candidate: Candidate) -> Outcome:
    """A strategy of the search in plain numbers."""
    return outcome(candidate.job, candidate.ledger, candidate.fit, candidate.speed)
