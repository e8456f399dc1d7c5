"""Findings that a team has accepted: by a comment in the file, or in a baseline of what was there before."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from zeroplan.check.chosen import begins_a_rule, names
from zeroplan.check.finding import Finding
from zeroplan.check.rules import RULES
from zeroplan.errors import SpecError, nearest, shown

COMMENT = re.compile(r"(?P<mark>//|#|/\*)\s*zeroplan:\s*ignore\b(?P<rules>[\w ,]*)")
"""As in // zeroplan: ignore ZP501, in hjson, YAML and scripts."""
WHAT = "a baseline of zeroplan check"
Entry = tuple[str, str, str]
"""Rule, file and key of a finding; its line moves with what is written above it."""


def ignored(name: str, text: str) -> dict[int, tuple[str, ...]]:
    """The beginnings of rules that a comment silences, by the line that it is about: its own or, where it stands alone,
    the next. Raises `SpecError` for a rule that there is not.
    """
    if "zeroplan:" not in text:
        return {}
    silenced: dict[int, tuple[str, ...]] = {}
    lines = text.split("\n")
    for number, line in enumerate(lines, 1):
        match = COMMENT.search(line)
        if match is None:
            continue
        rules = names(match["rules"].replace(" ", ",").split(",")) or ("ZP",)
        for rule in rules:
            if not begins_a_rule(rule):
                expected = "the id of a rule, or how ids begin"
                raise SpecError(f"{name}:{number}", shown(rule), expected, nearest(rule, RULES))
        about = number
        if not line[: match.start()].strip():
            about = next((at for at in range(number + 1, len(lines) + 1) if lines[at - 1].strip()), number)
        silenced[about] = (*silenced.get(about, ()), *rules)
    return silenced


def not_ignored(findings: Iterable[Finding], texts: Mapping[str, str]) -> list[Finding]:
    """Those that no comment silences."""
    silent = {name: ignored(name, text) for name, text in texts.items()}
    return [one for one in findings
            if not any(one.rule.startswith(rule) for rule in silent.get(one.file, {}).get(one.line, ()))]  # fmt: skip


def baseline(path: str, findings: Iterable[Finding]) -> str:
    """The text of a baseline that accepts these findings."""
    counts = sorted(Counter(_entry(path, one) for one in findings).items())
    rows = [{"rule": rule, "file": file, "path": key, "count": count} for (rule, file, key), count in counts]
    return json.dumps({"what": WHAT, "findings": rows}, indent=1) + "\n"


def read_baseline(path: str, text: str) -> Counter[Entry]:
    """How many of each finding are accepted. Raises `SpecError` for what is no baseline."""
    try:
        content = json.loads(text)
        rows = content["findings"]
        if content["what"] != WHAT:
            raise KeyError
        return Counter({(str(row["rule"]), str(row["file"]), str(row["path"])): _count(row["count"]) for row in rows})
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise SpecError(path, "no baseline", f"what --write-baseline {path} writes") from error


def _count(value: Any) -> int:
    if type(value) is not int or value < 1:
        raise ValueError
    return value


def is_new(path: str, accepted: Counter[Entry], findings: Iterable[Finding]) -> list[Finding]:
    """Those that a baseline does not have, or has fewer of; what it has is taken out of it."""
    left = []
    for one in findings:
        entry = _entry(path, one)
        if accepted[entry] > 0:
            accepted[entry] -= 1
        else:
            left.append(one)
    return left


def _entry(path: str, finding: Finding) -> Entry:
    """Files are named as seen from the baseline, so that it holds from wherever check is started."""
    folder = os.path.dirname(os.path.abspath(path))
    file = os.path.relpath(os.path.abspath(finding.file), folder) if os.path.exists(finding.file) else finding.file
    return finding.rule, file.replace(os.sep, "/"), finding.path
