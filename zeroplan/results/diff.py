"""What `diff` comes to: the keys that differ, and what each changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zeroplan.deepspeed.effect import Comparison, Counted
from zeroplan.outcome import Outcome, outcome
from zeroplan.report.depth import BRIEF, QUIET
from zeroplan.results.result import Result, worst
from zeroplan.specs.headroom import Headroom
from zeroplan.specs.scope import Scope, scope

if TYPE_CHECKING:
    from zeroplan.report.rendered import Screen
    from zeroplan.schema import comparisons as schema


class Diff(Result):
    """Two ds_config.json: what differs in meaning, and in numbers where a model was named."""

    def __init__(
        self, comparison: Comparison, assumed: tuple[str, ...] = (), headroom: Headroom | None = None
    ) -> None:  # fmt: skip
        self.changes = comparison.changes
        """Each with its keys, and what it does alone and beside all others."""
        self.together = comparison.together
        """What all do at once; None without a model."""
        self.a = _numbers(comparison.ends[0]) if comparison.ends else None
        """The first config in numbers; None without a model."""
        self.b = _numbers(comparison.ends[1]) if comparison.ends else None
        self.assumed = assumed
        self._comparison, self._headroom = comparison, headroom

    @property
    def verdict(self) -> str | None:
        """The worse of both configs'."""
        return worst(end.verdict for end in (self.a, self.b) if end)

    @property
    def scope(self) -> Scope | None:
        """The job that the numbers are of; None without a model."""
        ends = self._comparison.ends
        return scope([ends[0].job.model], ends[0].job.workload.seq) if ends else None

    def screen(self, level: int = BRIEF) -> Screen:
        from zeroplan.report import diff as report
        from zeroplan.report import rendered
        from zeroplan.report.subject import scope_lines

        found = self._comparison
        head = scope_lines(self.scope, quiet=level == QUIET) if self.scope else []
        body = report.details(found, brief=level == BRIEF)
        return rendered.screen(report.answer(found), head, body, self.assumed if found.ends else (), level)

    def content(self) -> schema.DiffDocument:
        from zeroplan.report import machine, machine_compare
        from zeroplan.schema import comparisons as schema

        compared = self._comparison
        if not (compared.ends and self.together and self.scope):
            changes = [schema.DiffKeys(keys=machine_compare.diff_keys(change)) for change in compared.changes]
            return schema.KeysDiff(files=compared.files, changes=changes, assumed=self.assumed)
        job = compared.ends[0].job
        a, b = map(machine_compare.counted_config, compared.ends)
        return schema.CountedDiff(
            files=compared.files,
            scope=machine.scope_object(self.scope),
            model=machine.model_object(job.model),
            a=a,
            b=b,
            together=self.together,
            sum=compared.added_up,
            kept_free=machine.kept_free(self._headroom, job.cluster.capacity),
            changes=[machine_compare.diff_change(change) for change in compared.changes],
            assumed=self.assumed,
        )


def _numbers(end: Counted) -> Outcome:
    return outcome(end.job, end.ledger, end.fit, end.speed)
