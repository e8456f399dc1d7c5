"""A config's text with the findings mended that have one right answer (`zeroplan.check.rules.answers`)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from zeroplan.check.edit import applied, overlap
from zeroplan.check.finding import ERROR, Edit, Finding
from zeroplan.check.proposed import better, read

LETTERS = 500_000
"""That are read in all while one file is mended, in about a second; the longest file is tried once."""

Findings = Sequence[Finding]


class Mended(NamedTuple):
    text: str
    done: tuple[Finding, ...]
    """What was mended, each with its place in the text as it then was."""
    left: tuple[Finding, ...]
    """What is found in the new text."""


def mended(
    text: str, check: Callable[[str], list[Finding]], kept: Callable[[Iterable[Finding]], list[Finding]]
) -> Mended:
    """The text with everything mended that can be; mending it again changes nothing.

    `check` finds what is wrong with a text, `kept` chooses the findings that count. Each edit is tried: the text is
    checked again, and stays as it was unless the finding is gone, and with it no error has come that was not there. A
    file that DeepSpeed refuses anyway may show another error than before, but not at the key that was mended, unless
    that one is mended next. A file that is too long to try all that is to be tried stays as it is, whole: what is left
    of one half mended would be mended when it is asked for again.
    """
    done: list[Finding] = []
    findings: Findings = check(text)
    unchanged = Mended(text, (), tuple(kept(findings)))
    tries = max(1, LETTERS // len(text)) if text else 0
    untried = _groups(kept(findings))
    while untried:
        if not tries:
            return unchanged
        group, tries = untried.pop(0), tries - 1
        tried = applied(text, _edits(group))
        after = read(check, tried)
        if after is not None and better(group, findings, after):
            text, findings = tried, after
            done += group
            untried = _groups(kept(findings))
        elif len(group) > 1:
            untried[:0] = [group[: len(group) // 2], group[len(group) // 2 :]]
    return Mended(text, tuple(done), tuple(kept(findings)))


def _groups(findings: Findings) -> list[Findings]:
    """What to try, errors first: all that do not touch each other at once, then the others one by one."""
    mendable = sorted((one for one in findings if one.edits), key=lambda one: one.severity != ERROR)
    together: list[Finding] = []
    alone: list[Findings] = []
    for one in mendable:
        if overlap([*_edits(together), *one.edits]):
            alone.append([one])
        else:
            together.append(one)
    return [together, *alone] if together else alone


def _edits(findings: Findings) -> list[Edit]:
    return [edit for finding in findings for edit in finding.edits]
