"""Activation checkpointing by layers, as transformers and torch offer it."""

from functools import lru_cache
from re import fullmatch
from typing import NamedTuple

KINDS = ("none", "selective", "full", "every-2", "full-reentrant", "deepspeed", "selective-products")
"""What `--checkpointing` takes; every-2 stands for every-K, and each of those may be reentrant."""
SELECTIVE = "selective"
"""The attention interface of transformers (AttentionInterface) through torch.utils.checkpoint, and nothing else:
scores, softmax, dropout and their product with the values run again in backward (Korthikanti's selective)."""
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
PATTERN = r"(full|every-([2-9]|[1-9][0-9]{1,5}))(-reentrant)?"


class ActivationCheckpointing(NamedTuple):
    """activation_checkpointing of ds_config.json, as deepspeed.checkpointing.configure reads it: what becomes of a
    layer's input between forward and backward.
    """

    partitions: bool = False
    """Each tensor-parallel rank copies its part and drops the whole; one rank alone copies all of it."""
    on_host: bool = False
    """It waits in host memory."""
    contiguous: bool = False
    """It is copied into a buffer: as many as `number` says are made with the first."""
    number: int | None = None
    """number_checkpoints: inputs that the buffer is made for; None: not stated."""

    @property
    def empties(self) -> bool:
        """The input's own tensor is emptied meanwhile."""
        return self.partitions or self.on_host

    @property
    def through_pool(self) -> bool:
        """Whole inputs go to page-locked buffers of a pool, on a stream of their own (offload_activations.py)."""
        return self.on_host and not self.partitions

    @property
    def by_place(self) -> bool:
        """What a layer keeps depends on which one it is."""
        return self.contiguous or self.through_pool


class Recomputing(NamedTuple):
    """Which layers run again in backward, and how."""

    every: int = 0
    """Every how manyth, the first among them (transformers' every_n_layers); 0: none."""
    reentrant: bool = False
    """torch's autograd function, whose backward runs the whole layer and a backward of its own (use_reentrant)."""
    keeps_products: bool = False
    """Results of matrix products and of fused attention stay, and are not computed again: torch's selective
    checkpointing (context_fn=create_selective_checkpoint_contexts) with the operators of `KEPT`."""
    inputs: ActivationCheckpointing = ActivationCheckpointing()
    """What deepspeed.checkpointing does with layers' inputs."""
    attention: bool = False
    """The core of every layer's attention runs again, as `SELECTIVE` says."""

    def has(self, number: int) -> bool:
        """Whether the layer of this number is checkpointed."""
        return self.every > 0 and number % self.every == 0


PLAIN = Recomputing()


@lru_cache
def recomputing(kind: str) -> Recomputing:
    """Layers of none, full, every-K and their reentrant forms; selective recomputes attention, and no layer whole.

    deepspeed.checkpointing.checkpoint is reentrant, and keeps what torch's does unless a config tells it more.
    """
    if kind == DEEPSPEED:
        return Recomputing(1, reentrant=True)
    if kind == PRODUCTS:
        return Recomputing(1, keeps_products=True)
    if kind == SELECTIVE:
        return Recomputing(attention=True)
    match = fullmatch(PATTERN, kind)
    return Recomputing(int(match[2] or 1), bool(match[3])) if match else PLAIN


def is_checkpointing(kind: str) -> bool:
    return kind in KINDS or fullmatch(PATTERN, kind) is not None
