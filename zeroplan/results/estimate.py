"""What `estimate` comes to: one strategy, or ZeRO 0-3 side by side."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from zeroplan.costs.ledger import ACCOUNTINGS, ledger
from zeroplan.costs.timing import is_timed
from zeroplan.errors import ContradictionError, QuantityError, shown
from zeroplan.fit import Fit, fit
from zeroplan.ledger import Detail, Ledger
from zeroplan.report.depth import BRIEF, EVERYTHING, QUIET, TABLES
from zeroplan.request.options import Options
from zeroplan.request.request import read_request
from zeroplan.results.result import Result, best
from zeroplan.specs.job import Job
from zeroplan.specs.scope import Scope

if TYPE_CHECKING:
    from rich.console import RenderableType

    from zeroplan.clock import Speed
    from zeroplan.outcome import Outcome
    from zeroplan.report import estimate as report
    from zeroplan.report.rendered import Screen
    from zeroplan.schema.estimate import EstimateDocument
    from zeroplan.schema.step_time import TimelineMoment
    from zeroplan.specs.headroom import Headroom


class Estimate(Result):
    """Memory per GPU and traffic of each stage that was asked for."""

    def __init__(
        self, jobs: list[Job], assumed: tuple[str, ...], scope: Scope, *, accounting: str, one: bool,
        timeline: bool = False, headroom: Headroom | None = None,
    ) -> None:  # fmt: skip
        self.assumed = assumed
        """What nobody stated."""
        self.scope = scope
        """The job that the numbers are of; with `unplanned` only what GPUs hold between steps is."""
        self.accounting = accounting
        """Whose bytes the numbers are: DeepSpeed's, or the ZeRO paper's."""
        self._jobs, self._one, self._timeline = jobs, one, timeline
        self.headroom = headroom
        """What of each card is kept free; None: nothing."""

    @cached_property
    def stages(self) -> dict[int, Outcome]:
        """The numbers of each ZeRO stage that was asked for."""
        from zeroplan.outcome import outcome

        parts = zip(self._jobs, self._ledgers, self._fits, self._speeds, strict=True)
        return {job.strategy.stage: outcome(job, counted, verdict, timed) for job, counted, verdict, timed in parts}

    @property
    def strategy(self) -> Outcome:
        """The numbers of the stage, where one alone was asked for. Raises `ContradictionError`."""
        if len(self.stages) > 1:
            kept = ", ".join(map(str, self.stages))
            raise ContradictionError(f"stages {kept} were estimated: write .stages[3], or ask for one, as in stage=3")
        return next(iter(self.stages.values()))

    @property
    def verdict(self) -> str | None:
        return best(counted.verdict for counted in self._fits)

    def count(self) -> None:
        """All numbers now, and not when they are asked for."""
        assert self._fits
        assert self._speeds

    def screen(self, level: int = BRIEF) -> Screen:
        from zeroplan.report import console
        from zeroplan.report import estimate as report
        from zeroplan.report.rendered import Screen
        from zeroplan.report.subject import scope_lines

        estimates, quiet = self._estimates, level == QUIET
        if self.scope.unplanned:
            held = [] if quiet else report.held_details(estimates, self.assumed)
            return Screen(report.held_summary(estimates), [*scope_lines(self.scope, quiet=quiet), *held])
        summary, head = report.summary(estimates), scope_lines(self.scope, quiet=quiet)
        if level == BRIEF and not self._timeline:
            from zeroplan.report.brief import estimate as brief
            from zeroplan.report.brief.lines import within

            return Screen(summary, within(summary, head, *brief.details(estimates, self.assumed, self.typed)))
        parts: list[RenderableType] = []
        if level >= TABLES:
            parts = report.details(estimates, self.assumed, everything=level == EVERYTHING)
        if self._timeline:
            from zeroplan.costs.passes import timeline_of
            from zeroplan.costs.step_timeline import step_timeline
            from zeroplan.report.timeline import timeline

            width = console.console().width
            whole = timeline_of(self._jobs[0]) is not None
            parts = [*timeline(step_timeline(self._jobs[0]), estimates[0].real, width, whole=whole), *parts]
        return Screen(summary, [*head, *parts])

    def content(self) -> EstimateDocument:
        from zeroplan.report import json_objects
        from zeroplan.schema.estimate import OneEstimate, OneHeldEstimate, StagesEstimate

        document: dict[str, Any] = {
            "scope": json_objects.scope_object(self.scope), "assumed": self.assumed,
            "kept_free": json_objects.kept_free(self.headroom, self._jobs[0].cluster.capacity),
        }  # fmt: skip
        if self.scope.unplanned:
            held = [json_objects.held_estimate(*part) for part in zip(self._jobs, self._ledgers, strict=True)]
            if self._one:
                return OneHeldEstimate(**vars(held[0]), **document)
            return StagesEstimate(stages=held, **document)
        parts = zip(self._jobs, self._ledgers, self._fits, self._speeds, strict=True)
        whole = [json_objects.strategy_estimate(*part) for part in parts]
        if not self._one:
            return StagesEstimate(stages=whole, **document)
        return OneEstimate(**vars(whole[0]), **document, timeline=self._moments())

    def _moments(self) -> list[TimelineMoment] | None:
        """Moments of a step in order; None without --timeline."""
        if not self._timeline:
            return None
        from zeroplan.costs.step_timeline import step_timeline
        from zeroplan.report import json_objects

        return json_objects.timeline(step_timeline(self._jobs[0]))

    def _counted(self, accounting: str) -> list[Ledger]:
        """What side by side has no room for is not worked out."""
        detail = Detail.EQUATIONS if len(self._jobs) == 1 else Detail.KINDS
        return [ledger(job, accounting, detail=detail) for job in self._jobs]

    @cached_property
    def _ledgers(self) -> list[Ledger]:
        return self._counted(self.accounting)

    @cached_property
    def _fits(self) -> list[Fit]:
        capacity = self._jobs[0].cluster.capacity
        reserve = self.headroom.reserve(capacity) if self.headroom and capacity else 0.0
        parts = zip(self._jobs, self._ledgers, strict=True)
        return [fit(job, counted, reserve=reserve) for job, counted in parts]

    @cached_property
    def _speeds(self) -> list[Speed | None]:
        if not is_timed(self._jobs[0]) or self.accounting == "paper" or self.scope.unplanned:
            return [None] * len(self._jobs)
        from zeroplan.costs.timing.speed import speed

        return [speed(job, counted) for job, counted in zip(self._jobs, self._ledgers, strict=True)]

    @cached_property
    def _estimates(self) -> list[report.CountedStrategy]:
        """Both accountings, as the screen shows them."""
        from zeroplan.report import estimate as report

        if self.accounting == "paper":
            other = Estimate(
                self._jobs, self.assumed, self.scope, accounting="deepspeed", one=self._one, headroom=self.headroom
            )
            return other._estimates
        papers = [ledger(job, "paper") for job in self._jobs]
        parts = zip(self._jobs, papers, self._ledgers, self._fits, self._speeds, strict=True)
        return [report.CountedStrategy(*part) for part in parts]


def estimate(
    options: Options, *, accounting: str = "deepspeed", timeline: bool = False, partial: bool = False
) -> Estimate:
    """The estimate of these options; `partial`: what still holds of a job of which a part is not planned."""
    check_view(accounting, timeline=timeline)
    request = read_request(options, partial=partial)
    jobs = request.jobs()
    if request.unplanned and timeline:
        raise QuantityError("--timeline: found --partial, which has no step; leave out --timeline")
    if request.unplanned:
        nothing = request.cluster._replace(capacity=None, host_memory=None, nvme=None)
        jobs = [job._replace(cluster=nothing) for job in jobs]
    if timeline and len(jobs) > 1:
        raise QuantityError("--timeline: found every stage, expected one; write --stage, as in --stage 2 --timeline")
    one = "stage" in request.fixed
    return Estimate(
        jobs, request.assumed_for(jobs), request.scope, accounting=accounting, one=one, timeline=timeline,
        headroom=request.headroom,
    )  # fmt: skip


def check_view(accounting: str, *, timeline: bool) -> None:
    """Raises `QuantityError` for an accounting that there is not, or that has no timeline."""
    if accounting not in ACCOUNTINGS:
        raise QuantityError(
            f"--accounting: found {shown(accounting)}, expected {' or '.join(ACCOUNTINGS)}; write --accounting paper"
        )
    if timeline and accounting == "paper":
        raise QuantityError(
            "--timeline: found --accounting paper, expected DeepSpeed's, whose events are drawn; leave out --accounting"
        )
