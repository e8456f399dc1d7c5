"""How a script in Python takes arguments of the Trainer, by what its code has: five questions of different width."""

from __future__ import annotations

import re

from zeroplan.check.python_calls import OF_TRL

READS = re.compile(
    rf"TrainingArguments|TrlParser|HfArgumentParser|llamafactory|llmtuner|axolotl|\bswift\b|{OF_TRL.pattern}"
)
TRAINS = re.compile(rf"TrainingArguments|TrlParser|{OF_TRL.pattern}|\b(?!PPO)\w*Trainer\(")
PARSES = re.compile(r"HfArgumentParser|TrlParser")
STRICT = re.compile(r"\bTrlParser\(|\bHfArgumentParser\([^)]{0,500}(?:TrainingArguments|transformers\.|\b\w+Config\b)")
LENIENT = "return_remaining_strings"
HANDS = re.compile(r"\bdeepspeed\s*=\s*\w+\.deepspeed_config\b")


def reads_a_file(code: str) -> bool:
    """Whether it may read a file of the Trainer's arguments, by itself or as one of the tools."""
    return READS.search(code) is not None


def trains_by_trainer(code: str) -> bool:
    """Whether what it is given are the Trainer's arguments, and not its own beside an Accelerator."""
    return TRAINS.search(code) is not None


def has_parser(code: str) -> bool:
    """Whether it has transformers' or TRL's parser of command lines."""
    return PARSES.search(code) is not None


def hands_to_trainer(code: str) -> bool:
    """Whether what DeepSpeed's own option names goes to the Trainer's argument."""
    return trains_by_trainer(code) and HANDS.search(code) is not None


def stops_at_unknown(code: str) -> bool:
    """Whether that parser has all arguments, and stops at one that it does not know."""
    return STRICT.search(code) is not None and LENIENT not in code
