"""What a script gives to `deepspeed`, `accelerate launch`, `torchrun`, `srun`, ms-swift, TRL, LLaMA-Factory and
axolotl: the config, the ranks, the Trainer's arguments, each with its place.

Options as deepspeed 0.19.8 (launcher/runner.py), accelerate 1.15 (commands/launch.py), torch 2.14
(distributed/run.py) and Slurm's sbatch have them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice, pairwise
from types import MappingProxyType
from typing import Any, NamedTuple

from zeroplan.catalog.trainers.swift_configs import PUTS
from zeroplan.catalog.trainers.tools import LLAMA_FACTORY, SWIFT, TRL, tool_of
from zeroplan.check.arguments import DEFAULTS, OWN, Arguments, has_own
from zeroplan.check.document import Document, Member, ValueNode
from zeroplan.check.json_reader import NotReadableError
from zeroplan.check.kind import DEEPSPEED as KEY
from zeroplan.check.kind import Kind, kind_of, read_document
from zeroplan.check.launch import OPTIONS, AccelerateConfig, is_launch
from zeroplan.check.ranks import (
    OF_ENVIRONMENT,
    PLAIN,
    USE_RAY,
    VARIABLES,
    Environment,
    Slurm,
    hostfile_of,
    ranks,
    refusal,
    tasks_of,
)
from zeroplan.check.rules.llama_factory import WORDS as OF_LLAMA_FACTORY
from zeroplan.check.script_job import FINETUNING, job_of
from zeroplan.check.setting import ACCELERATE, DEEPSPEED, TRAINER
from zeroplan.check.shell import Command, Word, commands
from zeroplan.errors import SpecError

LAUNCHERS = ("deepspeed", "torchrun", "accelerate", "srun", "mpirun", "python", "python3", "swift", "trl",
             "llamafactory-cli", "axolotl", "accelerate-launch")  # fmt: skip
PYTHON = re.compile(r"python3\.\d+")
TOOLS = {"swift": SWIFT, "trl": TRL, "llamafactory-cli": LLAMA_FACTORY}
"""Commands that take the Trainer's arguments with defaults of their own."""
OF_TRAINER = re.compile(r"TrainingArguments|HfArgumentParser|TrlParser|\b\w*Trainer\(")
"""What a script has that takes the Trainer's arguments."""
SWIFTS = re.compile(r"(?:^|[/.])swift[/.]cli[/.](?:sft|pt|rlhf)(?:\.py)?$")
"""The files and modules that `swift` starts itself."""
OF_FILES = ("llamafactory-cli", "axolotl", "axolotl.cli.train")
"""What takes a training file and names no config beside it."""
OF_LLAMA_FACTORY_ALONE = (FINETUNING, "use_unsloth", "lora_target", "quantization_method", "pissa_init")
"""Arguments that no other trainer has."""
OF_ACCELERATOR = ("mixed_precision", "train_batch_size", "checkpointing_steps", "checkpoints_total_limit")
"""Arguments of scripts that are built on an Accelerator, as diffusers' are, and of none of the Trainer's."""
NO_CHECKPOINTING = "disable_gradient_checkpointing"
"""With which LLaMA-Factory does not checkpoint."""
MODULES = {
    "torch.distributed.run": "torchrun", "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate", "deepspeed.launcher.runner": "deepspeed",
}  # fmt: skip
OTHERS = ("--multi_gpu",)
"""Options with which `accelerate launch` starts something else than its file says (run: 1.15 hands on no DeepSpeed)."""
CONFIG = {"--deepspeed": TRAINER, "--deepspeed_config": DEEPSPEED}
"""Options of a training script that name a ds_config, and who reads it: the Trainer's, and DeepSpeed's own
(deepspeed.add_config_arguments).
"""
Beside = Callable[[str], tuple[str, str] | None]
"""Name and text of a file that another names; None where it is not there."""


class Launch(NamedTuple):
    """One training run that a script starts."""

    launcher: str
    line: int
    config: Word | None
    """The ds_config that it names."""
    reader: str
    """Who reads that."""
    accelerate: Word | None
    """The file of `accelerate launch --config_file`."""
    gpus: int | None
    """Ranks; None where that is not stated in full."""
    arguments: Arguments | None
    """The Trainer's, on the line or in the file that its --config names, where some are stated and all that bear on a
    config are known.
    """
    unknown: tuple[str, ...] = ()
    """Arguments that bear on a config and whose values no line of the script sets."""
    overrides: tuple[tuple[str, Any], ...] = ()
    """Fields of its file that options of `accelerate launch` replace."""
    leaves_out: str = ""
    """An option at which `accelerate launch` starts no DeepSpeed."""
    training: Word | None = None
    """A training file that names, or has, the ds_config."""
    start: int = 0
    """Where the command stands."""
    refusal: str = ""
    """Why `deepspeed` starts nothing."""
    environment: Environment = MappingProxyType({})
    """Of the variables that decide how many processes it starts those that are set."""

    @property
    def named(self) -> Word | None:
        return self.config or self.training or self.accelerate


def launches(name: str, text: str, beside: Beside = lambda _name: None) -> list[Launch]:
    """Those of a script that name a config; `beside`: where a hostfile and the like are looked for."""
    slurm = Slurm.of(text)
    document = Document(name, text, ValueNode(0, len(text), members=[]))
    outer = commands(text, slurm.variables, VARIABLES)
    every = (_launch(document, one, slurm, beside) for command in outer for one in (command, *_inside(command)))
    return [one for one in every if one and one.named]


def _inside(command: Command) -> Iterator[Command]:
    """The commands of a text that another shell is given: srun bash -c "torchrun ...", each at its place."""
    for shell, option, word in zip(command.words, command.words[1:], command.words[2:], strict=False):
        if (shell.text or "").rpartition("/")[2] in ("bash", "sh") and option.text in ("-c", "-lc") and word.text:
            for one in commands(word.text, {}, VARIABLES):
                placed = [each._replace(start=word.start, end=word.end) for each in one.words]
                yield Command(placed, {**command.environment, **one.environment})


def _launch(document: Document, command: Command, slurm: Slurm, beside: Beside) -> Launch | None:
    """None for a command that starts no training."""
    words = command.words
    at = _first_launcher(words)
    if at == len(words):
        return None
    launcher, rest = (words[at].text or "").rpartition("/")[2], words[at + 1 :]
    if launcher in ("srun", "mpirun"):
        tasks = tasks_of(dict(_options(rest[: _first_launcher(rest)])), slurm)
        return _below(launcher, _launch(document, command._replace(words=rest), slurm, beside), tasks)
    launcher, rest = _by_another_name(launcher, rest)
    if not launcher:
        return None
    line = document.place(words[at].start).line
    training = _training_file(words[at:])
    script = _script(rest)
    own, given = (rest, rest) if script is None else (rest[:script], rest[script + 1 :])
    by_name = launcher == "llamafactory-cli" and training is not None
    options, arguments = dict(_options(own)), _assigned(given) if by_name else list(_options(given))
    config, reader = _config(arguments)
    word = training or dict(arguments).get("--config")
    file = _arguments_of(word, beside)
    by_file = script is not None and SWIFTS.search(rest[script].text or "") is not None
    tool = SWIFT if by_file else TOOLS.get(launcher, "")
    stated, unknown = _arguments(document, arguments, tool, beside_a_file=training is not None or file is not None)
    if script is not None and _has_an_accelerator(rest[script], beside):
        stated, unknown = None, ()
    if file is not None:
        stated = replace(file, command_line=stated)
        training = word if training is not None or file.document.config.get(KEY) else None
    training = training if config is None else None
    accelerate = options.get("--config_file") if launcher == "accelerate" else None
    if launcher == "accelerate" and config is None and training is None:
        config, reader = options.get("--deepspeed_config_file"), ACCELERATE
    hosts = _reached(hostfile_of(options), beside) if launcher == "deepspeed" else None
    before = ((word.text or "").partition("=") for word in words[:at])  # env A=1 swift sft
    environment = {**_of_file(file), **command.environment,
                   **{name: value for name, _, value in before if name in VARIABLES}}  # fmt: skip
    if "--use_ray" in dict(arguments) and _value(dict(arguments)["--use_ray"].text or "") is True:
        environment[USE_RAY] = "1"
    gpus = ranks(launcher, options, environment, hosts, slurm.per_node)
    if accelerate is not None and "--num_processes" not in options:
        gpus = _processes(accelerate.text, beside)
    of_accelerate = options if launcher == "accelerate" else {}
    named = [(name.lstrip("-").replace("-", "_"), word.text) for name, word in of_accelerate.items()]
    overrides = tuple((name, _value(text)) for name, text in named if name in OPTIONS and text is not None)
    leaves_out = next((name for name in OTHERS if name in of_accelerate), "") if reader == ACCELERATE else ""
    return Launch(
        launcher, line, config, reader, accelerate, gpus, None if unknown else stated, unknown, overrides, leaves_out,
        training, words[at].start, refusal(options, hosts) if launcher == "deepspeed" else "", environment,
    )  # fmt: skip


def _of_file(file: Arguments | None) -> Environment:
    """The variables that a file of ms-swift sets where nothing else does (4.6 cli/main.py: parse_yaml_args)."""
    stated = file.document.config.get("ENV") if file is not None and file.tool == SWIFT else None
    return {name: str(stated[name]) for name in VARIABLES if name in stated} if isinstance(stated, dict) else {}


def _has_an_accelerator(script: Word, beside: Beside) -> bool:
    """Whether a script that is there has an Accelerator of its own, and its arguments are none of the Trainer's."""
    file = _reached(script.text, beside) if (script.text or "").endswith(".py") else None
    return file is not None and "Accelerator(" in file[1] and OF_TRAINER.search(file[1]) is None


def _by_another_name(launcher: str, rest: list[Word]) -> tuple[str, list[Word]]:
    """The launcher, and what follows it, of `python -m` and a module, and of `accelerate launch`; "" for its others."""
    if launcher.startswith("python") and [word.text for word in rest[:1]] == ["-m"] and rest[1:]:
        return MODULES.get(rest[1].text or "", launcher), rest[2:]
    if launcher == "accelerate-launch":
        return "accelerate", rest
    if launcher == "accelerate":
        return (launcher if rest and rest[0].text == "launch" else ""), rest[1:]
    return launcher, rest


def _below(launcher: str, inner: Launch | None, tasks: int | None) -> Launch | None:
    """What `srun` or `mpirun` starts: as many processes as there are tasks, where each is one rank."""
    if inner is not None and inner.launcher in OF_ENVIRONMENT and not inner.environment:
        return inner._replace(launcher=launcher, gpus=None)
    return inner and inner._replace(gpus=tasks if inner.launcher in PLAIN else inner.gpus)


def _first_launcher(words: Sequence[Word]) -> int:
    """Where what srun or mpirun starts begins."""
    named = ((at, (word.text or "").rpartition("/")[2]) for at, word in enumerate(words))
    return next((at for at, name in named if name in LAUNCHERS or PYTHON.fullmatch(name)), len(words))


def _reached(name: str | None, beside: Beside) -> tuple[str, str] | None:
    """A file that is there and can be read."""
    if not name:
        return None
    with suppress(SpecError):
        return beside(name)
    return None


def _document(name: str | None, beside: Beside) -> Document | None:
    file = _reached(name, beside)
    if file is None:
        return None
    with suppress(SpecError, NotReadableError):
        return read_document(*file, "a mapping")
    return None


def _script(words: Sequence[Word]) -> int | None:
    """Where the training script, or the module that is run as one, stands behind a launcher's own options."""
    scripts = (at for at, word in enumerate(words) if (word.text or "").endswith(".py"))
    modules = (at + 1 for at, word in enumerate(words) if word.text in ("-m", "--module"))
    return min((*islice(scripts, 1), *islice(modules, 1)), default=None)


def _assigned(words: Sequence[Word]) -> list[tuple[str, Word]]:
    """Arguments as name=value, which LLaMA-Factory takes behind a file (OmegaConf.from_cli)."""
    parts = ((word, *(word.text or "").partition("=")) for word in words)
    return [(f"--{name}", word._replace(text=value)) for word, name, equals, value in parts if equals]


def _arguments_of(word: Word | None, beside: Beside) -> Arguments | None:
    """TrainingArguments in a training file, or in the file that a script's own --config names, as scripts that are
    built on TRL's parser have it; None where another thing is called so.
    """
    if word is None or not (word.text or "").endswith((".yaml", ".yml", ".json")):
        return None
    document = _document(word.text, beside)
    if document is None or kind_of(document) not in (Kind.ARGUMENTS, Kind.OTHER) or not _are_arguments(document):
        return None
    return Arguments(document)


def _are_arguments(document: Document) -> bool:
    return has_own(document.config) or tool_of(document.config) is not None


def _processes(name: str | None, beside: Beside) -> int | None:
    """Those of a file of `accelerate launch`."""
    document = _document(name, beside)
    return AccelerateConfig(document).processes if document is not None and is_launch(document) else None


def _training_file(words: Sequence[Word]) -> Word | None:
    """The file of `llamafactory-cli train FILE`, `axolotl train FILE` and its module, `swift sft FILE`, and
    `trl sft --config FILE`.
    """
    if len(words) > 2 and (words[0].text or "").rpartition("/")[2] == "swift":
        return words[2] if (words[2].text or "").endswith((".yaml", ".yml", ".json")) else None
    if words and (words[0].text or "").rpartition("/")[2] == "trl":
        file = dict(_options(words)).get("--config")
        return file if file is not None and (file.text or "").endswith((".yaml", ".yml")) else None
    at = next((at for at, word in enumerate(words) if (word.text or "").rpartition("/")[2] in OF_FILES), None)
    if at is None:
        return None
    for before, word in pairwise(words[at:]):
        if (word.text or "").endswith((".yaml", ".yml", ".json")) and not (before.text or "").startswith("--"):
            return word
    return None


def _options(words: Sequence[Word]) -> Iterator[tuple[str, Word]]:
    """Each option with its value; one without a value has an empty one."""
    for at, word in enumerate(words):
        if word.text is None or not word.text.startswith("-"):
            continue
        name, equals, value = word.text.partition("=")
        following = words[at + 1] if at + 1 < len(words) else None
        if equals:
            yield name, word._replace(text=value)
        elif following is not None and not (following.text or "").startswith("--"):
            yield name, following
        else:
            yield name, word._replace(text="")


def _config(arguments: list[tuple[str, Word]]) -> tuple[Word | None, str]:
    """DeepSpeed's own option first: beside it `--deepspeed` is a switch."""
    for name in ("--deepspeed_config", "--deepspeed"):
        for stated, word in arguments:
            if stated == name and word.text != "":
                return word, CONFIG[name]
    return None, DEEPSPEED


def _arguments(
    document: Document, stated: list[tuple[str, Word]], tool: str, *, beside_a_file: bool
) -> tuple[Arguments | None, tuple[str, ...]]:  # fmt: skip
    """TrainingArguments of these options, each at its place in the script, and those that are not known; `tool`: whose
    command takes them, or "" where an option has to tell that they are the Trainer's, or a file beside them does.
    """
    members = [(name.lstrip("-").replace("-", "_"), word) for name, word in stated]
    if not tool and any(name in OF_LLAMA_FACTORY_ALONE for name, _word in members):
        tool = LLAMA_FACTORY
    own = {LLAMA_FACTORY: (*OF_LLAMA_FACTORY, NO_CHECKPOINTING), SWIFT: PUTS}.get(tool, ())
    names = {KEY, *OWN, *DEFAULTS, *own}
    bearing = [(name, word) for name, word in members if name in names]
    unknown = tuple([name for name, word in bearing if word.text is None and name in DEFAULTS])
    if not (tool or beside_a_file) and not any(name in OWN for name, _word in bearing):
        return None, ()
    if not (tool or beside_a_file) and any(name in OF_ACCELERATOR for name, _word in members):
        return None, ()
    nodes = [_member(name, word) for name, word in bearing]
    whole = Document(document.name, document.text, ValueNode(0, len(document.text), members=nodes))
    return Arguments(whole, tool, job_of(document, stated, tool, beside_a_file=beside_a_file)), unknown


def _member(name: str, word: Word) -> Member:
    value = _value(word.text or "")
    if name == NO_CHECKPOINTING:
        name, value = "gradient_checkpointing", not value
    return Member(name, word.start, word.end, ValueNode(word.start, word.end, scalar=value))


def _value(text: str) -> Any:
    """As transformers' parser has it: a switch alone is true."""
    if text.lower() in ("", "true", "yes"):
        return True
    if text.lower() in ("false", "no"):
        return False
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text
