"""The findings of a training file, the Trainer's or another tool's, and of the ds_config that it names or holds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from zeroplan.catalog.trainers.example_configs import example_config, is_example
from zeroplan.catalog.trainers.swift_configs import PUTS, of_older, own_config
from zeroplan.catalog.trainers.tools import LLAMA_FACTORY, LLAMA_FACTORY_1, SWIFT, TRL, tool_of
from zeroplan.catalog.trainers.tools import TRAINER as TRAINER_FILE
from zeroplan.catalog.trainers.trl_configs import DEEPSPEED as OWN
from zeroplan.catalog.trainers.trl_configs import WITHOUT, own_accelerate_config
from zeroplan.check.accelerate_config import AccelerateConfig
from zeroplan.check.accelerate_file import check_accelerate_config
from zeroplan.check.arguments import Arguments, has_own
from zeroplan.check.check import check
from zeroplan.check.document import Beside, Document, Member
from zeroplan.check.finding import ADVICE, ERROR, said
from zeroplan.check.interpolated import is_interpolated, known_of
from zeroplan.check.kind import DEEPSPEED, OtherKindError, block, read_document
from zeroplan.check.launch_files import document_of
from zeroplan.check.named_config import CheckedFiles, Made, check_arguments, check_arguments_alone, reached, twice
from zeroplan.check.partly_known import of_interpolated
from zeroplan.check.setting import ACCELERATE, TRAINER, Setting
from zeroplan.errors import SpecError

LAUNCH = "accelerate_config"
"""The key of a file of TRL that names one of `accelerate launch`."""


def check_training(arguments: Arguments, setting: Setting, beside: Beside, made: Made) -> CheckedFiles:
    """The config that `deepspeed` names, or is."""
    document = arguments.document
    if arguments.tool == LLAMA_FACTORY_1:
        return _by_v1(document, setting, beside, made)
    member = document.members.get((DEEPSPEED,))
    if arguments.tool == TRL and (launch := document.members.get((LAUNCH,))) is not None:
        return _by_trl(arguments, launch, setting, beside, made)
    if member is None or (member.node.members is None and member.node.scalar in (None, False, "")):
        return _alone(arguments, member, setting)
    checked = CheckedFiles(texts={document.name: document.text})
    if tool_of(document.config) is not None or has_own(document.config):
        arguments = replace(arguments, command_line=_of_command_line(setting.arguments))
        setting = replace(setting, reader=TRAINER, arguments=arguments)
        checked.findings += check_arguments(arguments, setting)
    if arguments.tool == LLAMA_FACTORY:
        setting = replace(setting, quantized_by=_quantized_by(arguments, beside))
        checked.findings += twice(document, "LLaMA-Factory stops", ERROR)
    if member.node.members is None:
        if arguments.tool == SWIFT and any(one.path == DEEPSPEED for one in checked.findings):
            return checked  # a config of another release's
        name, text = _named_file(arguments, member, beside, setting)
        findings, checked.texts[name] = reached(name, text, setting, made)
        stated = str(member.node.scalar)
        elsewhere = is_example(name) or (stated.startswith("/") and stated != name)
        checked.notes += [f"{document.name}: its deepspeed is {name}"] if elsewhere else []
    elif (known := known_of(block(document))).unknown:
        findings, note = of_interpolated(known, setting, made)
        checked.notes.append(note)
    else:
        findings = check(known.document, made(known.document, setting, None))
    checked.findings += findings
    return checked


def _alone(arguments: Arguments, member: Member | None, setting: Setting) -> CheckedFiles:
    """Findings of a file that names no config, as one beside `accelerate launch`. Raises `SpecError` for none."""
    document = arguments.document
    findings = [one for one in check_arguments_alone(arguments, setting) if one.severity != ADVICE]
    if not findings:
        raise _without_config(document, member)
    return CheckedFiles(findings, {document.name: document.text}, [f"{document.name} names no DeepSpeed config"])


def _by_trl(
    arguments: Arguments, member: Member, setting: Setting, beside: Beside, made: Made
) -> CheckedFiles:  # fmt: skip
    """The file of `accelerate launch` that `trl sft --config` starts, with the arguments in the file itself."""
    document, name = arguments.document, str(member.node.scalar)
    file = beside(name) or own_accelerate_config(name)
    if file is None:
        line, column = document.place(member.start)
        place, without = f"{document.name}:{line}:{column}", name in WITHOUT
        what = "which starts no DeepSpeed" if without else "which is neither there nor of TRL's package"
        error = OtherKindError if without else SpecError
        raise error(place, f"{LAUNCH}: {said(name)}, {what}", f"one of {', '.join(OWN)}, or a file")
    arguments = replace(arguments, command_line=_of_command_line(setting.arguments))
    processes = arguments.stated("num_processes")
    gpus = setting.gpus or (processes if isinstance(processes, int) else None)
    accelerate = AccelerateConfig(read_document(*file, "an Accelerate config"))
    checked = check_accelerate_config(accelerate, replace(setting, arguments=arguments, gpus=gpus), beside, made)
    checked.findings += check_arguments(arguments, setting)
    checked.texts[document.name] = document.text
    checked.notes.append(f"{document.name}: its {LAUNCH} is {file[0]}")
    return checked


def _quantized_by(arguments: Arguments, beside: Beside) -> str:
    """The method in the config.json of a model that lies in a folder here."""
    model = arguments.stated("model_name_or_path")
    document = document_of(f"{model}/config.json", beside) if isinstance(model, str) and model else None
    section = None if document is None else document.config.get("quantization_config")
    return str(section.get("quant_method", "")) if isinstance(section, dict) else ""


def _named_file(arguments: Arguments, member: Member, beside: Beside, setting: Setting) -> tuple[str, str]:
    """Name and text of the config that `deepspeed` names. Raises `SpecError`."""
    document, stated = arguments.document, member.node.scalar
    if is_interpolated(stated):
        line, column = document.place(member.node.start)
        what = f"deepspeed: {said(stated)}, which stands for what another file says"
        raise OtherKindError(f"{document.name}:{line}:{column}", what, "a ds_config.json")
    file = _written(arguments, stated, setting.swift) or beside(str(stated)) or example_config(stated, arguments.tool)
    if file is None:
        older = of_older(stated)
        raise SpecError(document.name, f"deepspeed {said(stated)}, which is not there{older}", "a ds_config.json")
    return file


def _written(arguments: Arguments, stated: object, swift: str | None) -> tuple[str, str] | None:
    """A config as a text of JSON, which transformers and ms-swift parse, or of ms-swift's package, in a file that is of
    no other tool.
    """
    if isinstance(stated, str) and stated.lstrip().startswith("{"):
        return f"deepspeed of {arguments.document.name}", stated
    return own_config(stated, puts_of(arguments), swift) if arguments.tool in (SWIFT, TRAINER_FILE) else None


def puts_of(arguments: Arguments) -> dict[str, Any]:
    """Keys that ms-swift puts into a config of its own."""
    return {path: value for name, path in PUTS.items() if (value := arguments.stated(name)) is not None}


def _by_v1(document: Document, setting: Setting, beside: Beside, made: Made) -> CheckedFiles:
    """The config of LLaMA-Factory's v1, which hands it to Accelerate with an AdamW and a schedule of its own
    (0.9.5 v1/core/base_trainer.py, v1/plugins/trainer_plugins/distributed/deepspeed.py).
    """
    member = document.members.get(("dist_config", "config_file"))
    if member is None or document.config["dist_config"].get("name") != DEEPSPEED:
        raise _without_config(document, None, "dist_config: {name: deepspeed, config_file: ds_config.json}")
    if (named_file := beside(str(member.node.scalar))) is None:
        named = f"config_file {said(member.node.scalar)}"
        raise SpecError(document.name, f"{named}, which is not there", "a ds_config.json")
    optimizer = None if document.config.get("optim_config") else "adamw_torch"
    setting = replace(setting, reader=ACCELERATE, reader_is_known=True, arguments=None, tool=LLAMA_FACTORY_1,
                      client_optimizer=True, optimizer=setting.optimizer or optimizer)  # fmt: skip
    findings, text = reached(*named_file, setting, made)
    return CheckedFiles(findings, {document.name: document.text, named_file[0]: text})


def _of_command_line(arguments: Arguments | None) -> Arguments | None:
    """Those that stand in the script that names a training file."""
    return arguments if arguments is None or arguments.job is not None else arguments.command_line


def _without_config(
    document: Document, member: Member | None, expected: str = "deepspeed: and the name of one"
) -> OtherKindError:  # fmt: skip
    """Why a training file is not checked; whose it is is said where its keys tell."""
    if isinstance(document.config.get("defaults"), list):
        what = "a file that Hydra puts together with others (defaults), and that names no DeepSpeed config itself"
        return OtherKindError(document.name, what, "the config that it names")
    tool = tool_of(document.config)
    names_none = f"a training file{f' of {tool}' if tool else ''} that names no DeepSpeed config"
    at, found = document.name, names_none
    if member is not None:
        line, column = document.place(member.start)
        at, found = f"{document.name}:{line}:{column}", f"deepspeed: {said(member.node.scalar)}, {names_none}"
    write = f"zeroplan check ds_config.json --trainer-args {document.name}"
    return OtherKindError(at, found, expected, write)
