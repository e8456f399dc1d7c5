"""The findings of one training run that a script starts, of the config that it is given and of its processes."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from zeroplan.catalog.trainers.example_configs import example_config
from zeroplan.catalog.trainers.swift_configs import of_older, own_config
from zeroplan.catalog.trainers.tools import AXOLOTL, LLAMA_FACTORY, SWIFT
from zeroplan.catalog.trainers.trl_configs import own_accelerate_config
from zeroplan.check.accelerate_config import DEEPSPEED, FILE, KIND, PRECISION, AccelerateConfig, is_accelerate_config
from zeroplan.check.check import MOST, check, is_current, placed
from zeroplan.check.device_map import DeviceMap, device_map
from zeroplan.check.document import Beside, Document
from zeroplan.check.files import check_config_file
from zeroplan.check.finding import ADVICE, Finding, Hit, said
from zeroplan.check.inner import OWN_NAME
from zeroplan.check.interpolated import known_of
from zeroplan.check.json_reader import NotReadableError, read_json
from zeroplan.check.kind import DEEPSPEED as KEY
from zeroplan.check.kind import PYTHON, read_document
from zeroplan.check.launch_files import read_beside, with_imported
from zeroplan.check.launched import Launch
from zeroplan.check.named_config import CheckedFiles, Made, check_arguments, check_names, reached
from zeroplan.check.openrlhf import OpenRLHF
from zeroplan.check.partly_known import alone, decided
from zeroplan.check.python_calls import PIPELINE, builds_pipeline
from zeroplan.check.rules.accelerate import beside_the_scripts_config
from zeroplan.check.rules.batch import NO_BATCH
from zeroplan.check.rules.hosts import HOST_CHECKS
from zeroplan.check.rules.processes import PROCESS_CHECKS, named_otherwise
from zeroplan.check.script_arguments import hands_to_trainer
from zeroplan.check.script_parser import clipped
from zeroplan.check.setting import ACCELERATE, LIGHTNING, TRAINER, Setting
from zeroplan.check.setting import DEEPSPEED as RAW
from zeroplan.check.shell_variables import Word
from zeroplan.check.training_file import puts_of
from zeroplan.errors import SpecError

BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu")
"""Keys that a script's code may set."""
OF_SWIFT = "ZP831"
WRITTEN_VALUE = re.compile(r'"\w+": ([\w.]+)')


def check_run(
    launch: Launch, document: Document, setting: Setting, beside: Beside, made: Made
) -> tuple[CheckedFiles, str]:  # fmt: skip
    """What one run is given, and why nothing of that was looked at. Raises `OtherKindError`."""
    word = launch.config.word
    rules = (*PROCESS_CHECKS, *HOST_CHECKS)
    hits = (hit for rule in rules for hit in rule(launch) if is_current(hit, setting))
    of_processes = [placed(document, hit) for hit in hits]
    checked = CheckedFiles(of_processes if launch.config.file is not None or word is None else [])
    if word is None:
        return _unnamed(launch, checked, document, setting, beside, made)
    if word.text is None:
        return checked, f"{_by_what(word)} what no line sets"
    if not _is_known(launch):
        part = _part(launch, checked, setting, made)
        return (checked, f"{_by_what(word)} what no line sets") if part is None else (part, "")
    file = _written(word.text, launch, setting) or beside(word.text) or _of_package(word.text, launch)
    older = of_older(word.text) if launch.config.file is word else ""
    if file is None and older and launch.stated is not None and launch.stated.tool == SWIFT:
        checked.findings += check_names(launch.stated, setting)
        return replace(checked, notes=[f"{said(word.text)}{older}"]), ""
    if file is None:
        return checked, f"{said(word.text)}, which is not there{older}"
    inner = _given(launch, file, setting, beside, made)
    inner.findings = [one for one in inner.findings if not (older and one.rule == OF_SWIFT and one.path == KEY)]
    by_code = _by_code(launch, setting)
    checked.findings += by_code.findings
    checked.texts |= by_code.texts
    checked.findings += inner.findings + (of_processes if launch.config.file is None else [])  # its file names a config
    checked.texts |= inner.texts
    return replace(checked, notes=_of_launch(launch, file[0], document.name)), ""


def _unnamed(
    launch: Launch, checked: CheckedFiles, document: Document, setting: Setting, beside: Beside, made: Made
) -> tuple[CheckedFiles, str]:  # fmt: skip
    """Of a run whose line names no config: the one that is made of its options, or that its script has."""
    setting = replace(setting, gpus=setting.gpus or launch.gpus)
    inner: CheckedFiles | None = None
    if launch.built is not None:
        hits = named_otherwise(launch, setting.openrlhf)
        checked.findings += [placed(document, hit) for hit in hits]
        note = f"the config that OpenRLHF makes of these options{_on(launch)}"
        inner = CheckedFiles(_built(launch.built, setting, made), notes=[note])
    elif launch.config.strategy is not None:
        inner = _of_strategy(launch.config.strategy, document, setting, beside, made)
    else:
        inner = _in_code(launch, setting, beside, made)
    if inner is not None:
        return replace(inner, findings=checked.findings + inner.findings), ""
    return checked, "arguments that no line sets, which may name a config" if launch.config.is_open else ""


def _of_strategy(word: Word, document: Document, setting: Setting, beside: Beside, made: Made) -> CheckedFiles:
    """The config that Lightning makes of the name of a strategy."""
    from zeroplan.check.yaml_strategies import check_strategy, named_strategy  # where such an option is there

    checked = check_strategy(document, named_strategy(word), setting, beside, made)
    return replace(checked, notes=[f"the config that Lightning makes of {word.text}"])


def _in_code(launch: Launch, setting: Setting, beside: Beside, made: Made) -> CheckedFiles | None:
    """The configs that the script which is started has, or names itself; None for none."""
    from zeroplan.check.python_file import check_python  # where such a script is there

    for file in (launch.script.code, *(read_beside(name, beside) for name in launch.script.more)):
        if file is None:
            continue
        with suppress(SpecError):
            checked = check_python(*file, setting, beside, made)
            checked.notes.insert(0, f"{file[0]}, started by {launch.launcher}{_on(launch)}, has or names the config")
            return checked
    return None


def _by_code(launch: Launch, setting: Setting) -> CheckedFiles:
    """What the script that is started stops at: options as it hands them on, and arguments that its release lacks."""
    if launch.script.file is None:
        return CheckedFiles()
    from zeroplan.check.python_file import calls_refused, options_refused  # where such a script is there

    name, text = launch.script.file
    with suppress(SpecError):
        stops = calls_refused(name, text, setting)
        if launch.config.file is not None:
            stops += options_refused(name, text, lambda option: OWN_NAME.fullmatch(option) is not None)
        return CheckedFiles(stops, {name: text} if stops else {})
    return CheckedFiles()


def _of_launch(launch: Launch, file: str, script: str) -> list[str]:
    """Notes on what a run is given."""
    notes = [f"{file}, given to {launch.launcher}{_on(launch)}"]
    if launch.arguments is not None and (other := launch.arguments.document.name) != script:
        notes.append(f"{other} has the script's arguments")
    if launch.script.name.endswith(PYTHON) and launch.script.file is None:
        notes.append(f"{launch.script.name}, which it starts, is not there: what it does is not looked at")
    if launch.config.leaves_out:
        notes.append(f"{launch.config.leaves_out}: accelerate launch uses no DeepSpeed")
    return notes + [f"--{each}, whose value no line sets: not compared" for each in launch.unknown]


def _on(launch: Launch) -> str:
    return f", on {launch.gpus} GPU{'s' * (launch.gpus > 1)}" if launch.gpus else ""


def _built(built: OpenRLHF, setting: Setting, made: Made) -> list[Finding]:
    """The findings of a config that stands nowhere, at the options that it is made of."""
    document = built.config()
    setting = replace(setting, reader=RAW, reader_is_known=True)
    findings = check(document, made(document, setting, None))
    return [replace(one, edits=(), write=_as_option(one, built)) for one in findings
            if one.severity != ADVICE and one.rule != NO_BATCH]  # fmt: skip


def _as_option(finding: Finding, built: OpenRLHF) -> str:
    """What to write on the line of a command in place of JSON."""
    option = built.option(tuple(finding.path.split(".")))
    value = WRITTEN_VALUE.fullmatch(finding.write)
    if value is None or not option:
        return "--bf16" if finding.write.startswith('"bf16"') else "delete the option"
    return f"{option} {value[1]}"


def _part(launch: Launch, checked: CheckedFiles, setting: Setting, made: Made) -> CheckedFiles | None:
    """What is known of a ds_config that the script writes with values which no line sets, behind what else is."""
    file = launch.own_part if launch.config.file is not None else None
    if file is None:
        return None
    try:
        known = known_of(read_json(*file))
    except NotReadableError:
        return None
    findings = alone(known.document, known.unknown, setting, made)
    note = f"{file[0]}, given to {launch.launcher}; {decided('what no line sets', known.unknown)}"
    return CheckedFiles(checked.findings + findings, {file[0]: file[1]}, [note])


def _is_known(launch: Launch) -> bool:
    """Whether the config is, where the script itself writes it."""
    return launch.own is None or launch.own_file is not None


def _by_what(word: Word | None) -> str:
    if word is None or word.text is None:
        return "a config whose name follows from"
    return f"{said(word.text)}, which the script writes with"


def _written(text: str, launch: Launch, setting: Setting) -> tuple[str, str] | None:
    """A config as a text of JSON, or of ms-swift's package, where it is no file of `accelerate launch`."""
    if launch.own is not None:
        return launch.own_file
    if launch.config.word is launch.config.accelerate:
        return None
    if text.lstrip().startswith("{"):
        return "--deepspeed", text
    return own_config(text, {} if launch.arguments is None else puts_of(launch.arguments), setting.swift)


def _of_package(text: str, launch: Launch) -> tuple[str, str] | None:
    """A file of `accelerate launch` of TRL's package, or a ds_config of another tool's."""
    if launch.config.word is launch.config.accelerate:
        return own_accelerate_config(text) if launch.launcher == "trl" else None
    by_name = {"llamafactory-cli": LLAMA_FACTORY, "axolotl": AXOLOTL}.get(launch.launcher)
    return example_config(text, by_name or (launch.arguments.tool if launch.arguments is not None else None))


def _given(launch: Launch, file: tuple[str, str], setting: Setting, beside: Beside, made: Made) -> CheckedFiles:
    """The findings of a config, of a training file's or of Accelerate's, that one run is given."""
    script, by_accelerate = launch.script, launch.launcher == "accelerate"
    setting = replace(
        setting, gpus=setting.gpus or launch.gpus, mixed_precision=dict(launch.config.overrides).get(PRECISION),
        accumulates=script.accumulates, device_map=_device_map(launch, beside),
        clips=clipped(script.file[1]) if script.file is not None else "",
        precision=setting.precision or (script.precision if by_accelerate else None),
    )  # fmt: skip
    own = _own_config if launch.config.file is not None else _other_file
    return own(launch, file, setting, beside, made)


def _other_file(launch: Launch, file: tuple[str, str], setting: Setting, beside: Beside, made: Made) -> CheckedFiles:
    """The findings of a training file or of Accelerate's."""
    is_training = launch.config.training is not None
    if not is_training and not is_accelerate_config(document := read_document(*file, "an Accelerate config")):
        what = "no distributed_type: accelerate launch stops at what is no file of its own"
        hit = Hit("ZP811", next(iter(document.members), ()), what, f"{KIND}: {DEEPSPEED}, and {FILE}: this file")
        return CheckedFiles([placed(document, hit)], {file[0]: file[1]})
    own = launch.arguments if setting.arguments is None and not is_training else None
    setting = replace(setting, arguments=setting.arguments or launch.arguments)
    checked = check_config_file(*file, setting, beside, made, launch.config.overrides)
    if own is not None:
        checked.findings += check_arguments(own, setting)
        checked.texts[own.document.name] = own.document.text
    return _with_launchers(checked, launch, beside) if is_training else checked


def _own_config(launch: Launch, file: tuple[str, str], setting: Setting, beside: Beside, made: Made) -> CheckedFiles:
    """The findings of a ds_config."""
    checked, reader, code = CheckedFiles(), launch.config.reader, launch.script.code
    by_trainer = reader in (TRAINER, ACCELERATE)
    setting = replace(setting, by_launcher=reader == ACCELERATE)
    if code is not None and PIPELINE in code[1]:  # whose stages share a micro-batch
        gpus = None if setting.gpus == launch.gpus else setting.gpus
        setting = replace(setting, pipeline=builds_pipeline(code[1]), gpus=gpus)
    setting = replace(setting, pipeline=setting.pipeline or launch.script.pipeline)
    if launch.arguments is not None and by_trainer:
        setting = replace(setting, reader=TRAINER, arguments=launch.arguments)
        checked.findings += check_arguments(launch.arguments, setting)
        checked.texts[launch.arguments.document.name] = launch.arguments.document.text
    elif launch.stated is not None and by_trainer:
        checked.findings += check_names(launch.stated, setting)
    if reader == LIGHTNING:
        setting = replace(setting, reader=LIGHTNING, reader_is_known=True)
    elif reader == RAW or launch.unknown:
        to_trainer = launch.unknown or (launch.script.file is not None and hands_to_trainer(launch.script.file[1]))
        setting = replace(setting, reader=TRAINER if to_trainer else RAW, reader_is_known=True)
    findings, checked.texts[file[0]] = reached(*file, setting, made)
    by_code = code is not None and any(name in code[1] for name in BATCH)
    checked.findings += [one for one in findings if not (by_code and one.rule == NO_BATCH)]
    return _with_launchers(checked, launch, beside) if by_trainer else checked


def _device_map(launch: Launch, beside: Beside) -> DeviceMap | None:
    """Where the script that is started, or a file of the project that it imports, places its model."""
    options = {} if launch.stated is None else launch.stated.document.config
    files = () if launch.script.file is None else with_imported(launch.script.file, beside)
    return next(filter(None, (device_map(*file, options) for file in files)), None)


def _with_launchers(checked: CheckedFiles, launch: Launch, beside: Beside) -> CheckedFiles:
    """With what is wrong of a file of `accelerate launch` beside a config that the script itself is given."""
    config, word = launch.config.word, launch.config.accelerate
    file = beside(word.text) if word is not None and word.text else None
    if file is None or config is None:
        return checked
    try:
        document = read_document(*file, "an Accelerate config")
    except NotReadableError:
        return checked
    by = "--deepspeed_config_file" if launch.config.reader == ACCELERATE else "the script's own deepspeed"
    hits = beside_the_scripts_config(AccelerateConfig(document, dict(launch.config.overrides)), config.text or "", by)
    checked.findings += [placed(document, hit) for hit in islice(hits, MOST)]
    checked.texts[file[0]] = file[1]
    return checked
