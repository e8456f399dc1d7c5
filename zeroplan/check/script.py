"""The findings of the configs that a launch script gives to the training runs that it starts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from types import MappingProxyType

from zeroplan.catalog.trainers.example_configs import example_config
from zeroplan.catalog.trainers.swift_configs import of_older, own_config
from zeroplan.catalog.trainers.tools import AXOLOTL, LLAMA_FACTORY, SWIFT
from zeroplan.catalog.trainers.trl_configs import own_launch
from zeroplan.check.check import MOST, check, is_current, placed
from zeroplan.check.device_map import DeviceMap, device_map
from zeroplan.check.document import Beside, Document, ValueNode
from zeroplan.check.embedded_python import embedded_python
from zeroplan.check.files import check_config_file
from zeroplan.check.finding import ADVICE, ERROR, Finding, Hit, named, said
from zeroplan.check.inner import OWN_NAME
from zeroplan.check.interpolated import known_of
from zeroplan.check.json_reader import NotReadableError, read_json
from zeroplan.check.kind import DEEPSPEED as KEY
from zeroplan.check.kind import PYTHON, OtherKindError, read_document
from zeroplan.check.launch import DEEPSPEED, FILE, KIND, PRECISION, AccelerateConfig, is_launch
from zeroplan.check.launch_files import read_beside, with_imported
from zeroplan.check.launched import Launch, within
from zeroplan.check.launcher import commands_of, launches
from zeroplan.check.named_config import CheckedFiles, Made, check_arguments, check_names, reached
from zeroplan.check.openrlhf import OpenRLHF
from zeroplan.check.partly_known import alone, decided
from zeroplan.check.python_calls import PIPELINE, builds_pipeline
from zeroplan.check.python_reader import WORDS
from zeroplan.check.rules.hosts import HOST_CHECKS
from zeroplan.check.rules.launch import beside_the_scripts_config
from zeroplan.check.rules.processes import PROCESS_CHECKS, on_one_port
from zeroplan.check.rules.shell_text import TEXT_CHECKS
from zeroplan.check.script_parser import clipped
from zeroplan.check.setting import ACCELERATE, LIGHTNING, TRAINER, Setting
from zeroplan.check.setting import DEEPSPEED as RAW
from zeroplan.check.shell_script import Command
from zeroplan.check.shell_variables import Word
from zeroplan.check.started_scripts import StartedScript, started_scripts
from zeroplan.check.training_file import puts_of
from zeroplan.errors import SpecError

SCRIPTS = "deepspeed, torchrun or accelerate launch with a --deepspeed or --config_file that is there"

NO_BATCH, BATCH = "ZP203", ("train_batch_size", "train_micro_batch_size_per_gpu")
"""The rule on a config without a batch size, which OpenRLHF's defaults give it, and keys that a script's code may set.
"""
OF_SWIFT = "ZP831"
WRITTEN_VALUE = re.compile(r'"\w+": ([\w.]+)')
NOT_TAKEN = "a run in a branch that the script's own variables do not take"
NO_CONFIG = "a script that gives no DeepSpeed config to a training run"
Visit = tuple[str, frozenset[tuple[str, str]]]
"""A script, and what it is handed on."""
MOST_SEEN, LARGEST = 40, 100_000
"""Scripts that one starts, and these in turn, and letters of each."""
NOTHING: Mapping[str, str] = MappingProxyType({})
DEEPEST = 2
"""Scripts that start one another."""
WITHOUT_CONFIG = {
    "openrlhf.cli.": "a script of OpenRLHF, which makes its config of its own options, as --zero_stage",
    "deepspeed_stage_": "a script that names a strategy of Lightning's, which makes its config itself",
    "verl.trainer.": "a script of verl, which trains without DeepSpeed",
}
"""What is in scripts of tools that take no ds_config."""


def started(
    name: str, text: str, setting: Setting, beside: Beside, made: Made, above: tuple[str, ...] = (),
    handed: Mapping[str, str] = NOTHING, seen: set[Visit] | None = None,
) -> CheckedFiles:  # fmt: skip
    """The configs that a script gives to the training runs that it starts, with what it states of each. `above`: the
    scripts that start it; `handed`: what the last of them hands on; `seen`: scripts that were looked at, with that.
    """
    seen = set() if seen is None else seen
    checked, left_out, others = CheckedFiles(texts={name: text}), list[tuple[str, str]](), list[OtherKindError]()
    document = Document(name, text, ValueNode(0, len(text), members=[]))
    several = commands_of(name, text, beside, handed)
    starts = launches(name, text, beside, several)
    for launch in starts:
        if launch.is_left_out:
            left_out.append((f"{name}:{launch.line}", NOT_TAKEN))
            continue
        try:
            files = beside if launch.written is None else launch.written.beside
            inner, why = _started(launch, document, setting, within(launch.folder, files), made)
        except OtherKindError as error:
            others.append(error)
            continue
        checked.findings += [one for one in inner.findings if one not in checked.findings]
        checked.texts |= inner.texts
        checked.notes += [f"{name}:{launch.line}: {note}" for note in inner.notes]
        left_out += [(f"{name}:{launch.line}", why)] if why else []
    if len(checked.texts) > 1 or checked.notes or left_out:
        hits = [hit for rule in TEXT_CHECKS for hit in islice(rule(text), MOST)]
        hits += islice(on_one_port(text, starts), MOST)
        checked.findings += [placed(document, hit) for hit in hits]
    inner = _embedded(name, text, several, setting, beside, made)
    checked.findings += inner.findings
    checked.texts |= inner.texts
    checked.notes += inner.notes
    runs = [*started_scripts(several)] if len(above) < DEEPEST else []
    hindrances = list[SpecError]()
    for script in runs:
        try:
            inner = _started_there(name, script, setting, beside, made, above, seen)
        except SpecError as hindrance:
            hindrances.append(hindrance)
            continue
        checked.findings += [one for one in inner.findings if one not in checked.findings]
        checked.texts |= inner.texts
        checked.notes += [note for note in inner.notes if note not in checked.notes]
    if len(checked.texts) == 1 and not checked.notes and not any(one.severity == ERROR for one in checked.findings):
        if (others or hindrances) and not left_out:
            raise (*others, *hindrances)[0]
        none = f"a script that starts {named(runs[0].name)}, which may give one" if runs else NO_CONFIG
        own = next((said for module, said in WITHOUT_CONFIG.items() if module in text), none)
        place, found = left_out[0] if left_out else (name, own)
        raise SpecError(place, found, SCRIPTS)
    checked.notes += [f"{place}: {found}: not looked at" for place, found in left_out]
    checked.notes += [f"{error}: not looked at" for error in others]
    return checked


def _embedded(
    name: str, text: str, several: Sequence[Command], setting: Setting, beside: Beside, made: Made
) -> CheckedFiles:  # fmt: skip
    """The configs in Python that the script runs itself, which may write them."""
    checked = CheckedFiles()
    codes = (code for code in embedded_python(text, several) if any(word in code for word in WORDS))
    for code in islice(codes, MOST) if any(word in text for word in WORDS) else ():
        from zeroplan.check.python_file import check_python  # where there is such a text

        with suppress(SpecError):
            inner = check_python(name, code, setting, beside, made)
            checked.findings += inner.findings
            checked.texts |= {file: content for file, content in inner.texts.items() if file != name}
            checked.notes += [f"{name}: Python in it has, or names, a config", *inner.notes]
    return checked


def _started_there(
    name: str, script: StartedScript, setting: Setting, beside: Beside, made: Made, above: tuple[str, ...],
    seen: set[Visit],
) -> CheckedFiles:  # fmt: skip
    """What another script starts that this one does; nothing where it is not there. Raises `SpecError` where it starts
    nothing with a config.
    """
    inner = within(script.folder, beside)
    file = read_beside(script.name, inner)
    file = None if file is None or len(file[1]) > LARGEST else file
    visit = None if file is None else (file[0], frozenset(script.handed.items()))
    if file is None or visit is None or file[0] in (name, *above) or visit in seen or len(seen) >= MOST_SEEN:
        return CheckedFiles()
    seen.add(visit)
    checked = started(*file, setting, inner, made, (*above, name), script.handed, seen)
    checked.notes.insert(0, f"{name} starts {file[0]}")
    return checked


def _started(
    launch: Launch, document: Document, setting: Setting, beside: Beside, made: Made
) -> tuple[CheckedFiles, str]:  # fmt: skip
    """What one run is given, and why nothing of that was looked at. Raises `OtherKindError`."""
    word = launch.named
    rules = (*PROCESS_CHECKS, *HOST_CHECKS)
    hits = (hit for rule in rules for hit in rule(launch) if is_current(hit, setting))
    of_processes = [placed(document, hit) for hit in hits]
    checked = CheckedFiles(of_processes if launch.config is not None or word is None else [])
    if word is None:
        return _unnamed(launch, checked, document, setting, beside, made)
    if word.text is None:
        return checked, f"{_by_what(word)} what no line sets"
    if not _is_known(launch):
        part = _part(launch, checked, setting, made)
        return (checked, f"{_by_what(word)} what no line sets") if part is None else (part, "")
    file = _written(word.text, launch, setting) or beside(word.text) or _of_package(word.text, launch)
    older = of_older(word.text) if launch.config is word else ""
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
    checked.findings += inner.findings + (of_processes if launch.config is None else [])  # its file names a config
    checked.texts |= inner.texts
    return replace(checked, notes=_of_launch(launch, file[0], document.name)), ""


def _unnamed(
    launch: Launch, checked: CheckedFiles, document: Document, setting: Setting, beside: Beside, made: Made
) -> tuple[CheckedFiles, str]:  # fmt: skip
    """Of a run whose line names no config: the one that is made of its options, or that its script has."""
    setting = replace(setting, gpus=setting.gpus or launch.gpus)
    inner: CheckedFiles | None = None
    if launch.built is not None:
        note = f"the config that OpenRLHF makes of these options{_on(launch)}"
        inner = CheckedFiles(_built(launch.built, setting, made), notes=[note])
    elif launch.strategy is not None:
        inner = _of_strategy(launch.strategy, document, setting, beside, made)
    else:
        inner = _in_code(launch, setting, beside, made)
    if inner is not None:
        return replace(inner, findings=checked.findings + inner.findings), ""
    return checked, "arguments that no line sets, which may name a config" if launch.is_open else ""


def _of_strategy(word: Word, document: Document, setting: Setting, beside: Beside, made: Made) -> CheckedFiles:
    """The config that Lightning makes of the name of a strategy."""
    from zeroplan.check.yaml_strategies import check_strategy, named_strategy  # where such an option is there

    checked = check_strategy(document, named_strategy(word), setting, beside, made)
    return replace(checked, notes=[f"the config that Lightning makes of {word.text}"])


def _in_code(launch: Launch, setting: Setting, beside: Beside, made: Made) -> CheckedFiles | None:
    """The configs that the script which is started has, or names itself; None for none."""
    from zeroplan.check.python_file import check_python  # where such a script is there

    for file in (launch.code, *(read_beside(name, beside) for name in launch.more)):
        if file is None:
            continue
        with suppress(SpecError):
            checked = check_python(*file, setting, beside, made)
            checked.notes.insert(0, f"{file[0]}, started by {launch.launcher}{_on(launch)}, has or names the config")
            return checked
    return None


def _by_code(launch: Launch, setting: Setting) -> CheckedFiles:
    """What the script that is started stops at: options as it hands them on, and arguments that its release lacks."""
    if launch.python is None:
        return CheckedFiles()
    from zeroplan.check.python_file import calls_refused, options_refused  # where such a script is there

    name, text = launch.python
    with suppress(SpecError):
        stops = calls_refused(name, text, setting)
        if launch.config is not None:
            stops += options_refused(name, text, lambda option: OWN_NAME.fullmatch(option) is not None)
        return CheckedFiles(stops, {name: text} if stops else {})
    return CheckedFiles()


def _of_launch(launch: Launch, file: str, script: str) -> list[str]:
    """Notes on what a run is given."""
    notes = [f"{file}, given to {launch.launcher}{_on(launch)}"]
    if launch.arguments is not None and (other := launch.arguments.document.name) != script:
        notes.append(f"{other} has the script's arguments")
    if launch.script.endswith(PYTHON) and launch.python is None:
        notes.append(f"{launch.script}, which it starts, is not there: what it does is not looked at")
    if launch.leaves_out:
        notes.append(f"{launch.leaves_out}: accelerate launch uses no DeepSpeed")
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
    file = launch.own_part if launch.config is not None else None
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
    if launch.named is launch.accelerate:
        return None
    if text.lstrip().startswith("{"):
        return "--deepspeed", text
    return own_config(text, {} if launch.arguments is None else puts_of(launch.arguments), setting.swift)


def _of_package(text: str, launch: Launch) -> tuple[str, str] | None:
    """A file of `accelerate launch` of TRL's package, or a ds_config of another tool's."""
    if launch.named is launch.accelerate:
        return own_launch(text) if launch.launcher == "trl" else None
    by_name = {"llamafactory-cli": LLAMA_FACTORY, "axolotl": AXOLOTL}.get(launch.launcher)
    return example_config(text, by_name or (launch.arguments.tool if launch.arguments is not None else None))


def _given(launch: Launch, file: tuple[str, str], setting: Setting, beside: Beside, made: Made) -> CheckedFiles:
    """The findings of a config, of a training file's or of Accelerate's, that one run is given."""
    precision = dict(launch.overrides).get(PRECISION)
    setting = replace(
        setting, gpus=setting.gpus or launch.gpus, mixed_precision=precision, accumulates=launch.accumulates,
        device_map=_device_map(launch, beside), clips=clipped(launch.python[1]) if launch.python is not None else "",
        precision=setting.precision or (launch.precision if launch.launcher == "accelerate" else None),
    )  # fmt: skip
    if launch.config is None:
        if launch.training is None and not is_launch(document := read_document(*file, "an Accelerate config")):
            what = "no distributed_type: accelerate launch stops at what is no file of its own"
            hit = Hit("ZP811", next(iter(document.members), ()), what, f"{KIND}: {DEEPSPEED}, and {FILE}: this file")
            return CheckedFiles([placed(document, hit)], {file[0]: file[1]})
        own = launch.arguments if setting.arguments is None and launch.training is None else None
        setting = replace(setting, arguments=setting.arguments or launch.arguments)
        checked = check_config_file(*file, setting, beside, made, launch.overrides)
        if own is not None:
            checked.findings += check_arguments(own, setting)
            checked.texts[own.document.name] = own.document.text
        return _with_launchers(checked, launch, beside) if launch.training is not None else checked
    checked = CheckedFiles()
    setting = replace(setting, by_launcher=launch.reader == ACCELERATE)
    if launch.code is not None and PIPELINE in launch.code[1]:  # whose stages share a micro-batch
        gpus = None if setting.gpus == launch.gpus else setting.gpus
        setting = replace(setting, pipeline=builds_pipeline(launch.code[1]), gpus=gpus)
    setting = replace(setting, pipeline=setting.pipeline or launch.pipeline)
    if launch.arguments is not None and launch.reader in (TRAINER, ACCELERATE):
        setting = replace(setting, reader=TRAINER, arguments=launch.arguments)
        checked.findings += check_arguments(launch.arguments, setting)
        checked.texts[launch.arguments.document.name] = launch.arguments.document.text
    elif launch.stated is not None and launch.reader in (TRAINER, ACCELERATE):
        checked.findings += check_names(launch.stated, setting)
    if launch.reader == LIGHTNING:
        setting = replace(setting, reader=LIGHTNING, reader_is_known=True)
    elif launch.reader == RAW or launch.unknown:
        setting = replace(setting, reader=TRAINER if launch.unknown else RAW, reader_is_known=True)
    findings, checked.texts[file[0]] = reached(*file, setting, made)
    by_code = launch.code is not None and any(name in launch.code[1] for name in BATCH)
    checked.findings += [one for one in findings if not (by_code and one.rule == NO_BATCH)]
    return _with_launchers(checked, launch, beside) if launch.reader in (TRAINER, ACCELERATE) else checked


def _device_map(launch: Launch, beside: Beside) -> DeviceMap | None:
    """Where the script that is started, or a file of the project that it imports, places its model."""
    options = {} if launch.stated is None else launch.stated.document.config
    files = () if launch.python is None else with_imported(launch.python, beside)
    return next(filter(None, (device_map(*file, options) for file in files)), None)


def _with_launchers(checked: CheckedFiles, launch: Launch, beside: Beside) -> CheckedFiles:
    """With what is wrong of a file of `accelerate launch` beside a config that the script itself is given."""
    config, word = launch.named, launch.accelerate
    file = beside(word.text) if word is not None and word.text else None
    if file is None or config is None:
        return checked
    try:
        document = read_document(*file, "an Accelerate config")
    except NotReadableError:
        return checked
    by = "--deepspeed_config_file" if launch.reader == ACCELERATE else "the script's own deepspeed"
    hits = beside_the_scripts_config(AccelerateConfig(document, dict(launch.overrides)), config.text or "", by)
    checked.findings += [placed(document, hit) for hit in islice(hits, MOST)]
    checked.texts[file[0]] = file[1]
    return checked
