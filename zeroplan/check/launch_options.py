"""Options on the line of a launch script: which name a ds_config, and which are the Trainer's arguments."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from zeroplan.catalog.trainers.argument_history import ARGUMENTS, swift, trl
from zeroplan.catalog.trainers.swift_configs import PUTS
from zeroplan.catalog.trainers.tools import LLAMA_FACTORY, SWIFT, TRL
from zeroplan.check.arguments import DEFAULTS, OF_GAUDI, OWN, Arguments
from zeroplan.check.device_map import ARGUMENT as DEVICE_MAP
from zeroplan.check.document import Document, Member, ValueNode
from zeroplan.check.inner import OWN_NAME
from zeroplan.check.kind import DEEPSPEED as KEY
from zeroplan.check.kind import is_data
from zeroplan.check.python_calls import has_reference
from zeroplan.check.python_strategies import REGISTERED
from zeroplan.check.rules.llama_factory import WORDS as OF_LLAMA_FACTORY
from zeroplan.check.rules.older import GENERATING
from zeroplan.check.rules.refused_files import VALUED
from zeroplan.check.script_job import FINETUNING, job_of
from zeroplan.check.setting import ANY, DEEPSPEED, TRAINER
from zeroplan.check.shell_variables import Word

OF_LLAMA_FACTORY_ALONE = (FINETUNING, "use_unsloth", "lora_target", "quantization_method", "pissa_init")
"""Arguments that no other trainer has."""
OF_ACCELERATOR = ("mixed_precision", "train_batch_size", "checkpointing_steps", "checkpoints_total_limit")
"""Arguments of scripts that are built on an Accelerator, as diffusers' are, and of none of the Trainer's."""
GONE = ("eval_strategy", *(name for name, span in ARGUMENTS.items() if span.until and name != "tp_size"))
"""Arguments by whose name a release of transformers is told; scripts have a tp_size of their own."""
NO_CHECKPOINTING = "disable_gradient_checkpointing"
"""With which LLaMA-Factory does not checkpoint."""
CONFIG = {"--deepspeed": TRAINER, "--deepspeed_config": DEEPSPEED}
"""Options of a training script that name a ds_config, and who reads it: the Trainer's, and DeepSpeed's own
(deepspeed.add_config_arguments).
"""


def options_of(words: Sequence[Word]) -> Iterator[tuple[str, Word]]:
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


def config_of(arguments: list[tuple[str, Word]]) -> tuple[Word | None, str]:
    """DeepSpeed's own option first: beside it `--deepspeed` is a switch."""
    for name in ("--deepspeed_config", "--deepspeed"):
        for stated, word in arguments:
            if stated == name and word.text != "":
                return word, CONFIG[name]
    for stated, word in arguments:
        is_own = stated.startswith("--") and OWN_NAME.fullmatch(stated[2:]) is not None
        if is_own and is_data(word.text or ""):
            return word, ANY
    return None, DEEPSPEED


def override_of(words: Sequence[Word]) -> tuple[Word | None, str]:
    """The ds_config of a value that takes the place of another in Hydra's files: training.deepspeed=x.json."""
    for name, word in assignments(words):
        if OWN_NAME.fullmatch(name.lstrip("-+").rpartition(".")[2]) is not None and is_data(word.text or ""):
            return word, ANY
    return None, DEEPSPEED


def strategy_option(stated: Iterable[tuple[str, Word]]) -> Word | None:
    """The name of one of Lightning's strategies, of an option or of LightningCLI's or Hydra's argument."""
    named = (word for name, word in stated if name.lstrip("-").rpartition(".")[2] == "strategy")
    return next((word for word in named if word.text in REGISTERED and word.text != "deepspeed"), None)


def is_by_deepspeed(stated: Iterable[tuple[str, Word]]) -> bool:
    """Whether an option asks Lightning for a strategy of DeepSpeed's."""
    named = (word.text for name, word in stated if name.lstrip("-").rpartition(".")[2] == "strategy")
    return any(text is not None and text.startswith(KEY) for text in named)


def trainer_arguments(
    document: Document, stated: list[tuple[str, Word]], tool: str, code: str, *, beside_a_file: bool,
    is_open: bool,
) -> tuple[Arguments | None, tuple[str, ...]]:  # fmt: skip
    """TrainingArguments of these options, each at its place in the script, and those that are not known; `tool`: whose
    command takes them, or "" where an option has to tell that they are the Trainer's, or a file beside them does.
    `code`: the script in Python, "" where it is not there; `is_open`: whether words that no line sets may be options.
    """
    members = [(name.lstrip("-").replace("-", "_"), word) for name, word in stated]
    if not tool and any(name in OF_LLAMA_FACTORY_ALONE for name, _word in members):
        tool = LLAMA_FACTORY
    names = {KEY, *OWN, *OF_GAUDI, *DEFAULTS, *GONE, DEVICE_MAP, *VALUED, *_own_names(tool)}
    bearing = [(name, word) for name, word in members if name in names]
    unknown = tuple([name for name, word in bearing if word.text is None and name in DEFAULTS])
    if not (tool or beside_a_file) and not any(name in OWN for name, _word in bearing):
        return None, ()
    if not (tool or beside_a_file) and any(name in OF_ACCELERATOR for name, _word in members):
        return None, ()
    nodes = [_member(name, word) for name, word in bearing]
    job = job_of(document, stated, tool, beside_a_file=beside_a_file)._replace(code=code, is_open=is_open)
    whole = Document(document.name, document.text, ValueNode(0, len(document.text), members=nodes))
    return Arguments(whole, tool, job, has_reference(code)), unknown


def _own_names(tool: str) -> Iterable[str]:
    """Names of a tool's own that bear on a config, or on its release."""
    if tool == TRL:
        return (*GENERATING, "beta", "use_peft", *(name for name in trl() if trl()[name].until))
    if tool == SWIFT:
        return (*PUTS, "optimizer", "use_vllm", *(name for name, span in swift().items() if span.since or span.until))
    return (*OF_LLAMA_FACTORY, NO_CHECKPOINTING) if tool == LLAMA_FACTORY else ()


def _member(name: str, word: Word) -> Member:
    value = None if word.text is None else value_of(word.text)
    if name == NO_CHECKPOINTING:
        name, value = "gradient_checkpointing", not value
    return Member(name, word.start, word.end, ValueNode(word.start, word.end, scalar=value))


def value_of(text: str) -> Any:
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


def assignments(words: Sequence[Word]) -> list[tuple[str, Word]]:
    """Arguments as name=value, which LLaMA-Factory takes behind a file (OmegaConf.from_cli)."""
    parts = ((word, *(word.text or "").partition("=")) for word in words)
    return [(f"--{name}", word._replace(text=value)) for word, name, equals, value in parts if equals]
