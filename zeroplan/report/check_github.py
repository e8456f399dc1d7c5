"""Findings as workflow commands, which GitHub Actions shows beside the lines of a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from zeroplan.catalog.files import STANDARD_INPUT
from zeroplan.check.finding import ADVICE, ERROR, SEVERITIES, WARNING, Finding
from zeroplan.errors import printable
from zeroplan.report.check import concise, summary
from zeroplan.report.check_place import relative

LINE_ENDS = "\r\n"
"""GitHub takes these escaped, in its own way."""
COMMANDS = {ERROR: "error", WARNING: "warning", ADVICE: "notice"}


def github(findings: Sequence[Finding], files: Sequence[str]) -> str:
    """One command a finding, errors first: of each kind GitHub shows ten a step. The last line is for the log."""
    ordered = sorted(findings, key=lambda one: SEVERITIES.index(one.severity))
    return "\n".join([*(_command(finding) for finding in ordered), summary(findings, len(files))])


def _command(finding: Finding) -> str:
    place = {} if finding.file == STANDARD_INPUT else {"file": relative(finding.file)}
    properties = {
        **place, "line": str(finding.line), "col": str(finding.column), "endColumn": str(finding.end_column),
        "title": f"zeroplan {finding.rule}",
    }  # fmt: skip
    stated = ",".join(f"{name}={_property(printable(value, keeps=LINE_ENDS))}" for name, value in properties.items())
    return f"::{COMMANDS[finding.severity]} {stated}::{_message(concise(finding))}"


def _message(text: str) -> str:
    """As actions/toolkit escapes a message (packages/core/src/command.ts)."""
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    """As actions/toolkit escapes a property, where a colon or comma would end it."""
    return _message(text).replace(":", "%3A").replace(",", "%2C")
