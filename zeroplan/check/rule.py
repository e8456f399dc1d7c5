"""What is known of one rule: everything but how it is recognised."""

from __future__ import annotations

from typing import NamedTuple

SITE = "https://www.deepspeed.ai/docs/config-json/"
REMOVALS = "https://github.com/deepspeedai/DeepSpeed/issues/8489"
ISSUE = "https://github.com/deepspeedai/DeepSpeed/issues/"


class Example(NamedTuple):
    """A config, and how `check` was called."""

    text: str
    options: tuple[tuple[str, str], ...] = ()
    """Names of the options, with their values; trainer_args has its file's content behind its name."""
    file: str = "ds_config.json"
    """What it is called: an accelerate.yaml may name a ds_config.json beside it, which is `BESIDE`."""
    beside: str = ""
    """What another file has that it names, where that is not `BESIDE`."""


class Rule(NamedTuple):
    """A rule of the table.

    A severity of error says that DeepSpeed, or who hands it the config, refuses, or that memory is too small;
    everything else runs.
    """

    id: str
    severity: str
    title: str
    evidence: str
    """File and line below deepspeed/ in 0.19.8, or what was run."""
    bad: Example
    good: Example
    link: str = SITE
    since: str = ""
    """First version of DeepSpeed that behaves so; empty: all that are known."""
    until: str = ""
    """First version that no longer does."""


def example(text: str, **options: str) -> Example:
    return Example(text, tuple(options.items()))


BESIDE = '{"train_batch_size": 8, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'


def launching(fields: str, more: str = "", **options: str) -> Example:
    """A file for accelerate launch; `fields` are those of deepspeed_config."""
    text = f"{{distributed_type: DEEPSPEED, num_processes: 8, {more}deepspeed_config: {{{fields}}}}}"
    return Example(text, tuple(options.items()), "accelerate.yaml")


def arguing(text: str, arguments: str, file: str = "args.json", **options: str) -> Example:
    """A config under the Trainer, beside the content of a file of TrainingArguments."""
    return Example(text, (("reader", "hf"), ("trainer_args", f"{file}: {arguments}"), *options.items()))
