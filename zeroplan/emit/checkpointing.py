"""Who turns activation checkpointing on: ds_config.json has no key for it.

One call of the model does for whole layers; what takes more lines is checkpointing.py, which train.py imports.
"""

from __future__ import annotations

from zeroplan.specs.checkpointing import DEEPSPEED, KEPT, ActivationCheckpointing, Recomputing, recomputing
from zeroplan.specs.strategy import Strategy
from zeroplan.specs.target import HF, is_told

FILE = "checkpointing.py"
SELECTIVE_TEXT = '''\
"""Attention alone runs again in backward: transformers' attention function goes through torch.utils.checkpoint."""

import sys

from torch.utils.checkpoint import checkpoint
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS


def turn_on(model):
    name = model.config._attn_implementation
    known = None if name == "eager" else ALL_ATTENTION_FUNCTIONS[name]

    def attention(module, *inputs, **options):
        attend = known or sys.modules[type(module).__module__].eager_attention_forward
        return checkpoint(attend, module, *inputs, use_reentrant=False, **options)

    ALL_ATTENTION_FUNCTIONS[name] = attention
'''
PRODUCTS_TEXT = '''\
"""Each layer runs again in backward, but for matrix products and fused attention, whose results are kept."""

from functools import partial

import torch
from torch.utils.checkpoint import create_selective_checkpoint_contexts

KEPT = (
{kept}
)


def turn_on(model):
    operators = [getattr(torch.ops.aten, name).default for name in KEPT]
    contexts = partial(create_selective_checkpoint_contexts, operators)
    model.activation_checkpointing_enable({{"use_reentrant": False, "context_fn": contexts}})
'''
DEEPSPEED_TEXT = '''\
"""Each layer goes through deepspeed.checkpointing, which decides what becomes of its input until backward."""

import deepspeed


def turn_on(model):
{configure}    model._set_gradient_checkpointing(gradient_checkpointing_func=deepspeed.checkpointing.checkpoint)
'''


def checkpointing_file(strategy: Strategy) -> str | None:
    """A Python module with `turn_on(model)`; None where one call of the model is enough."""
    kind = strategy.recomputing
    if strategy.checkpointing == DEEPSPEED:
        return DEEPSPEED_TEXT.format(configure=_configure(strategy.activation_checkpointing))
    if kind.keeps_products:
        return PRODUCTS_TEXT.format(kept="\n".join(f'    "{name}",' for name in KEPT))
    return SELECTIVE_TEXT if kind.attention else None


def call(checkpointing: str, target: str) -> str | None:
    """The line of the training script that turns it on, of a `model`; None where TrainingArguments do."""
    kind = recomputing(checkpointing)
    if kind == Recomputing() or (target == HF and is_told(target, checkpointing)):
        return None
    if checkpointing == DEEPSPEED or kind.attention or kind.keeps_products:
        return "checkpointing.turn_on(model)"
    options = f'{{"use_reentrant": {kind.reentrant}}}'
    if kind.every < 2:  # under this name since transformers 4
        return f"model.gradient_checkpointing_enable({options})"
    return f"model.activation_checkpointing_enable({options}, every_n_layers={kind.every})"


def in_the_script(kind: str) -> str:
    """What a training script does, in words; whole layers by the model's own call."""
    if kind == DEEPSPEED:
        text = "model._set_gradient_checkpointing(gradient_checkpointing_func=deepspeed.checkpointing.checkpoint), and "
        return text + "deepspeed.checkpointing.configure(None, this file) if it has activation_checkpointing"
    if recomputing(kind).keeps_products:
        options = '{"use_reentrant": False, "context_fn": partial(create_selective_checkpoint_contexts, [...])}'
        return f"model.activation_checkpointing_enable({options})"
    if recomputing(kind).attention:
        return "transformers' AttentionInterface through torch.utils.checkpoint.checkpoint(use_reentrant=False)"
    return "model.gradient_checkpointing_enable()" if kind == "full" else call(kind, "") or ""


def _configure(stated: ActivationCheckpointing) -> str:
    """The section activation_checkpointing of ds_config.json, whose other keys may still be "auto"."""
    options = {
        "partition_activations": stated.partitions,
        "contiguous_checkpointing": stated.contiguous,
        "num_checkpoints": stated.number,
        "checkpoint_in_cpu": stated.on_host,
    }
    given = ", ".join(f"{name}={value}" for name, value in options.items() if value)
    return f"    deepspeed.checkpointing.configure(None, {given})\n" if given else ""
