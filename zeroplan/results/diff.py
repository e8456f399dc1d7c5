"""What `diff` comes to: the keys that differ, and what each changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zeroplan.deepspeed.effect import Comparison, ConfigChange, Counted
from zeroplan.report.depth import BRIEF, QUIET
from zeroplan.results.outcome import Outcome, outcome
from zeroplan.results.result import Result, worst
from zeroplan.specs.headroom import Headroom
from zeroplan.specs.scope import Scope, scope

if TYPE_CHECKING:
    from zeroplan.report.rendered import Screen


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

    def content(self) -> dict[str, Any]:
        from zeroplan.report import machine

        found = self._comparison
        body: dict[str, Any] = {"command": "diff", "files": list(found.files)}
        if found.ends and self.together and self.scope:
            body["scope"] = machine.scope_object(self.scope)
            body["model"] = machine.model_object(found.ends[0].job.model)
            body |= {name: _object(end) for name, end in zip("ab", found.ends, strict=True)}
            body["together"] = self.together._asdict()
            body["sum"] = found.added_up._asdict() if found.added_up else None
            body |= machine.kept_free(self._headroom, found.ends[0].job.cluster.capacity)
        rows = [_change(change, counted=found.ends is not None) for change in found.changes]
        return {**body, "changes": rows, "assumed": list(self.assumed)}


def _numbers(end: Counted) -> Outcome:
    return outcome(end.job, end.ledger, end.fit, end.speed)


def _object(end: Counted) -> dict[str, Any]:
    found, numbers = _numbers(end), end.numbers
    return {**found._asdict(), "headroom": found.headroom, "calls": numbers.calls, "copied": numbers.copied}


def _change(change: ConfigChange, *, counted: bool) -> dict[str, Any]:
    keys = [{"key": one.path, "a": one.a, "b": one.b, "in_a": one.stated[0], "in_b": one.stated[1]}
            for one in change.differences]  # fmt: skip
    if not counted:
        return {"keys": keys}
    return {
        "keys": keys, "alone": change.alone._asdict() if change.alone else None,
        "last": change.last._asdict() if change.last else None, "refused_alone": change.refused or None,
        "nothing": list(change.reasons) if change.nothing else None,
    }  # fmt: skip
