"""`zeroplan check` and `zeroplan rules`."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import click

from zeroplan.catalog.files import LARGEST_CONFIG, LARGEST_FILE, STANDARD_INPUT, beside, read_text
from zeroplan.check.accepted import WHAT, baseline, is_new, not_ignored, read_baseline
from zeroplan.check.any_file import check_file
from zeroplan.check.arguments import read_arguments
from zeroplan.check.chosen import RuleSelection, names
from zeroplan.check.files import is_other
from zeroplan.check.finding import ERROR, WARNING, Finding
from zeroplan.check.folder import configs
from zeroplan.check.kind import OtherKindError, is_data, is_notebook
from zeroplan.check.mended import mended
from zeroplan.check.named_config import CheckedFiles, check_arguments, findings_of
from zeroplan.check.project_readers import with_batch_put_in, without_own_arguments
from zeroplan.check.proposed import without_edits
from zeroplan.check.rules import RULES
from zeroplan.cli import check_fix
from zeroplan.deepspeed.files import write_all
from zeroplan.deepspeed.versions import last_of_each_minor
from zeroplan.errors import ContradictionError, QuantityError, SpecError, ZeroplanError, printable, shown
from zeroplan.releases import number
from zeroplan.request.check_setting import CheckInputs, read_inputs, setting_of
from zeroplan.request.options import Options
from zeroplan.sources import DEEPSPEED

if TYPE_CHECKING:
    from zeroplan.check.accelerate_config import AccelerateConfig
    from zeroplan.check.document import Document
    from zeroplan.check.requirement import Requirement
    from zeroplan.check.setting import Setting
    from zeroplan.specs.job import Job
    from zeroplan.specs.scope import Scope

LARGE = 50_000
"""Letters of a file, and of those that it names, that are not looked at again with older releases."""
UNREAD, OF_TRAINER, OF_OTHERS = ("ZP101", "ZP102"), ("ZP205", "ZP620"), "ZP8"
"""Rules on text that no reader takes, whatever its release, those of the Trainer, and the first that DeepSpeed's does
not bear on.
"""
COMPARES_SINCE = "4.30.0"
"""The first transformers that is known, whose Trainer compares its arguments with the config."""
FORMATS = ("full", "concise", "json", "github", "sarif", "markdown", "junit")
PACKAGES = {"transformers": "transformers", "accelerate": "accelerate", "swift": "ms-swift", "trl": "trl",
            "llama_factory": "llamafactory", "openrlhf": "openrlhf"}  # fmt: skip
"""What a project may ask for beside DeepSpeed, by the field of the setting."""


class CheckCommand(NamedTuple):
    """What was typed."""

    files: Sequence[str]
    options: Options
    reader: str | None
    trainer_args: str | None
    client_optimizer: str | None
    accelerator: str
    version: str | None
    form: str
    select: Sequence[str]
    ignore: Sequence[str]
    fail_on: str
    exit_zero: bool
    fix: bool = False
    diff: bool = False
    upgrade: str | None = None
    baseline: str | None = None
    write_baseline: str | None = None
    explains: bool = False
    transformers: str | None = None
    accelerate: str | None = None


def run(command: CheckCommand) -> int:
    """0 when nothing is found that counts, 1 when something is (with --diff also when something would be mended)."""
    chosen = _chosen(command)
    inputs, about = _inputs(command)
    stated = chosen.kept(about.findings)
    looked_at = [check_fix.Changed(name, text, text, (), stated) for name, text in about.texts.items()]
    jobs: list[Job] = []
    several, failed = _each(command, chosen, inputs, jobs)
    looked_at += several
    looked_at = _accepted(command, _each_once(looked_at))
    changes = command.diff and check_fix.show(looked_at)
    if not command.diff:
        if command.fix:
            check_fix.write(looked_at)
        _show(command, chosen, looked_at, _scope(inputs, jobs))
        if command.fix:
            check_fix.tell(looked_at)
    findings = [finding for file in looked_at for finding in file.left]
    return 0 if command.exit_zero else int(changes or failed or chosen.fails(findings))


def _each(
    command: CheckCommand, chosen: RuleSelection, inputs: CheckInputs, jobs: list[Job]
) -> tuple[list[check_fix.Changed], bool]:  # fmt: skip
    """The files that are named and those of folders; of a folder's, one that cannot be looked at is said on standard
    error, and the rest is looked at. And whether one of these is wrong, not just another's. Raises `ZeroplanError`
    where nothing is left.
    """
    looked_at, errors = list[check_fix.Changed](), list[ZeroplanError]()
    for path in configs(command.files):
        try:
            looked_at.append(_looked_at(command, chosen, inputs, path, jobs))
        except ZeroplanError as error:
            if path in command.files:
                raise
            errors.append(error)
    if errors and not looked_at:
        raise errors[0]
    for hindrance in errors:
        click.echo(f"zeroplan: {hindrance}: not looked at", err=True)
    return looked_at, any(not isinstance(one, OtherKindError) for one in errors)


def _looked_at(
    command: CheckCommand, chosen: RuleSelection, inputs: CheckInputs, path: str, jobs: list[Job]
) -> check_fix.Changed:  # fmt: skip
    """A file with its findings; with --fix or --diff JSON also as it is when mended, and the findings then. `jobs`: to
    which the job is added that it states with the model.
    """
    name = STANDARD_INPUT if path == "-" else path
    text = read_text(path, "a ds_config.json", LARGEST_FILE if is_notebook(path) else LARGEST_CONFIG)
    inputs, required = _as_required(inputs, path)
    notes = [] if required is None or required.version == DEEPSPEED else [required.line]
    if (command.fix or command.diff) and not is_other(name, text):
        result = mended(text, partial(_of_json, inputs, name), chosen.kept)
        return check_fix.Changed(name, text, result.text, result.done, without_edits(result.left), notes=notes)
    before = len(jobs)
    checked = _checked(path, name, text, inputs, jobs)
    if required is not None and required.is_uncertain:
        compares = number(inputs.setting.transformers or required.of_its_time) >= number(COMPARES_SINCE)
        surely = (*UNREAD, *OF_TRAINER) if compares else UNREAD
        checked = replace(checked, findings=[_uncertain(one, surely) for one in checked.findings])
    if len(jobs) > before and inputs.setting.version != DEEPSPEED:
        notes = [*notes, f"what fits is counted as DeepSpeed {DEEPSPEED} holds it"]
    if (older := inputs.setting.upgrades_from) is not None:
        checked = _changes(checked, _checked(path, name, text, inputs.of_version(older), []), inputs.setting)
    elif (command.form == "full" and required is None and not inputs.setting.version_is_stated
          and sum(map(len, (text, *checked.texts.values()))) < LARGE):  # fmt: skip
        notes += _older_that_takes(chosen, checked, name, lambda older: _checked(
            path, name, text, inputs.of_version(older), []))  # fmt: skip
    return check_fix.Changed(name, text, text, (), chosen.kept(checked.findings), checked.texts,
                             [*notes, *checked.notes])  # fmt: skip


def _older_that_takes(
    chosen: RuleSelection, checked: CheckedFiles, name: str, as_of: Callable[[str], CheckedFiles]
) -> list[str]:  # fmt: skip
    """A line on an older DeepSpeed without the errors of the newest, which is meant where no file states another."""
    if not _stops(chosen, checked):
        return []
    takes = next((older for older in last_of_each_minor() if not _stops(chosen, as_of(older))), None)
    if takes is None:
        return []
    newest = f"{printable(name)}: no file states a release of DeepSpeed, and {DEEPSPEED} is meant"
    return [f"{newest}; {takes} stops at none of this: deepspeed=={takes} in requirements.txt, or --deepspeed {takes}"]


def _stops(chosen: RuleSelection, checked: CheckedFiles) -> bool:
    return any(one.severity == ERROR for one in chosen.kept(checked.findings))


def _changes(newer: CheckedFiles, older: CheckedFiles, setting: Setting) -> CheckedFiles:
    """What the newer version says and the older does not."""
    before, after = ({(one.rule, one.file, one.path) for one in of.findings} for of in (older, newer))
    left = [one for one in newer.findings if (one.rule, one.file, one.path) not in before]
    stay, go = len(before & after), len(before - after)
    note = f"DeepSpeed {setting.upgrades_from} to {setting.version}: findings of both {stay}, of the older alone {go}"
    return replace(newer, findings=left, notes=[*newer.notes, note])


def _as_required(inputs: CheckInputs, path: str) -> tuple[CheckInputs, Requirement | None]:
    """The inputs with the versions that a file's project asks for, where no option says one; and where it asks for a
    DeepSpeed.
    """
    if path == "-":
        return inputs, None
    from zeroplan.check.requirement import requirement_of

    setting = inputs.setting
    for name, package in PACKAGES.items():
        if getattr(setting, name) is None and (required := requirement_of(path, package)) is not None:
            setting = replace(setting, **{name: required.version})  # type: ignore[arg-type]
    inputs = inputs._replace(setting=setting)
    if inputs.setting.version_is_stated or (required := requirement_of(path)) is None:
        return inputs, None
    return inputs.of_version(required.nearest), required


def _uncertain(finding: Finding, surely: Sequence[str]) -> Finding:
    """What a release stops at of which nothing is known, where the file itself can be read; launchers, trainers and
    scripts have releases of their own.
    """
    if finding.severity != ERROR or finding.rule in surely or finding.rule >= OF_OTHERS:
        return finding
    return replace(finding, severity=WARNING)


def _each_once(files: Sequence[check_fix.Changed]) -> list[check_fix.Changed]:
    """The files with each finding once: a config may be looked at by itself, and for every file that names it."""
    seen: set[tuple[str, ...]] = set()
    once = []
    for file in files:
        left = {(one.rule, one.file, str(one.line), one.path, one.message, one.write): one for one in file.left}
        once.append(file._replace(left=[one for key, one in left.items() if key not in seen]))
        seen |= left.keys()
    return once


def _of_json(inputs: CheckInputs, name: str, text: str) -> list[Finding]:
    """Findings of any text of the file: its reader and the job that it states may change when it is mended."""
    return findings_of(name, text, inputs.setting, partial(setting_of, inputs))


def _accepted(command: CheckCommand, files: Sequence[check_fix.Changed]) -> list[check_fix.Changed]:
    """Without what comments silence and a baseline has; --write-baseline makes all that is left its own."""
    files = [file._replace(left=not_ignored(file.left, {**file.beside, file.path: file.after})) for file in files]
    if (target := command.write_baseline) is not None:
        if os.path.exists(target):
            read_baseline(target, read_text(target, WHAT, LARGEST_CONFIG))  # nothing else is replaced
        findings = [finding for file in files for finding in file.left]
        write_all({target: baseline(target, findings)}, force=True, named=lambda path: path)
        click.echo(f"{printable(target)}: {len(findings)} finding{'s' * (len(findings) != 1)} accepted", err=True)
        return [file._replace(left=[]) for file in files]
    if command.baseline is None:
        return files
    accepted = read_baseline(command.baseline, read_text(command.baseline, WHAT, LARGEST_CONFIG))
    files = [file._replace(left=is_new(command.baseline, accepted, file.left)) for file in files]
    if gone := accepted.total():
        place, several = printable(command.baseline), "s" * (gone != 1)
        click.echo(f"{place}: {gone} accepted finding{several} no longer there", err=True)
    return files


def _chosen(command: CheckCommand) -> RuleSelection:
    if command.form not in FORMATS:
        raise QuantityError(f"--format: found {shown(command.form)}, expected {' or '.join(FORMATS)}")
    if command.files.count("-") > 1:
        raise ContradictionError("standard input is named twice; write - once")
    if command.fix and not command.diff and "-" in command.files:
        raise ContradictionError("--fix writes files and standard input is none; write --diff to see what would change")
    if command.upgrade is not None and (command.fix or command.diff):
        raise ContradictionError("--upgrade says what changes and mends nothing; write --deepspeed 0.19.8 --fix")
    return RuleSelection(names(command.select), names(command.ignore), command.fail_on)


def _inputs(command: CheckCommand) -> tuple[CheckInputs, CheckedFiles]:
    """What holds for all files, and what is found in TrainingArguments themselves."""
    arguments, text, about = None, "", CheckedFiles()
    if command.trainer_args is not None:
        text = read_text(command.trainer_args, "TrainingArguments", LARGEST_CONFIG)
        arguments = read_arguments(command.trainer_args, text)
    inputs = read_inputs(
        command.options, reader=command.reader, accelerator=command.accelerator, version=command.version,
        client_optimizer=command.client_optimizer, arguments=arguments, upgrade=command.upgrade,
        transformers=command.transformers, accelerate=command.accelerate,
    )  # fmt: skip
    if arguments is not None:
        own, _lines = _as_required(inputs, arguments.document.name)
        about = CheckedFiles(check_arguments(arguments, own.setting), {arguments.document.name: text})
    return inputs, about


def _checked(path: str, name: str, text: str, inputs: CheckInputs, jobs: list[Job]) -> CheckedFiles:
    def named(other: str) -> tuple[str, str] | None:
        file = next(filter(os.path.exists, beside(path, other)), None)
        return None if file is None else (file, read_text(file, "a ds_config.json", LARGEST_CONFIG))

    def made(document: Document, setting: Setting, accelerate: AccelerateConfig | None) -> Setting:
        setting = setting_of(inputs, document, setting, accelerate)
        taken.extend(setting.planned.taken if setting.planned is not None else ())
        if setting.planned is not None and setting.planned.job is not None:
            jobs.append(setting.planned.job)
        return setting

    taken: list[str] = []
    try:
        checked = check_file(name, text, inputs.setting, named, made)
    except RecursionError as error:
        raise SpecError(name, "text that is nested too deep", "a file that people write") from error
    if inputs.reader is None and path != "-" and not is_other(name, text):
        checked = replace(checked, findings=with_batch_put_in(checked.findings, path))
    if path != "-" and is_data(name):
        checked = replace(checked, findings=without_own_arguments(checked.findings, path))
    return replace(checked, notes=[*checked.notes, *dict.fromkeys(taken)])


def _scope(inputs: CheckInputs, jobs: Sequence[Job]) -> Scope | None:
    """The jobs that ZP9 rules speak of; None without a model."""
    if inputs.model is None and not jobs:
        return None
    from zeroplan.request.request import read_seq
    from zeroplan.specs.scope import scope

    if jobs:
        whole = scope([job.model for job in jobs], jobs[0].workload.seq)
        several = [scope([job.model], job.workload.seq) for job in jobs]
        return whole._replace(trains=" or ".join(dict.fromkeys(one.trains for one in several)))
    assert inputs.model is not None
    seq, _assumed = read_seq(inputs.options.seq, inputs.model)
    return scope([inputs.model], seq)


def _show(
    command: CheckCommand, chosen: RuleSelection, files: Sequence[check_fix.Changed], planned: Scope | None
) -> None:
    from zeroplan.report import check as report

    findings = [finding for file in files for finding in file.left]
    if command.form not in ("full", "concise"):
        click.echo(_for_programs(command.form, findings, [file.path for file in files], chosen, planned))
        return
    for file in files:
        lines_of = {name: text.split("\n") for name, text in {**file.beside, file.path: file.after}.items()}
        for finding in file.left:
            lines = lines_of[finding.file]
            click.echo(_line(command, finding, lines))
    if command.form == "full":
        notes = dict.fromkeys(note for file in files for note in file.notes)
        for note in [*notes, *([planned.line] if planned else [])]:
            click.echo(note)
    click.echo(report.summary(findings, len(files)))


def _line(command: CheckCommand, finding: Finding, lines: list[str]) -> str:
    from zeroplan.report import check as report

    if command.form == "concise":
        return report.concise(finding)
    return report.full(finding, lines) + (report.why(RULES[finding.rule]) if command.explains else "")


def _for_programs(
    form: str, findings: list[Finding], files: list[str], chosen: RuleSelection, planned: Scope | None
) -> str:  # fmt: skip
    from zeroplan.report import check_formats, json_objects

    if form == "github":
        return check_formats.github(findings, files)
    if form == "markdown":
        return check_formats.markdown(findings, files)
    if form == "junit":
        return check_formats.junit(findings, files, chosen.fails)
    if form == "sarif":
        return check_formats.sarif(findings)
    return json_objects.dumps(check_formats.check(findings, files, planned))


def rules(*, json: bool) -> int:
    """List all rules."""
    if json:
        from zeroplan.report import check_formats, json_objects
        from zeroplan.schema.check import Rules

        click.echo(json_objects.dumps(Rules(rules=[check_formats.rule(rule) for rule in RULES.values()])))
    else:
        from zeroplan.report import check as report

        click.echo(report.listed(RULES.values()))
    return 0


def explain(term: str, *, json: bool) -> int | None:
    """One rule; None where the term names none."""
    rule = RULES.get(term.strip().upper())
    if rule is None:
        return None
    if json:
        from zeroplan.report import check_formats, json_objects
        from zeroplan.schema.explain import ExplainedRule

        click.echo(json_objects.dumps(ExplainedRule(rule=check_formats.rule(rule))))
    else:
        from zeroplan.report import check as report

        click.echo(report.explanation(rule))
    return 0
