"""Who starts a plan, and what each is told by its own files and arguments."""

from __future__ import annotations

from typing import NamedTuple

from zeroplan.errors import QuantityError, shown
from zeroplan.specs.checkpointing import DEEPSPEED, recomputing

HF = "hf"
TARGETS = (HF, "deepspeed", "accelerate", "lightning")
"""As --for has them: the Hugging Face Trainer, DeepSpeed itself, Accelerate, Lightning."""
CODE = "code"
"""What --allow takes."""


class Script(NamedTuple):
    """The training script that a plan is for.

    A plan uses what its target is told by files and arguments: ds_config.json, TrainingArguments, and the two calls
    that every training script has, which load the model and turn on checkpointing of its layers
    (`model.gradient_checkpointing_enable()`). All else needs lines that somebody must write, or a package.
    """

    target: str = HF
    """Who reads the config, as `--for` has it."""
    code: bool = False
    """Lines of its own may be added to it."""

    def runs(self, checkpointing: str) -> bool:
        """Whether this kind can be had, with lines of its own where these are allowed."""
        return self.code or is_told(self.target, checkpointing)


USUAL = Script()


def is_told(target: str, checkpointing: str) -> bool:
    """Whether the target's own files and arguments turn it on.

    The Trainer hands gradient_checkpointing_kwargs on, every_n_layers and use_reentrant among them (transformers 5.23,
    trainer.py:train).
    """
    kind = recomputing(checkpointing)
    if checkpointing == DEEPSPEED or kind.attention or kind.keeps_products:
        return False
    return target == HF or (kind.every < 2 and not kind.reentrant)


def known_target(named: str) -> str:
    """The same. Raises `QuantityError` for any other."""
    if named not in TARGETS:
        expected = f"{', '.join(TARGETS[:-1])} or {TARGETS[-1]}"
        raise QuantityError(f"--for: found {shown(named)}, expected {expected}; write --for {HF}")
    return named


def read_script(target: str, allowed: str | None) -> Script:
    """As --for and --allow have it. Raises `QuantityError` for what they do not take."""
    if allowed is not None and allowed != CODE:
        raise QuantityError(f"--allow: found {shown(allowed)}, expected {CODE}; write --allow {CODE}")
    return Script(known_target(target), allowed is not None)
