"""Findings and rules of `check` as the dataclasses of their `--json`."""

from __future__ import annotations

from collections.abc import Sequence

from zeroplan.check.finding import Finding
from zeroplan.check.rule import Rule
from zeroplan.report import machine
from zeroplan.schema import check as schema
from zeroplan.specs.scope import Scope


def check(findings: Sequence[Finding], files: Sequence[str], planned: Scope | None) -> schema.Check:
    scope = machine.scope_object(planned) if planned else None
    return schema.Check(files=files, findings=findings, scope=scope)


def rule(one: Rule) -> schema.Rule:
    return schema.Rule(
        id=one.id, severity=one.severity, title=one.title, evidence=one.evidence, link=one.link,
        since=one.since or None, until=one.until or None, bad=one.bad.text, good=one.good.text,
    )  # fmt: skip
