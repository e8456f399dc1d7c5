"""The findings of one config."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice

from zeroplan.check.document import Document
from zeroplan.check.finding import ERROR, SEVERITIES, Finding, Hit
from zeroplan.check.json_reader import NotReadableError, read_json
from zeroplan.check.rules import CHECKS, COUNTED, RULES
from zeroplan.check.rules.combinations import TABLE
from zeroplan.check.setting import Setting
from zeroplan.check.subject import Subject
from zeroplan.deepspeed.versions import is_within
from zeroplan.errors import ZeroplanError, printable

PLACEHOLDER = "ZP104"
UNREADABLE = "ZP101"
MOST = 100
"""Hits of one check: a file with more of them is no config."""
COMBINED = frozenset(row.rule for row in TABLE)


def check_text(name: str, text: str, setting: Setting) -> list[Finding]:
    """The findings of a config's text; one alone where it cannot be read."""
    try:
        document = read_json(name, text)
    except NotReadableError as error:
        return [_unreadable(name, text, error)]
    return check(document, setting)


def check(document: Document, setting: Setting) -> list[Finding]:
    """The findings in the order of the file, errors before others on one line."""
    subject = Subject(document, setting)
    hits = [hit for rule in CHECKS for hit in _hits(rule, subject)]
    if setting.planned is not None and not any(_severity(hit) == ERROR for hit in hits):
        hits += [hit for rule in COUNTED for hit in _hits(rule, subject)]
    findings = [placed(document, hit) for hit in _without_echoes(hits) if is_current(hit, setting)]
    return sorted(findings, key=lambda one: (one.line, one.column, SEVERITIES.index(one.severity), one.rule))


def _hits(rule: Callable[[Subject], Iterable[Hit]], subject: Subject) -> list[Hit]:
    """What one check says until it asks for a value that DeepSpeed refuses, of which another rule speaks: `Facts`, or
    all of `Subject.facts`, raises a `ZeroplanError` there. Any other exception is a mistake of the check's own, and is
    not silent.
    """
    hits: list[Hit] = []
    with suppress(ZeroplanError):
        hits.extend(islice(rule(subject), MOST))
    return hits


def _without_echoes(hits: list[Hit]) -> list[Hit]:
    """One finding for one cause: combinations are silent where the value itself is wrong; placeholders stand for it."""
    errors = {hit.path for hit in hits if _severity(hit) == ERROR and hit.path}
    holders = {hit.path for hit in hits if hit.rule == PLACEHOLDER}
    single = {hit.path for hit in hits if _severity(hit) == ERROR and hit.rule not in COMBINED}
    left, seen = [], set()
    for hit in hits:
        if hit.rule == PLACEHOLDER and hit.path in errors:
            hit = hit._replace(severity=ERROR)  # noqa: PLW2901
        elif (hit.path in holders and hit.rule != PLACEHOLDER) or (hit.rule in COMBINED and hit.path in single):
            continue
        same = (hit.rule, hit.path, hit.offset)
        if same not in seen:
            seen.add(same)
            left.append(hit)
    return left


def _severity(hit: Hit) -> str:
    return hit.severity or RULES[hit.rule].severity


def is_current(hit: Hit, setting: Setting) -> bool:
    """Whether the release that is asked for does what the rule says."""
    rule = RULES[hit.rule]
    return is_within(setting.version, rule.since, rule.until)


def placed(document: Document, hit: Hit) -> Finding:
    """The finding with its place in the file."""
    member = document.members.get(hit.path)
    start = hit.offset if hit.offset is not None else member.start if member else document.root.start
    end = member.end if member and hit.offset in (None, member.start) else start + 1
    width = max(1, len(document.text[start:end].partition("\n")[0]))
    line, column = document.place(start)
    rule = RULES[hit.rule]
    return Finding(hit.rule, _severity(hit), document.name, line, column, column + width, ".".join(hit.path),
                   printable(hit.message), printable(hit.write), rule.link, hit.edits)  # fmt: skip


def _unreadable(name: str, text: str, error: NotReadableError) -> Finding:
    line = text.count("\n", 0, error.offset) + 1
    column = error.offset - (text.rfind("\n", 0, error.offset) + 1) + 1
    rule = RULES[UNREADABLE]
    return Finding(rule.id, rule.severity, name, line, column, column + 1, "", printable(str(error)), "", rule.link)


def count(findings: Iterable[Finding], severity: str) -> int:
    return sum(finding.severity == severity for finding in findings)
