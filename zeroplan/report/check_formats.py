"""Findings of `check` for other programs, and how each names a file.

Workflow commands (GitHub Actions shows them beside the lines of a pull request), a table of Markdown (the summary of a
step, or a comment), JUnit's XML (tests, to most CI servers), SARIF 2.1.0 (code scanning), dataclasses of --json.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote
from xml.etree import ElementTree as ET

from zeroplan import __version__
from zeroplan.catalog.files import STANDARD_INPUT
from zeroplan.check.finding import ADVICE, ERROR, SEVERITIES, WARNING, Finding
from zeroplan.check.rule import Rule
from zeroplan.check.rules import RULES
from zeroplan.errors import printable
from zeroplan.report import json_objects
from zeroplan.report.check import concise, explanation, summary
from zeroplan.schema import check as schema
from zeroplan.specs.scope import Scope


def relative(path: str) -> str:
    """From the current folder, with slashes; in a workflow of GitHub's from the repository's, where a step may stand
    below it. As it is where there is no such way (another drive).
    """
    try:
        return Path(os.path.relpath(path, _root())).as_posix()
    except ValueError:
        return Path(path).as_posix()


def _root() -> Path:
    workspace = os.environ.get("GITHUB_WORKSPACE")
    inside = workspace and Path.cwd().is_relative_to(Path(workspace).resolve())
    return Path(workspace).resolve() if workspace and inside else Path.cwd()


def uri(path: str) -> str:
    """A relative reference: letters that an address cannot hold are escaped."""
    return quote("stdin" if path == STANDARD_INPUT else relative(path), safe="/", errors="surrogateescape")


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


NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Letters that XML 1.0 cannot hold, not even escaped (section 2.2, Char)."""


def junit(findings: Sequence[Finding], files: Sequence[str], fails: Callable[[Sequence[Finding]], bool]) -> str:
    """One test case a file. Where `fails` holds it has one failure with all its findings, since readers such as Jenkins
    keep no second; other findings are its output.
    """
    cases = [_case(name, [one for one in findings if one.file == name], fails) for name in files]
    failures = sum(case.find("failure") is not None for case in cases)
    counts = {"tests": str(len(cases)), "failures": str(failures), "errors": "0", "skipped": "0"}
    suite = ET.Element("testsuite", {"name": "zeroplan check", **counts})
    suite.extend(cases)
    suites = ET.Element("testsuites", {"name": "zeroplan check", **counts})
    suites.append(suite)
    ET.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suites, encoding="unicode")


def _case(name: str, findings: Sequence[Finding], fails: Callable[[Sequence[Finding]], bool]) -> ET.Element:
    name = _legal(printable(relative(name)))
    case = ET.Element("testcase", {"classname": "zeroplan.check", "name": name, "time": "0"})
    if findings:
        failed = fails(findings)
        attributes = {"message": summary(findings, 1), "type": findings[0].severity} if failed else {}
        inside = ET.SubElement(case, "failure" if failed else "system-out", attributes)
        inside.text = _legal("\n".join(concise(finding) for finding in findings))
    return case


def _legal(text: str) -> str:
    return NOT_XML.sub("", text)


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
        "help": {"text": explanation(rule)}, "defaultConfiguration": {"level": LEVELS[rule.severity]},
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


def check(findings: Sequence[Finding], files: Sequence[str], planned: Scope | None) -> schema.Check:
    scope = json_objects.scope_object(planned) if planned else None
    return schema.Check(files=files, findings=findings, scope=scope)


def rule(one: Rule) -> schema.RuleObject:
    return schema.RuleObject(
        id=one.id, severity=one.severity, title=one.title, evidence=one.evidence, link=one.link,
        since=one.since or None, until=one.until or None, bad=one.bad.text, good=one.good.text,
    )  # fmt: skip
