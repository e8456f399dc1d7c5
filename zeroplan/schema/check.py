"""`check --format json` and `rules --json`: findings in configs, and the rules that make them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from zeroplan.check.finding import Finding
from zeroplan.schema.job import ScopeObject
from zeroplan.schema.json_object import JsonDocument, JsonObject


@dataclass(frozen=True, kw_only=True)
class Check(JsonDocument):
    """What DeepSpeed refuses, ignores or does otherwise in configs."""

    command: Literal["check"] = "check"
    """The command that ran."""
    files: Sequence[str]
    """Files that were read."""
    findings: Sequence[Finding]
    """What is wrong in them, file by file."""
    scope: ScopeObject | None = None
    """With a model, the job that the rules of memory are of."""


@dataclass(frozen=True, kw_only=True)
class RuleObject(JsonObject):
    """A rule of check."""

    id: str
    """ZP and three digits."""
    severity: str
    """error, warning or advice."""
    title: str
    """What it looks for."""
    evidence: str
    """File and line of DeepSpeed, or what was run."""
    link: str
    """Where to read more."""
    since: str | None
    """First version of DeepSpeed that behaves so; null: all that are known."""
    until: str | None
    """First version that no longer does; null: none."""
    bad: str
    """A config in which it finds something."""
    good: str
    """A config in which it finds nothing."""


@dataclass(frozen=True, kw_only=True)
class Rules(JsonDocument):
    """All rules."""

    command: Literal["rules"] = "rules"
    """The command that ran."""
    rules: Sequence[RuleObject]
    """Each rule."""
