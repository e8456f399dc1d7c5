"""What a finding proposes, tried before it is shown: what DeepSpeed would stop at is left out.

`zeroplan.check.mended` asks the same of what `--fix` writes.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from zeroplan.check.document import Document
from zeroplan.check.edit import Edits, applied, valued
from zeroplan.check.finding import ERROR, Finding
from zeroplan.errors import ZeroplanError

LETTERS = 500_000
"""That are read in all while the findings of one file are tried, in about a second."""
LINE = re.compile(r'"(\w+)": (.+)')
"""A finding's line that is a key with its value."""

Findings = Sequence[Finding]


def tried(document: Document, findings: list[Finding], check: Callable[[str], Findings]) -> list[Finding]:
    """The findings without edits and lines that would not do; of a file too long to try them, without edits."""
    proposals = [one for one in findings if one.edits or _written(document, one)]
    if not proposals:
        return findings
    if len(proposals) * len(document.text) > LETTERS:
        return [replace(one, edits=()) for one in findings]
    before = check(document.text)
    return [_tried(document, one, before, check) for one in findings]


def _tried(document: Document, one: Finding, before: Findings, check: Callable[[str], Findings]) -> Finding:
    if one.edits and not _does(document.text, one.edits, one, before, check):
        one = replace(one, edits=())
    line = _written(document, one)
    return one if not line or _does(document.text, line, one, before, check) else replace(one, write="")


def _does(text: str, edits: Edits, one: Finding, before: Findings, check: Callable[[str], Findings]) -> bool:
    after = read(check, applied(text, edits))
    return after is not None and better([replace(one, edits=edits)], before, after)


def _written(document: Document, one: Finding) -> Edits:
    """The line as an edit, where it is a value of the key that the finding is about."""
    line, path = LINE.fullmatch(one.write), tuple(one.path.split("."))
    if line is None or path not in document.members or line.group(1) != path[-1]:
        return ()
    try:
        json.loads(line.group(2))
    except ValueError:
        return ()
    return valued(document, path, line.group(2))


def read(check: Callable[[str], Findings], text: str) -> Findings | None:
    """What is found in a changed text; None where it cannot be read any more: it may have become too long."""
    try:
        return check(text)
    except ZeroplanError:
        return None


def better(mended: Findings, before: Findings, after: Findings) -> bool:
    """Whether what was mended is gone, and nothing new is wrong."""
    were, are, gone = (Counter((one.rule, one.path) for one in findings) for findings in (before, after, mended))
    if any(are[one] > max(0, were[one] - count) for one, count in gone.items()):
        return False
    known = {(one.rule, one.path) for one in before if one.severity == ERROR}
    new = [one for one in after if one.severity == ERROR and (one.rule, one.path) not in known]
    if len(mended) > 1 or mended[0].severity != ERROR:
        return not new
    return not any(_about(one.path, mended[0]) for one in new if not one.edits)


def _about(path: str, finding: Finding) -> bool:
    """Whether a key is the one that was mended, under whatever name it stands now, or the whole file."""
    written = {edit.text.strip().strip(',"').partition('"')[0] for edit in finding.edits}
    names = {finding.path.rpartition(".")[2], *written}
    return not path or path == finding.path or path.rpartition(".")[2] in names


def without_edits(findings: Iterable[Finding]) -> list[Finding]:
    return [replace(one, edits=()) for one in findings]
