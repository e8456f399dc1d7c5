"""What the arguments of a training script say of its job beside TrainingArguments: the model, and tokens of a sequence.

Names as the examples of transformers, TRL, LLaMA-Factory, ms-swift, FastChat and DeepSpeed-Chat have them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from zeroplan.catalog.trainers.tools import LLAMA_FACTORY, SWIFT, TRL
from zeroplan.check.document import Document
from zeroplan.check.shell_output import is_number
from zeroplan.check.shell_variables import Word

MODELS = {SWIFT: ("model", "model_id_or_path")}
"""What commands call the model that others call model_name_or_path."""
MODEL = ("model_name_or_path",)
LENGTHS = ("cutoff_len", "max_seq_length", "max_length", "model_max_length")
"""Tokens at which scripts cut sequences off."""
SOURCES, TARGETS = ("max_source_length",), ("max_target_length",)
"""Tokens at which scripts cut off the sources and the targets of an encoder-decoder; those that train a decoder alone
put both into one sequence.
"""
USUAL_LENGTHS = {TRL: 1024, LLAMA_FACTORY: 2048}
"""Where nothing says it (TRL 1.16 SFTConfig; LLaMA-Factory 0.9.5 hparams/data_args.py)."""
FINETUNING = "finetuning_type"
TYPES = (FINETUNING, "train_type", "tuner_type", "sft_type")
"""What LLaMA-Factory and ms-swift call what trains: adapters, where it is missing."""
PART = re.compile(
    "lora|peft|dora|adapter|quant|load_in_|freez|tune_|trainable|prefix|p_tuning|prompt_tuning|pre_seq_len|galore|badam"
    "|ref_model|reward|teacher|vision|image|video|audio|^mm_|^bits$"
)
"""Parts of the names of arguments at which not all weights of one language model train."""
OFF = ("false", "no", "none", "0", "16", "32")
"""Values of such that leave it at all weights."""
STAGES = ("pt", "sft", "rm", "ppo", "dpo", "kto")
"""Values of LLaMA-Factory's `stage`."""


Stated = Mapping[str, tuple[str, Word]]


class Taken(NamedTuple):
    """A value that a script is given."""

    value: str
    option: str
    place: str
    """Empty for a default."""


class ScriptJob(NamedTuple):
    """What a script's arguments say of its job."""

    model: Taken | None = None
    seq: Taken | None = None
    hindrance: str = ""
    """Why its model is not counted, where one is named."""
    target: Taken | None = None
    """Tokens of each target of an encoder-decoder."""
    source: Taken | None = None
    """Tokens of each source of an encoder-decoder."""
    is_open: bool = False
    """Whether words that no line sets may be options."""
    code: str = ""
    """The script in Python that takes them; empty where it is not there."""


def job_of(
    document: Document, stated: Sequence[tuple[str, Word]], tool: str, *, beside_a_file: bool = False
) -> ScriptJob:  # fmt: skip
    """`stated`: options as they stand in the script; `tool`: whose command takes them, or ""; `beside_a_file`: what
    they leave out a training file says.
    """
    options = {name.lstrip("-").replace("-", "_"): (name, word) for name, word in stated if name.startswith("--")}
    usual = "" if beside_a_file else tool
    seq, hindrance = _length(document, options, usual), _hindrance(options, usual, beside_a_file=beside_a_file)
    source, target = (_tokens(_taken(document, options, names)) for names in (SOURCES, TARGETS))
    return ScriptJob(_taken(document, options, MODELS.get(tool, MODEL)), seq, hindrance, target, source)


def _taken(document: Document, options: Stated, names: Sequence[str]) -> Taken | None:
    """None where none of the names is there, several are, or what is meant is not known."""
    values = {name: options[name] for name in names if name in options}
    option, word = next(iter(values.values()), ("", Word(None, 0, 0)))
    if len({word.text for _option, word in values.values()}) != 1 or not word.text:
        return None
    return Taken(word.text, option, f"{document.name}:{document.place(word.start).line}")


def _length(document: Document, options: Stated, tool: str) -> Taken | None:
    stated = [name for name in LENGTHS if name in options]
    if not stated and tool in USUAL_LENGTHS:
        return Taken(str(USUAL_LENGTHS[tool]), f"{tool}'s default", "")
    return _tokens(_taken(document, options, stated))


def _tokens(taken: Taken | None) -> Taken | None:
    """What is a number of tokens."""
    return taken if taken and is_number(taken.value) and int(taken.value) else None


def _hindrance(options: Stated, tool: str, *, beside_a_file: bool) -> str:
    """The argument that says that not all weights train, or which model is meant is not known."""
    kinds = [options[name] for name in TYPES if name in options]
    stage = options["stage"][1].text if "stage" in options else None
    if not kinds and not beside_a_file and (tool in (SWIFT, LLAMA_FACTORY) or stage in STAGES):
        return f"no --{TYPES[1] if tool == SWIFT else TYPES[0]} full: adapters train"
    parts = [*(one for one in kinds if one[1].text != "full"),
             *(one for name, one in options.items() if PART.search(name) and name not in TYPES and not _is_off(one[1]))]
    return f"{parts[0][0]} says what trains" if parts else ""


def _is_off(word: Word) -> bool:
    return word.text is not None and word.text.lower() in OFF
