"""`zeroplan check` and `zeroplan rules`."""

from __future__ import annotations

from typing import NamedTuple

import typer

from zeroplan.catalog.files import read_text
from zeroplan.check.check import check_text
from zeroplan.check.chosen import Chosen, names
from zeroplan.check.finding import Finding
from zeroplan.check.json_reader import NotReadableError, read_json
from zeroplan.check.rules import RULES
from zeroplan.check.setting import READERS, Setting, guessed
from zeroplan.errors import ContradictionError, QuantityError, shown

FORMATS = ("full", "concise", "json")
ACCELERATORS = ("cuda", "cpu")


class Asked(NamedTuple):
    """What was typed."""

    files: list[str]
    reader: str | None
    gpus: int | None
    accelerator: str
    version: str | None
    form: str
    select: list[str]
    ignore: list[str]
    fail_on: str
    exit_zero: bool


def run(asked: Asked) -> int:
    """0 when nothing is found that counts, 1 when something is."""
    chosen = _chosen(asked)
    findings: list[tuple[Finding, list[str]]] = []
    shown_files = ["standard input" if path == "-" else path for path in asked.files]
    for path, name in zip(asked.files, shown_files, strict=True):
        text = read_text(path, "a ds_config.json")
        lines = text.split("\n")
        found = chosen.kept(check_text(name, text, _setting(asked, name, text)))
        findings += [(finding, lines) for finding in found]
    _show(asked, findings, shown_files)
    return 0 if asked.exit_zero else int(chosen.fails(finding for finding, _lines in findings))


def _chosen(asked: Asked) -> Chosen:
    for option, value, known in (("--for", asked.reader, READERS), ("--format", asked.form, FORMATS),
                                 ("--accelerator", asked.accelerator, ACCELERATORS)):  # fmt: skip
        if value is not None and value not in known:
            raise QuantityError(f"{option}: found {shown(value)}, expected {' or '.join(known)}")
    if asked.gpus is not None and asked.gpus < 1:
        raise QuantityError(f"--gpus: found {asked.gpus}, expected a whole number from 1")
    if asked.version is not None and not all(part.isdigit() for part in asked.version.split(".")):
        raise QuantityError(f"--deepspeed: found {shown(asked.version)}, expected a version; write --deepspeed 0.19.8")
    if asked.files.count("-") > 1:
        raise ContradictionError("standard input is named twice; write - once")
    return Chosen(names(asked.select), names(asked.ignore), asked.fail_on)


def _setting(asked: Asked, name: str, text: str) -> Setting:
    """As asked; for whom is guessed from the file."""
    reader = asked.reader
    if reader is None:
        try:
            reader = guessed(read_json(name, text).config)
        except NotReadableError:
            reader = READERS[0]
    setting = Setting(reader=reader, gpus=asked.gpus, accelerator=asked.accelerator)
    return setting if asked.version is None else Setting(reader, asked.gpus, asked.accelerator, None, asked.version)


def _show(asked: Asked, findings: list[tuple[Finding, list[str]]], files: list[str]) -> None:
    from zeroplan.report import check as report

    if asked.form == "json":
        from zeroplan.report import machine

        typer.echo(machine.dumps(report.machine_form((finding for finding, _lines in findings), files)))
        return
    for finding, lines in findings:
        typer.echo(report.concise(finding) if asked.form == "concise" else report.full(finding, lines))
    typer.echo(report.summary([finding for finding, _lines in findings], len(files)))


def rules(*, json: bool) -> int:
    """All rules."""
    from zeroplan.report import check as report
    from zeroplan.report import machine

    if json:
        typer.echo(machine.dumps({"command": "rules", "rules": [report.rule_object(rule) for rule in RULES.values()]}))
    else:
        typer.echo(report.listed(RULES.values()))
    return 0


def explain(term: str, *, json: bool) -> int | None:
    """One rule; None where the term names none."""
    rule = RULES.get(term.strip().upper())
    if rule is None:
        return None
    from zeroplan.report import check as report
    from zeroplan.report import machine

    found = machine.dumps({"command": "explain", "rule": report.rule_object(rule)}) if json else report.told(rule)
    typer.echo(found)
    return 0
