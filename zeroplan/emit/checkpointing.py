"""Who turns activation checkpointing on: ds_config.json has no key for it."""

from __future__ import annotations

from zeroplan.specs.checkpointing import DEEPSPEED, Recomputing, recomputing


def in_the_script(kind: str) -> str:
    """The call that does it."""
    if kind == DEEPSPEED:
        call = "model._set_gradient_checkpointing(gradient_checkpointing_func=deepspeed.checkpointing.checkpoint), and "
        return call + "deepspeed.checkpointing.configure(None, this file) if it has activation_checkpointing"
    if recomputing(kind).every:
        return _call(recomputing(kind))
    return "transformers' AttentionInterface through torch.utils.checkpoint.checkpoint(use_reentrant=False)"


def _call(recomputing: Recomputing) -> str:
    """The method of transformers 5; up to version 4 it has one name and knows no every_n_layers."""
    if recomputing == Recomputing(1):
        return "model.gradient_checkpointing_enable()"
    words = ['{"use_reentrant": True}'] * recomputing.reentrant
    if recomputing.keeps_products:
        words = ['{"use_reentrant": False, "context_fn": partial(create_selective_checkpoint_contexts, [...])}']
    words += [f"every_n_layers={recomputing.every}"] * (recomputing.every > 1)
    return f"model.activation_checkpointing_enable({', '.join(words)})"
