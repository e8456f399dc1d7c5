"""Which findings count: --select, --ignore and --fail-on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from zeroplan.check.finding import SEVERITIES, WARNING, Finding
from zeroplan.check.rules import RULES
from zeroplan.errors import QuantityError, UnknownNameError, shown


@dataclass(frozen=True)
class RuleSelection:
    """Rules by id or by the beginning of their ids: ZP4 is all of ZeRO's."""

    select: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    fail_on: str = WARNING

    def __post_init__(self) -> None:
        for option, names in (("--select", self.select), ("--ignore", self.ignore)):
            for name in names:
                if not begins_a_rule(name):
                    raise UnknownNameError(f"rule in {option}", name, RULES)
        if self.fail_on not in SEVERITIES:
            raise QuantityError(f"--fail-on: found {shown(self.fail_on)}, expected {' or '.join(SEVERITIES)}")

    def kept(self, findings: Iterable[Finding]) -> list[Finding]:
        """Those that are selected and not ignored; of both, the longer beginning decides."""
        return [one for one in findings
                if _longest(one.rule, self.select, 0) > _longest(one.rule, self.ignore, -1)]  # fmt: skip

    def fails(self, findings: Iterable[Finding]) -> bool:
        """Whether one is at least as severe as --fail-on."""
        limit = SEVERITIES.index(self.fail_on)
        return any(SEVERITIES.index(one.severity) <= limit for one in findings)


def _longest(rule: str, beginnings: tuple[str, ...], without: int) -> int:
    """Letters of the longest beginning that a rule has; `without` where none is stated."""
    if not beginnings:
        return without
    return max((len(name) for name in beginnings if rule.startswith(name)), default=-1)


def begins_a_rule(name: str) -> bool:
    """Whether it is the id of a rule, or how one begins."""
    return any(rule.startswith(name) for rule in RULES)


def names(typed: Iterable[str]) -> tuple[str, ...]:
    """Ids as typed, several joined by commas."""
    return tuple(name.strip().upper() for part in typed for name in part.split(",") if name.strip())
