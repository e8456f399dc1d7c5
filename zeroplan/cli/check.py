"""`zeroplan check` and `zeroplan rules`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import typer

from zeroplan.catalog.files import LARGEST_CONFIG, STANDARD_INPUT, read_text
from zeroplan.check.arguments import YAML, read_arguments
from zeroplan.check.chosen import RuleSelection, names
from zeroplan.check.files import CheckedFiles, check_arguments, check_file, findings_of
from zeroplan.check.finding import Finding
from zeroplan.check.folder import configs
from zeroplan.check.mended import mended
from zeroplan.check.proposed import without_edits
from zeroplan.check.rules import RULES
from zeroplan.cli import check_fix
from zeroplan.errors import ContradictionError, QuantityError, shown
from zeroplan.request.check_setting import CheckInputs, read_known, setting_of
from zeroplan.request.options import Options

if TYPE_CHECKING:
    from zeroplan.specs.scope import Scope

FORMATS = ("full", "concise", "json", "github", "sarif", "markdown", "junit")


class Asked(NamedTuple):
    """What was typed."""

    files: list[str]
    options: Options
    reader: str | None
    trainer_args: str | None
    client_optimizer: str | None
    accelerator: str
    version: str | None
    form: str
    select: list[str]
    ignore: list[str]
    fail_on: str
    exit_zero: bool
    fix: bool = False
    diff: bool = False


def run(asked: Asked) -> int:
    """0 when nothing is found that counts, 1 when something is (with --diff also when something would be mended)."""
    chosen = _chosen(asked)
    known, about = _known(asked)
    stated = chosen.kept(about.findings)
    looked_at = [check_fix.Changed(name, text, text, (), stated) for name, text in about.texts.items()]
    looked_at += [_looked_at(asked, chosen, known, path) for path in configs(asked.files)]
    changes = asked.diff and check_fix.show(looked_at)
    if not asked.diff:
        if asked.fix:
            check_fix.write(looked_at)
        _show(asked, chosen, looked_at, _scope(known))
        if asked.fix:
            check_fix.tell(looked_at)
    findings = [finding for file in looked_at for finding in file.left]
    return 0 if asked.exit_zero else int(changes or chosen.fails(findings))


def _looked_at(asked: Asked, chosen: RuleSelection, known: CheckInputs, path: str) -> check_fix.Changed:
    """A file with its findings; with --fix or --diff JSON also as it is when mended, and the findings then."""
    name = STANDARD_INPUT if path == "-" else path
    text = read_text(path, "a ds_config.json", LARGEST_CONFIG)
    if (asked.fix or asked.diff) and not name.endswith(YAML):
        result = mended(text, partial(_of_json, known, name), chosen.kept)
        return check_fix.Changed(name, text, result.text, result.done, without_edits(result.left))
    checked = _checked(path, name, text, known)
    return check_fix.Changed(name, text, text, (), chosen.kept(checked.findings), checked.texts)


def _of_json(known: CheckInputs, name: str, text: str) -> list[Finding]:
    """Of any text of the file: for whom it is and what job it states may change when it is mended."""
    return findings_of(name, text, known.setting, partial(setting_of, known))


def _chosen(asked: Asked) -> RuleSelection:
    if asked.form not in FORMATS:
        raise QuantityError(f"--format: found {shown(asked.form)}, expected {' or '.join(FORMATS)}")
    if asked.files.count("-") > 1:
        raise ContradictionError("standard input is named twice; write - once")
    if asked.fix and not asked.diff and "-" in asked.files:
        raise ContradictionError("--fix writes files and standard input is none; write --diff to see what would change")
    return RuleSelection(names(asked.select), names(asked.ignore), asked.fail_on)


def _known(asked: Asked) -> tuple[CheckInputs, CheckedFiles]:
    """What holds for all files, and what is found in TrainingArguments themselves."""
    arguments, about = None, CheckedFiles()
    if asked.trainer_args is not None:
        text = read_text(asked.trainer_args, "TrainingArguments", LARGEST_CONFIG)
        arguments = read_arguments(asked.trainer_args, text)
        about = CheckedFiles(check_arguments(arguments), {asked.trainer_args: text})
    known = read_known(
        asked.options, reader=asked.reader, accelerator=asked.accelerator, version=asked.version,
        client_optimizer=asked.client_optimizer, arguments=arguments,
    )  # fmt: skip
    return known, about


def _checked(path: str, name: str, text: str, known: CheckInputs) -> CheckedFiles:
    def beside(other: str) -> tuple[str, str] | None:
        """As seen from the file, or from here, which is what Accelerate does."""
        tried = [Path(path).parent / other, Path(other)]
        file = next((str(one) for one in tried if os.path.exists(one)), None)
        return None if file is None else (file, read_text(file, "a ds_config.json", LARGEST_CONFIG))

    return check_file(name, text, known.setting, beside, partial(setting_of, known))


def _scope(known: CheckInputs) -> Scope | None:
    """The job that ZP9 rules speak of; None without a model."""
    if known.model is None:
        return None
    from zeroplan.request.request import read_seq
    from zeroplan.specs.scope import scope

    seq, _assumed = read_seq(known.options.seq, known.model)
    return scope([known.model], seq)


def _show(asked: Asked, chosen: RuleSelection, files: Sequence[check_fix.Changed], planned: Scope | None) -> None:
    from zeroplan.report import check as report

    findings = [finding for file in files for finding in file.left]
    if asked.form not in ("full", "concise"):
        typer.echo(_for_programs(asked.form, findings, [file.path for file in files], chosen, planned))
        return
    for file in files:
        lines_of = {name: text.split("\n") for name, text in {**file.beside, file.path: file.after}.items()}
        for finding in file.left:
            lines = lines_of[finding.file]
            typer.echo(report.concise(finding) if asked.form == "concise" else report.full(finding, lines))
    if planned and asked.form == "full":
        typer.echo(planned.line)
    typer.echo(report.summary(findings, len(files)))


def _for_programs(
    form: str, findings: list[Finding], files: list[str], chosen: RuleSelection, planned: Scope | None
) -> str:  # fmt: skip
    from zeroplan.report import check_formats, machine

    if form == "github":
        return check_formats.github(findings, files)
    if form == "markdown":
        return check_formats.markdown(findings, files)
    if form == "junit":
        return check_formats.junit(findings, files, chosen.fails)
    if form == "sarif":
        return check_formats.sarif(findings)
    return machine.dumps(check_formats.check(findings, files, planned))


def rules(*, json: bool) -> int:
    """All rules."""
    if json:
        from zeroplan.report import check_formats, machine
        from zeroplan.schema.check import Rules

        typer.echo(machine.dumps(Rules(rules=[check_formats.rule(rule) for rule in RULES.values()])))
    else:
        from zeroplan.report import check as report

        typer.echo(report.listed(RULES.values()))
    return 0


def explain(term: str, *, json: bool) -> int | None:
    """One rule; None where the term names none."""
    rule = RULES.get(term.strip().upper())
    if rule is None:
        return None
    if json:
        from zeroplan.report import check_formats, machine
        from zeroplan.schema.explain import ExplainedRule

        typer.echo(machine.dumps(ExplainedRule(rule=check_formats.rule(rule))))
    else:
        from zeroplan.report import check as report

        typer.echo(report.told(rule))
    return 0
