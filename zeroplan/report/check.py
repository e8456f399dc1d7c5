"""What `zeroplan check` prints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from zeroplan.check.finding import SEVERITIES, Finding
from zeroplan.check.rule import Rule
from zeroplan.errors import printable

WIDEST = 200
"""Letters of a source line that are shown."""
UNPRINTABLE = "\N{REPLACEMENT CHARACTER}"


def concise(finding: Finding) -> str:
    """One line: file:line:column, the rule, what is wrong and what to write."""
    return f"{_head(finding)}; write: {finding.write}" if finding.write else _head(finding)


def _head(finding: Finding) -> str:
    place = printable(f"{finding.file}:{finding.line}:{finding.column}")
    return f"{place}: {finding.severity} {finding.rule}: {finding.message}"


def full(finding: Finding, lines_of_file: Sequence[str]) -> str:
    """The finding with its source line underlined."""
    line = lines_of_file[finding.line - 1] if finding.line <= len(lines_of_file) else ""
    shown = line[:WIDEST].rstrip("\r").expandtabs(1)
    source = "".join(letter if letter.isprintable() else UNPRINTABLE for letter in shown)
    number = str(finding.line)
    lines = [_head(finding)]
    if source.strip() and finding.column <= WIDEST:
        under = " " * (finding.column - 1) + "^" * max(1, min(finding.end_column, len(source) + 1) - finding.column)
        lines += [f"  {number} | {source}", f"  {' ' * len(number)} | {under}"]
    lines += [f"  write: {finding.write}"] if finding.write else []
    return "\n".join([*lines, f"  see {finding.link}"])


def why(rule: Rule) -> str:
    """Lines under a finding: what the rule is, its evidence and a config without it."""
    return "\n".join(["", f"  why: {rule.title}; {rule.evidence}", f"  {_called('not in:', rule.good)[0]}"])


def summary(findings: Sequence[Finding], files: int) -> str:
    """The last line."""
    where = f"in {files} file{'s' if files != 1 else ''}"
    if not findings:
        return f"nothing found {where}"
    counts = [(sum(one.severity == severity for one in findings), severity) for severity in SEVERITIES]
    said = [f"{count} {_plural(severity, count)}" for count, severity in counts if count]
    return f"{', '.join(said)} {where}"


def _plural(severity: str, count: int) -> str:
    return severity if count == 1 or severity == "advice" else f"{severity}s"


def listed(rules: Iterable[Rule]) -> str:
    return "\n".join(f"{rule.id}  {rule.severity:7}  {rule.title}" for rule in rules)


def explanation(rule: Rule) -> str:
    """All that is known of a rule."""
    known = [f"since DeepSpeed {rule.since}"] if rule.since else []
    known += [f"until DeepSpeed {rule.until}"] if rule.until else []
    return "\n".join([
        f"{rule.id}  {rule.title}", f"severity: {rule.severity}{''.join(f', {part}' for part in known)}",
        f"evidence: {rule.evidence}", *_called("found in: ", rule.bad), *_called("not in:   ", rule.good),
        f"see {rule.link}",
    ])  # fmt: skip


OPTIONS = {"reader": "for", "version": "deepspeed"}
"""Options by the names that they have inside, where those differ."""


def _called(word: str, example: Any) -> list[str]:
    options = "".join(f" --{OPTIONS.get(name, name).replace('_', '-')} {value}"
                      for name, value in example.options)  # fmt: skip
    return [f"{word} {' '.join(example.text.split())}{f'   ({options.strip()})' if options else ''}"]
