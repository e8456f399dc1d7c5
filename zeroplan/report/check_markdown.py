"""Findings as a table of Markdown, for the summary of a workflow's step or a comment."""

from __future__ import annotations

import re
from collections.abc import Sequence

from zeroplan.check.finding import Finding
from zeroplan.errors import printable
from zeroplan.report.check import summary

HEADING = "| severity | rule | place | what is found | write instead |\n|---|---|---|---|---|"
MARKS = re.compile(r"([\\`*_\[\]<>|~#&])")
LINE_BREAKS = re.compile(r"\s+")


def markdown(findings: Sequence[Finding], files: Sequence[str]) -> str:
    """A heading with the counts, and a row for each finding."""
    said = f"**zeroplan check**: {summary(findings, len(files))}"
    return "\n".join([said, "", HEADING, *(_row(finding) for finding in findings)]) if findings else said


def _row(finding: Finding) -> str:
    place = printable(f"{finding.file}:{finding.line}:{finding.column}")
    cells = (finding.severity, f"[{finding.rule}]({finding.link})", _code(place), _text(finding.message),
             _code(finding.write))  # fmt: skip
    return f"| {' | '.join(cells)} |"


def _text(text: str) -> str:
    """On one line, with the marks of Markdown as plain letters."""
    return MARKS.sub(r"\\\1", LINE_BREAKS.sub(" ", text))


def _code(text: str) -> str:
    """As code between more backticks than stand in a row inside; a pipe would end the cell even there."""
    plain = LINE_BREAKS.sub(" ", text).replace("|", "\\|")
    if not plain:
        return ""
    fence = "`" * (max((len(run) for run in re.findall(r"`+", plain)), default=0) + 1)
    space = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{fence}{space}{plain}{space}{fence}"
