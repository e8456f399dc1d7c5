"""What `recommend` comes to for the front of time and memory: several plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zeroplan.plan import Plan, front_of
from zeroplan.progress import tell
from zeroplan.report.depth import BRIEF, QUIET
from zeroplan.request.goal import Goal
from zeroplan.request.options import Options
from zeroplan.results.planning import assumed_of, read_plan
from zeroplan.results.recommend import Recommendation, numbers
from zeroplan.search import Candidate, Front, SearchSummary
from zeroplan.sizing import Fewest
from zeroplan.specs.headroom import Headroom

if TYPE_CHECKING:
    from zeroplan.report.rendered import Screen
    from zeroplan.schema import recommend as schema


class Plans(Recommendation):
    """Plans of which none is both faster and leaner; `plan` is the fastest, `front` has all."""

    def __init__(
        self,
        rows: Front,
        apart: float,
        assumed: tuple[str, ...],
        given: dict[str, Any] | None = None,
        fewest: Fewest | None = None,
        *,
        headroom: Headroom | None = None,
    ) -> None:
        super().__init__(
            rows.rows[0].job, _alone(rows, rows.rows[0]), assumed, given, fewest, headroom=headroom
        )  # fmt: skip
        self.apart = apart
        """Share by which each row needs less than the one before, at least; the last may be nearer."""
        self._rows = rows
        self.front = tuple(numbers(row) for row in rows.rows)

    def row(self, number: int) -> Recommendation:
        """One of `front` by its place, the fastest being 0: its `ds_config()` and `write()`."""
        chosen = self._rows.rows[number]
        row = Recommendation(
            chosen.job, _alone(self._rows, chosen), self.assumed, self.given, self.fewest, headroom=self.headroom
        )
        row.target, row.stated = self.target, self.stated
        return row

    def screen(self, level: int = BRIEF) -> Screen:
        from zeroplan.report import front as report
        from zeroplan.report import rendered
        from zeroplan.report.subject import scope_lines

        summary = report.summary(self._rows)
        if self.fewest:
            from zeroplan.report.sizing import fewest

            summary.append(f" {fewest(self.fewest, self.search_result.chosen)}")
        head = scope_lines(self.scope, quiet=level == QUIET)
        body = report.details(self._rows, self.apart, brief=level == BRIEF)
        return rendered.screen(summary, head, body, self.assumed, level)

    def content(self) -> schema.FrontDocument:
        """`front`, from the fastest to the leanest, `apart` and `searched`."""
        from zeroplan.report import json_objects, json_plan
        from zeroplan.schema import recommend as schema

        first = self._rows.rows[0]
        rows = [
            schema.FrontRow(
                **vars(json_plan.entry(row)), seconds_slower=row.time.total - first.time.total,
                bytes_less=first.fit.gpu.needed - row.fit.gpu.needed,
            )
            for row in self._rows.rows
        ]  # fmt: skip
        return schema.FrontDocument(
            scope=json_objects.scope_object(self.scope),
            front=rows,
            apart=self.apart,
            searched=json_plan.searched(self._rows),
            assumed=self.assumed,
            kept_free=json_objects.kept_free(self.headroom, self.job.cluster.capacity),
            fewest=json_plan.fewest(self.fewest) if self.fewest else None,
        )


def _alone(rows: Front, chosen: Candidate) -> Plan:
    """One row as a plan."""
    return Plan(chosen, SearchSummary(chosen, *rows[1:]))


def front(options: Options, goal: Goal, fewest: Fewest | None = None) -> Plans | None:
    """The plans of the front; None when nothing fits."""
    request = read_plan(options)
    job = request.job()
    tell(f"searching the front for {job.ranks:,} GPU{'s' if job.ranks > 1 else ''}")
    rows = front_of(job, request.fixed, reserve=request.reserve, apart=goal.rows_apart)
    if not rows.rows:
        return None
    return Plans(
        rows, goal.rows_apart, assumed_of(request, job), request.given, fewest, headroom=request.headroom
    )
