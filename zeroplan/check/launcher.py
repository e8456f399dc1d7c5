"""What a script gives to `deepspeed`, `accelerate launch`, `torchrun`, `srun`, ms-swift, TRL, LLaMA-Factory and
axolotl: the config, the ranks, the Trainer's arguments, each with its place.

Options as deepspeed 0.19.8 (launcher/runner.py), accelerate 1.15 (commands/launch.py), torch 2.14
(distributed/run.py) and Slurm's sbatch have them.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from zeroplan.catalog.trainers.tools import SWIFT, TRL
from zeroplan.check.accelerate_config import KIND, OPTIONS, PROCESSES
from zeroplan.check.arguments import Arguments
from zeroplan.check.command_line import TOOLS, CommandLine
from zeroplan.check.document import Beside, Document, ValueNode
from zeroplan.check.kind import DEEPSPEED as KEY
from zeroplan.check.launch_files import (
    arguments_of,
    code_of,
    first_file,
    holds_config,
    is_config_file,
    named_document,
    processes_of,
    read_beside,
    sourced,
    takes_arguments,
    training_file,
)
from zeroplan.check.launch_options import (
    assignments,
    config_of,
    is_by_deepspeed,
    options_of,
    override_of,
    strategy_option,
    trainer_arguments,
    value_of,
)
from zeroplan.check.launched import Launch, NamedConfig, Place, within
from zeroplan.check.launcher_parsers import RANKS
from zeroplan.check.launcher_refusal import refusal
from zeroplan.check.megatron import of_megatron
from zeroplan.check.openrlhf import of_options
from zeroplan.check.python_calls import OF_TRL
from zeroplan.check.ranks import (
    OF_ENVIRONMENT,
    OF_LIGHTNING,
    PLAIN,
    USE_RAY,
    VARIABLES,
    Environment,
    Slurm,
    hostfile_of,
    ranks,
    tasks_of,
)
from zeroplan.check.script_arguments import trains_by_trainer
from zeroplan.check.setting import ACCELERATE, ANY, LIGHTNING
from zeroplan.check.shell import commands, cut_off, inner_commands
from zeroplan.check.shell_script import Command
from zeroplan.check.shell_variables import Word
from zeroplan.check.training_script import training_script
from zeroplan.check.written_files import WrittenFiles

OF_TRL_ALONE = ("--num_generations", "--max_completion_length", "--max_prompt_length", "--reward_funcs", "--use_vllm")
"""Options that TRL's arguments have beside the Trainer's."""
SWIFTS = re.compile(r"(?:^|[/.])swift[/.]cli[/.](?:sft|pt|rlhf)(?:\.py)?$")
"""The files and modules that `swift` starts itself."""
REMOTE = ("srun", "mpirun", "mpiexec", "ssh", "pdsh", "clush", "parallel-ssh")
"""What starts a shell on other hosts."""
OF_A_FILE = re.compile(r"--(?:cfg|conf|config|yaml|yml)(?:[_-](?:file|path))?")
"""What scripts call an option that names a file of theirs."""
BEHIND = re.compile(
    r"""(?:[^\n;&|\\#"'>]|>&|>(?!&)|&>|(?<!\s)#|"[^"\n]*"|'[^'\n]*'|\|&?+(?!\|)|\\\r?\n){0,2000}+&(?![&>\d])"""
)
"""What ends a command that the script does not wait for."""
CONTAINERS = ("docker", "podman", "singularity", "apptainer", "kubectl", "enroot")
OF_ITSELF = ("0", "BASH_SOURCE", "BASH_SOURCE[0]")
"""Variables that name the script."""
OTHERS = {
    "--multi_gpu": "MULTI_GPU", "--use_fsdp": "FSDP", "--cpu": "MULTI_CPU", "--tpu": "XLA",
    "--use_megatron_lm": "MEGATRON_LM",
}  # fmt: skip
"""Options with which `accelerate launch` starts something else than its file says (run: 1.15 hands on no DeepSpeed)."""


def commands_of(name: str, text: str, beside: Beside, handed: Mapping[str, str]) -> list[Command]:
    """What a script does, one command behind the other; `handed`: what the script that starts this one hands on."""
    stated = {**dict.fromkeys(OF_ITSELF, posixpath.basename(name)), **Slurm.of(text).variables}
    return list(commands(text, stated, VARIABLES, lambda file: sourced(file, beside), handed))


def launches(
    name: str, text: str, beside: Beside = lambda _name: None, several: Sequence[Command] | None = None
) -> list[Launch]:  # fmt: skip
    """Those of a script that name a config; `beside`: where a hostfile and the like are looked for; `several`: its
    commands, where they are known.
    """
    slurm = Slurm.of(text)
    document = Document(name, text, ValueNode(0, len(text), members=[]))
    outer = commands_of(name, text, beside, {}) if several is None else several
    written = WrittenFiles(text, beside)
    every: list[Launch] = []
    for command in outer:
        if not command.is_left_out:
            written.add(command)
        known = (written.named(one) for one in (command, *inner_commands(command, VARIABLES)))
        outermost, *inside = (_launch(document, one, slurm, within(one.folder, written.beside)) for one in known)
        elsewhere = any((word.text or "").rpartition("/")[2] in REMOTE for word in command.words)
        if outermost is not None and elsewhere:
            outermost = _with_place(outermost, is_below=True)
        launched = (outermost, *(_started_by(outermost, one, elsewhere=elsewhere) for one in inside))
        is_here = any(launched) and (command.words[0].text or "").rpartition("/")[2] not in CONTAINERS
        goes_on = is_here and BEHIND.match(text, command.words[-1].end) is not None
        every += [_with_place(one, written=written.copy(), is_left_out=command.is_left_out, goes_on=goes_on,
                              is_conditional=command.is_conditional) for one in launched if one]  # fmt: skip
    return [one for one in every if one.may_have_config or (one.cut and one.launcher in RANKS)]


def _with_place(launch: Launch, **changes: Any) -> Launch:
    return launch._replace(place=launch.place._replace(**changes))


def _started_by(outer: Launch | None, inner: Launch | None, *, elsewhere: bool) -> Launch | None:
    """What `deepspeed --no_python bash -c "python train.py"` starts: each of its ranks is one process."""
    inner = inner and _with_place(inner, is_below=inner.place.is_below or elsewhere)
    if outer is None or inner is None or outer.launcher not in RANKS or inner.launcher not in PLAIN:
        return inner
    return inner._replace(launcher=outer.launcher, gpus=outer.gpus)


def _launch(document: Document, command: Command, slurm: Slurm, beside: Beside) -> Launch | None:
    """None for a command that starts no training."""
    line = CommandLine.of(command)
    if line is None:
        return None
    launcher, own, script = line.launcher, line.own, line.script
    if launcher in ("srun", "mpirun"):
        return _below(
            launcher, _launch(document, command._replace(words=line.script_words), slurm, beside), tasks_of(own, slurm)
        )
    given = _given_file(command, line, beside)
    stated = given.stated
    python = code_of(script, beside)
    code = "" if python is None else python[1]
    file = _trainers(arguments_of(given.document), python, beside)
    arguments, unknown = _arguments(document, line, stated, code, beside_a_file=given.is_training or file is not None)
    if file is not None:
        arguments = replace(file, command_line=arguments)
        given = given._replace(is_training=given.is_training or bool(file.document.config.get(KEY)))
    elif holds_config(given.document):
        given = given._replace(is_training=True)
    environment = _environment(command, line, stated)
    config = _named_config(command, line, given, environment)
    environment = {**_of_file(file), **environment}
    hosts = read_beside(hostfile_of(own), beside) if launcher == "deepspeed" else None
    gpus = ranks(launcher, own, environment, hosts, slurm.per_node)
    if config.accelerate is not None and "--num_processes" not in own:
        gpus = processes_of(config.accelerate.text, beside)
    openrlhf = of_options(document, script, stated) if launcher in (*RANKS, *PLAIN) else None
    gpus = openrlhf.ranks if openrlhf is not None and openrlhf.is_by_ray else gpus
    megatron = of_megatron(script, stated, code, gpus, is_open=config.is_open)
    at = command.words[line.at].start
    return Launch(
        launcher,
        Place(document.place(at).line, at, command.folder),
        config,
        training_script(line, python, stated, knows_options=not command.folder,
                        pipeline=megatron is not None and megatron.pipeline),
        stated=arguments,
        unknown=unknown,
        command=line.command,
        options=line.parsed.options,
        environment=environment,
        gpus=gpus if megatron is None else megatron.gpus,
        nodes=slurm.nodes,
        hosts=hosts,
        refusal=refusal(launcher, line.parsed, hosts),
        cut=cut_off(document.text, command),
        built=openrlhf,
        starts=launcher == "deepspeed" and script is not None and not _is_value(command, line),
    )  # fmt: skip


class _GivenFile(NamedTuple):
    """A file of a trainer's, or of a program's own, that a command is given, and the options beside it."""

    word: Word | None
    document: Document | None
    is_first: bool
    """Whether it is the first argument of a script."""
    is_training: bool
    """Whether it names, or has, a ds_config, by the command or by what it holds."""
    stated: list[tuple[str, Word]]


def _given_file(command: Command, line: CommandLine, beside: Beside) -> _GivenFile:
    first = first_file(line.script_words, beside) if line.launcher in (*RANKS, *PLAIN) else None
    training = training_file(command.words[line.at :])
    is_first = first is not None and (training is None or training is line.script_words[0])
    names_one = first is not None and is_first and bool(first.config.get(KEY))
    is_training = training is not None or names_one
    by_name = is_training and (line.launcher == "llamafactory-cli" or is_first)
    stated = assignments(line.script_words) if by_name else list(options_of(line.script_words))
    if is_first:
        return _GivenFile(line.script_words[0], first, is_first, is_training, stated)
    word = training or next((word for name, word in stated if OF_A_FILE.fullmatch(name)), None)
    return _GivenFile(word, named_document(word, beside), is_first, is_training, stated)


def _arguments(
    document: Document, line: CommandLine, stated: list[tuple[str, Word]], code: str, *, beside_a_file: bool
) -> tuple[Arguments | None, tuple[str, ...]]:  # fmt: skip
    """The Trainer's arguments of a line, and those that are not known; none of a script whose options are its own."""
    by_file = line.script is not None and SWIFTS.search(line.script.text or "") is not None
    tool = SWIFT if by_file else TOOLS.get(line.launcher, "") or _tool_of(code, stated)
    is_open = any(word.text is None and not word.partly.startswith("-") for word in line.script_words)
    arguments = trainer_arguments(document, stated, tool, code, beside_a_file=beside_a_file, is_open=is_open)
    return (None, ()) if "Accelerator(" in code and not trains_by_trainer(code) else arguments


def _named_config(command: Command, line: CommandLine, given: _GivenFile, environment: Environment) -> NamedConfig:
    launcher, options, own = line.launcher, dict(given.stated), line.own if line.launcher == "accelerate" else {}
    config, reader = _config(command.words[line.at], given.stated, line.script_words, environment)
    accelerate = options.get("--accelerate_config") if launcher == "trl" else own.get("--config_file")
    by_trl = launcher == "trl" and accelerate is not None
    training = given.word if given.is_training and config is None and not by_trl else None
    if config is None and is_config_file(given.document):
        config, reader = given.word, ANY
    if config is None and training is None and launcher == "accelerate":
        config, reader = own.get("--deepspeed_config_file"), ACCELERATE
    return NamedConfig(
        config, reader, accelerate, _overrides(own),
        next((name for name in OTHERS if name in own and reader == ACCELERATE), ""),
        training, training is not None and given.is_first,
        strategy_option([*given.stated, *assignments(line.script_words)]), _may_name_one(command, line),
    )  # fmt: skip


def _trainers(file: Arguments | None, python: tuple[str, str] | None, beside: Beside) -> Arguments | None:
    """A file with the Trainer's arguments; None where a script has names of its own in it, and reads it itself."""
    if file is None or python is None or file.document.config.get(KEY):
        return file
    return file if takes_arguments(python, beside) else None


def _config(
    launcher: Word, stated: list[tuple[str, Word]], words: Sequence[Word], environment: Environment
) -> tuple[Word | None, str]:  # fmt: skip
    """The ds_config that a line names, or a variable for Lightning, and who reads it."""
    config, reader = config_of(stated)
    if config is None:
        config, reader = override_of(words)
    by_lightning = environment.get(OF_LIGHTNING)
    if config is None and by_lightning and is_by_deepspeed(stated):
        return launcher._replace(text=by_lightning), LIGHTNING
    return config, reader


def _may_name_one(command: Command, line: CommandLine) -> bool:
    """Whether words that no line sets may name a config; what an option before it has as its value starts nothing."""
    starts = line.launcher in RANKS and not _is_value(command, line)
    return starts and any(map(_is_open, line.script_words))


def _is_open(word: Word) -> bool:
    """Whether a word may be an option with a config: none of those that it may be by the script's own lines is one."""
    return word.text is None and not word.partly.startswith("-") and not word.either


def _is_value(command: Command, line: CommandLine) -> bool:
    """Whether the launcher's name stands where an option's value may."""
    before = command.words[line.at - 1].text if line.at else ""
    return before is None or before.startswith("--")


def _environment(
    command: Command, line: CommandLine, stated: Sequence[tuple[str, Word]]
) -> Environment:  # fmt: skip
    """The variables that decide how many processes start and which config is read: the script's, and `env A=1`."""
    before = ((word.text or "").partition("=") for word in command.words[: line.at])
    own = {name: value for name, _, value in before if name in VARIABLES}
    by_ray = dict(stated).get("--use_ray")
    ray = {USE_RAY: "1"} if by_ray is not None and value_of(by_ray.text or "") is True else {}
    return {**command.environment, **own, **ray}


def _overrides(of_accelerate: Mapping[str, Word]) -> tuple[tuple[str, Any], ...]:
    """Fields of Accelerate's file that these options of `accelerate launch` replace."""
    named = [(name.lstrip("-").replace("-", "_"), word.text) for name, word in of_accelerate.items()]
    overrides = [(name, value_of(text)) for name, text in named if name in OPTIONS and text is not None]
    processes = of_accelerate.get(f"--{PROCESSES}")
    replaced = [] if processes is None else [(PROCESSES, None if processes.text is None else value_of(processes.text))]
    return (*overrides, *replaced, *((KIND, kind) for name, kind in OTHERS.items() if name in of_accelerate))


def _of_file(file: Arguments | None) -> Environment:
    """The variables that a file of ms-swift sets where nothing else does (4.6 cli/main.py: parse_yaml_args)."""
    stated = file.document.config.get("ENV") if file is not None and file.tool == SWIFT else None
    return {name: str(stated[name]) for name in VARIABLES if name in stated} if isinstance(stated, dict) else {}


def _tool_of(code: str, stated: Sequence[tuple[str, Word]]) -> str:
    """TRL, where a script that is there has TRL's arguments and not the Trainer's own, or is given such."""
    if code:
        return TRL if OF_TRL.search(code) and "TrainingArguments" not in code else ""
    return TRL if any(name in OF_TRL_ALONE for name, _ in stated) else ""


def _below(launcher: str, inner: Launch | None, tasks: int | None) -> Launch | None:
    """What `srun` or `mpirun` starts: as many processes as there are tasks, where each is one rank."""
    if inner is not None and inner.launcher in OF_ENVIRONMENT and not inner.environment:
        return inner._replace(launcher=launcher, gpus=None)
    return inner and _with_place(inner._replace(gpus=tasks if inner.launcher in PLAIN else inner.gpus), is_below=True)
