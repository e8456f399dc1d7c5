"""Activation checkpointing by layers, as transformers and torch offer it."""

from __future__ import annotations

from functools import lru_cache
from re import fullmatch
from typing import NamedTuple

KINDS = ("none", "selective", "full", "every-2", "full-reentrant", "deepspeed", "selective-products")
"""What `--checkpointing` takes; every-2 stands for every-K, and each of those may be reentrant."""
DEEPSPEED = "deepspeed"
"""Every layer through deepspeed.checkpointing.checkpoint, set as the model's _gradient_checkpointing_func."""
PRODUCTS = "selective-products"
"""Every layer through torch.utils.checkpoint with a context that keeps the results of `KEPT`."""
KEPT = (
    "mm", "addmm", "bmm", "baddbmm", "_grouped_mm", "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention", "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
)  # fmt: skip
"""Operators of torch.ops.aten."""
PATTERN = r"(full|every-([2-9]|[1-9]\d+))(-reentrant)?"


class Recomputing(NamedTuple):
    """Which layers run again in backward, and how."""

    every: int = 0
    """Every how manyth, the first among them (transformers' every_n_layers); 0: none."""
    reentrant: bool = False
    """torch's autograd function, whose backward runs the whole layer and a backward of its own (use_reentrant)."""
    keeps_products: bool = False
    """Results of matrix products and of fused attention stay, and are not computed again: torch's selective
    checkpointing (context_fn=create_selective_checkpoint_contexts) with the operators of `KEPT`."""

    def has(self, number: int) -> bool:
        """Whether the layer of this number is checkpointed."""
        return self.every > 0 and number % self.every == 0


PLAIN = Recomputing()


@lru_cache
def recomputing(kind: str) -> Recomputing:
    """Layers of none, full, every-K and their reentrant forms; selective recomputes parts of layers, and none whole.

    deepspeed.checkpointing.checkpoint is reentrant, and keeps what torch's does unless it is configured to do more.
    """
    if kind == DEEPSPEED:
        return Recomputing(1, reentrant=True)
    if kind == PRODUCTS:
        return Recomputing(1, keeps_products=True)
    found = fullmatch(PATTERN, kind)
    return Recomputing(int(found[2] or 1), bool(found[3])) if found else PLAIN


def is_checkpointing(kind: str) -> bool:
    return kind in KINDS or fullmatch(PATTERN, kind) is not None
