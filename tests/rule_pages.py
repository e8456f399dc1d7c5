"""The pages of docs/rules, one for each rule: `python -m tests.rule_pages` writes them anew."""

from __future__ import annotations

import json
from pathlib import Path

from tests.check.examples import found
from zeroplan.check.json_reader import read_json
from zeroplan.check.rule import Rule
from zeroplan.check.rules import RULES
from zeroplan.report.check import OPTIONS

FOLDER = Path(__file__).parent.parent / "docs" / "rules"
MEANINGS = {
    "error": "stops DeepSpeed or who hands it the config, or finds too little memory",
    "warning": "runs, and does nothing or something else than what is written",
    "advice": "runs as written; something is better or worth knowing",
}


def page(rule: Rule) -> str:
    """What a rule is, a config in which it is found with what is said of it, and one in which it is not."""
    versions = [f"from DeepSpeed {rule.since} on" + (f", before {rule.until}" if rule.until else "")] if rule.since else []
    said = [one for one in found(rule.bad) if one.rule == rule.id]
    lines = [
        f"# {rule.id}: {rule.title}", "", f"{rule.severity.capitalize()}: {MEANINGS[rule.severity]}.", "",
        f"- Evidence: {rule.evidence}", *(f"- Holds {each}" for each in versions), f"- See {rule.link}", "",
        f"Found in{_called(rule.bad)}:", "", *_block(rule.bad), "",
    ]  # fmt: skip
    if said:
        message = said[0].message if len(said[0].message) < 400 else said[0].message[:400] + "..."
        lines += ["```text", message, *([f"write: {said[0].write}"] if said[0].write else []), "```", ""]
    return "\n".join([*lines, f"Not in{_called(rule.good)}:", "", *_block(rule.good), ""])


def index() -> str:
    rows = [f"| [{rule.id}]({rule.id}.md) | {rule.severity} | {rule.title.replace('|', chr(92) + '|')} |" for rule in RULES.values()]
    return "\n".join(["# Rules of zeroplan check", "", "A page for each, made of the rules themselves by "
                      "`python -m tests.rule_pages`.", "", "| Rule | Severity | What it finds |", "|---|---|---|", *rows, ""])  # fmt: skip


def _called(example) -> str:
    options = [f"--{OPTIONS.get(name, name).replace('_', '-')} {value}" for name, value in example.options if name not in ("trainer_args", "trl")]
    options += [f"--trainer-args {value.partition(': ')[0]}" for name, value in example.options if name == "trainer_args"]
    project = "".join(f", in a project with trl=={value}" for name, value in example.options if name == "trl")
    return f" (`zeroplan check {example.file}{''.join(f' {one}' for one in options)}`{project})"


def _block(example) -> list[str]:
    text, kind = example.text, example.file.rpartition(".")[2]
    if kind == "json":
        try:
            text = json.dumps(read_json("x", text).config, indent=2)
        except Exception:
            kind = "text"
    beside = next((value for name, value in example.options if name == "trainer_args"), None)
    lines = [f"```{kind}", *text.rstrip("\n").splitlines(), "```"]
    return lines if beside is None else [*lines, "", *_beside(*beside.split(": ", 1))]


def _beside(name: str, text: str) -> list[str]:
    return [f"beside {name}:", "", f"```{name.rpartition('.')[2]}", *text.splitlines(), "```"]


def pages() -> dict[str, str]:
    """The text of each page by its name."""
    return {"README.md": index(), **{f"{rule.id}.md": page(rule) for rule in RULES.values()}}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    texts = pages()
    for path in FOLDER.glob("*.md"):
        if path.name not in texts:
            path.unlink()
    for name, text in texts.items():
        (FOLDER / name).write_text(text, encoding="utf-8")
