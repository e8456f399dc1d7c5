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
from typing import Any

from zeroplan.catalog.trainers.tools import SWIFT, TRL
from zeroplan.check.arguments import Arguments
from zeroplan.check.command_line import TOOLS, CommandLine
from zeroplan.check.document import Beside, Document, ValueNode
from zeroplan.check.finding import said
from zeroplan.check.kind import DEEPSPEED as KEY
from zeroplan.check.kind import PYTHON
from zeroplan.check.launch import KIND, OPTIONS, PROCESSES
from zeroplan.check.launch_files import (
    arguments_of,
    code_of,
    file_of,
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
from zeroplan.check.launched import Launch, within
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
from zeroplan.check.script_parser import accumulated, asked_precision, invalid_choice, unrecognized
from zeroplan.check.setting import ACCELERATE, ANY, LIGHTNING
from zeroplan.check.shell import commands, cut_off, inner_commands
from zeroplan.check.shell_script import Command
from zeroplan.check.shell_variables import Word
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
            outermost = outermost._replace(is_below=True)
        launched = (outermost, *(_started_by(outermost, one, elsewhere=elsewhere) for one in inside))
        is_here = any(launched) and (command.words[0].text or "").rpartition("/")[2] not in CONTAINERS
        goes_on = is_here and BEHIND.match(text, command.words[-1].end) is not None
        every += [one._replace(written=written.copy(), is_left_out=command.is_left_out, goes_on=goes_on,
                               is_conditional=command.is_conditional) for one in launched if one]  # fmt: skip
    return [one for one in every
            if one.named or one.is_open or one.starts or one.built or one.strategy or one.code
            or (one.cut and one.launcher in RANKS)]  # fmt: skip


def _started_by(outer: Launch | None, inner: Launch | None, *, elsewhere: bool) -> Launch | None:
    """What `deepspeed --no_python bash -c "python train.py"` starts: each of its ranks is one process."""
    inner = inner and inner._replace(is_below=inner.is_below or elsewhere)
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
    first_document = first_file(line.script_words, beside) if launcher in (*RANKS, *PLAIN) else None
    first = line.script_words[0] if first_document is not None else None
    names_one = first_document is not None and bool(first_document.config.get(KEY))
    training = training_file(command.words[line.at :]) or (first if names_one else None)
    by_name = training is not None and (launcher == "llamafactory-cli" or training is first)
    stated = assignments(line.script_words) if by_name else list(options_of(line.script_words))
    environment = _environment(command, line, stated)
    config, reader = _config(command.words[line.at], stated, line.script_words, environment)
    word = training or first or next((word for name, word in stated if OF_A_FILE.fullmatch(name)), None)
    named = first_document if word is not None and word is first else named_document(word, beside)
    python = code_of(script, beside)
    file = _trainers(arguments_of(named), python, beside)
    code = "" if python is None else python[1]
    by_file = script is not None and SWIFTS.search(script.text or "") is not None
    tool = SWIFT if by_file else TOOLS.get(launcher, "") or _tool_of(code, stated)
    arguments, unknown = trainer_arguments(
        document, stated, tool, code, beside_a_file=training is not None or file is not None,
        is_open=any(word.text is None and not word.partly.startswith("-") for word in line.script_words),
    )  # fmt: skip
    if "Accelerator(" in code and not trains_by_trainer(code):  # the arguments are the script's own
        arguments, unknown = None, ()
    if file is not None:
        arguments = replace(file, command_line=arguments)
        training = word if training is not None or file.document.config.get(KEY) else None
    if training is None and file is None and holds_config(named):
        training = word
    training = training if config is None else None
    of_accelerate = own if launcher == "accelerate" else {}
    accelerate = dict(stated).get("--accelerate_config") if launcher == "trl" else of_accelerate.get("--config_file")
    if launcher == "trl" and accelerate is not None:
        training = None
    if config is None and is_config_file(named):
        config, reader = word, ANY
    if config is None and training is None and launcher == "accelerate":
        config, reader = own.get("--deepspeed_config_file"), ACCELERATE
    hosts = read_beside(hostfile_of(own), beside) if launcher == "deepspeed" else None
    environment = {**_of_file(file), **environment}
    gpus = ranks(launcher, own, environment, hosts, slurm.per_node)
    if accelerate is not None and "--num_processes" not in own:
        gpus = processes_of(accelerate.text, beside)
    openrlhf = of_options(document, script, stated) if launcher in (*RANKS, *PLAIN) else None
    gpus = openrlhf.ranks if openrlhf is not None and openrlhf.is_by_ray else gpus
    is_open = _may_name_one(command, line)
    megatron = of_megatron(script, stated, code, gpus, is_open=is_open)
    return Launch(
        launcher, document.place(command.words[line.at].start).line, config, reader, accelerate,
        gpus if megatron is None else megatron.gpus,
        None if unknown else arguments, arguments, unknown, _overrides(of_accelerate),
        next((name for name in OTHERS if name in of_accelerate and reader == ACCELERATE), ""),
        training, command.words[line.at].start, refusal(launcher, line.parsed, hosts), environment, command.folder,
        cut_off(document.text, command), file_of(script) or ("" if script is None else "?"), line.parsed.options,
        hosts=hosts,
        command=line.command, nodes=slurm.nodes,
        starts=launcher == "deepspeed" and script is not None and not _is_value(command, line),
        is_first=training is not None and training is first,
        built=openrlhf,
        pipeline=megatron is not None and megatron.pipeline,
        accumulates=accumulated(code, {name: word.text for name, word in stated}),
        precision=asked_precision(code, {name: word.text for name, word in stated}),
        unrecognized="" if command.folder else _unrecognized(line, stated, code),
        no_choice="" if command.folder else _no_choice(line, stated, code),
        strategy=strategy_option([*stated, *assignments(line.script_words)]),
        more=tuple([word.text for word in line.script_words if word.text and word.text.endswith(PYTHON)]),
        python=python,
        is_open=is_open,
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


def _unrecognized(line: CommandLine, stated: Sequence[tuple[str, Word]], code: str) -> str:
    options = [name for name, word in stated if name.startswith("--") and word.text is not None and " " not in name]
    own = line.parsed.options
    by_launch = "no_local_rank" not in own and own.get("launcher", "pdsh") == "pdsh"  # others start the script itself
    by_deepspeed = line.launcher == "deepspeed" and line.parsed.is_whole and by_launch
    return unrecognized(code, options, has_local_rank=by_deepspeed) if line.launcher in (*RANKS, *PLAIN) else ""


def _no_choice(line: CommandLine, stated: Sequence[tuple[str, Word]], code: str) -> str:
    options = {name: word.text for name, word in stated}
    chosen = invalid_choice(code, options) if line.launcher in (*RANKS, *PLAIN) else None
    return "" if chosen is None else f"{chosen[0]} {said(options[chosen[0]])}, none of {', '.join(chosen[1])}"


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
    return inner and inner._replace(gpus=tasks if inner.launcher in PLAIN else inner.gpus, is_below=True)
