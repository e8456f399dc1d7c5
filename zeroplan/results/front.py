"""What `recommend` comes to for the front of time and memory: several plans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zeroplan.plan import Plan
from zeroplan.report.depth import BRIEF, QUIET
from zeroplan.results.recommend import Recommendation, entry, fewest_object, numbers, searched_object
from zeroplan.search import Candidate, Front, Summary
from zeroplan.sizing import Fewest
from zeroplan.specs.headroom import Headroom

if TYPE_CHECKING:
    from zeroplan.report.rendered import Screen


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
        return Recommendation(
            chosen.job, _alone(self._rows, chosen), self.assumed, self.given, self.fewest, headroom=self.headroom
        )

    def screen(self, level: int = BRIEF) -> Screen:
        from zeroplan.report import front as report
        from zeroplan.report import rendered
        from zeroplan.report.subject import scope_lines

        answer = report.answer(self._rows)
        if self.fewest:
            from zeroplan.report.sizing import fewest

            answer.append(f" {fewest(self.fewest)}")
        head = scope_lines(self.scope, quiet=level == QUIET)
        body = report.details(self._rows, self.apart, brief=level == BRIEF)
        return rendered.screen(answer, head, body, self.assumed, level)

    def content(self) -> dict[str, Any]:
        """`front`, from the fastest to the leanest, `apart` and `searched`."""
        from zeroplan.report import machine

        found = self._rows
        first = found.rows[0]
        return {
            "command": "recommend",
            "scope": machine.scope_object(self.scope),
            "front": [
                {**entry(row), "seconds_slower": row.time.total - first.time.total,
                 "bytes_less": first.fit.gpu.needed - row.fit.gpu.needed}
                for row in found.rows
            ],
            "apart": self.apart,
            "searched": searched_object(found),
            "assumed": list(self.assumed),
            **machine.kept_free(self.headroom, self.job.cluster.capacity),
            **({"fewest": fewest_object(self.fewest)} if self.fewest else {}),
        }  # fmt: skip


def _alone(rows: Front, chosen: Candidate) -> Plan:
    """One row as a plan."""
    return Plan(chosen, (), (), Summary(chosen, *rows[1:]))
