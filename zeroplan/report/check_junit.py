"""Findings as JUnit's XML, which most CI servers show as tests."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from xml.etree import ElementTree as ET

from zeroplan.check.finding import Finding
from zeroplan.errors import printable
from zeroplan.report.check import concise, summary
from zeroplan.report.check_place import relative

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
