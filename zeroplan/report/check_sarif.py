"""Findings as SARIF 2.1.0, for code scanning."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from zeroplan import __version__
from zeroplan.check.finding import ADVICE, ERROR, WARNING, Finding
from zeroplan.check.rule import Rule
from zeroplan.check.rules import RULES
from zeroplan.report.check import told
from zeroplan.report.check_place import uri

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
LEVELS = {ERROR: "error", WARNING: "warning", ADVICE: "note"}
PROBLEMS = {ERROR: "error", WARNING: "warning", ADVICE: "recommendation"}
"""What GitHub's code scanning calls them."""
PLACES = {name: place for place, name in enumerate(RULES)}


def sarif(findings: Sequence[Finding]) -> str:
    """One run: every rule with its help, every finding with its place and, where there is one, its fix."""
    driver = {"name": "zeroplan", "version": __version__, "rules": [_rule(rule) for rule in RULES.values()]}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": [_result(one) for one in findings]}
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2)


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id, "name": rule.id, "shortDescription": {"text": rule.title},
        "fullDescription": {"text": f"{rule.title} ({rule.evidence})"}, "helpUri": rule.link,
        "help": {"text": told(rule)}, "defaultConfiguration": {"level": LEVELS[rule.severity]},
        "properties": {"tags": ["deepspeed"], "problem.severity": PROBLEMS[rule.severity]},
    }  # fmt: skip


def _result(finding: Finding) -> dict[str, Any]:
    instead = f"; write: {finding.write}" if finding.write else ""
    region = {"startLine": finding.line, "startColumn": finding.column, "endColumn": finding.end_column}
    location = {"artifactLocation": {"uri": uri(finding.file)}, "region": region}
    result = {
        "ruleId": finding.rule, "ruleIndex": PLACES[finding.rule], "level": LEVELS[finding.severity],
        "message": {"text": finding.message + instead}, "locations": [{"physicalLocation": location}],
    }  # fmt: skip
    return {**result, "fixes": [_fix(finding)]} if finding.edits else result


def _fix(finding: Finding) -> dict[str, Any]:
    replacements = [
        {"deletedRegion": {"charOffset": edit.start, "charLength": edit.end - edit.start},
         "insertedContent": {"text": edit.text}} for edit in finding.edits
    ]  # fmt: skip
    change = {"artifactLocation": {"uri": uri(finding.file)}, "replacements": replacements}
    return {"description": {"text": finding.write or finding.message}, "artifactChanges": [change]}
