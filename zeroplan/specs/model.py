"""A model: its tensors in registration order, and the shape of a layer."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple


class Tensor(NamedTuple):
    """A trainable tensor, named as transformers names it."""

    name: str
    shape: tuple[int, ...]
    elements: int


class Visit(NamedTuple):
    """A module that owns tensors is entered or left, in the order in which DeepSpeed's hooks see it."""

    enters: bool
    module: int
    tensors: tuple[int, ...]
    """Indices into the model's tensors."""


class Execution(NamedTuple):
    """The order of one training step: modules entered and left, and gradients becoming ready."""

    forward: tuple[Visit, ...]
    backward: tuple[Visit, ...]
    recomputing: tuple[Visit, ...]
    """Backward with every layer checkpointed: a layer's forward runs again inside it."""
    gradients: tuple[int, ...]
    """Tensors in the order in which their gradients become ready; those that get none are not here."""
    gradients_stage_3: tuple[int, ...]
    """The same at stage 3, whose own linear function gives weights before biases."""


class Shape(NamedTuple):
    """The widths that activations and FLOPs follow from, in elements."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_width: int
    value_width: int
    """Width of one head's values; differs from `head_width` in multi-head latent attention."""
    ffn: int
    """Width of the MLP, or of one expert."""
    vocab: int
    positions: int
    """max_position_embeddings, 0 where it is not stated."""
    rms_norm: bool
    norms: int
    """Norms of one layer."""
    gated: bool
    experts: int = 0
    experts_per_token: int = 0
    dense_layers: int = 0
    """Layers without experts in a mixture of experts."""
    dense_ffn: int = 0
    """Their width; and of the shared expert where there is one, `shared_ffn`."""
    shared_ffn: int = 0

    @property
    def queries(self) -> int:
        return self.heads * self.head_width

    @property
    def keys(self) -> int:
        return self.kv_heads * self.head_width


class Model(NamedTuple):
    name: str
    family: str
    tensors: tuple[Tensor, ...]
    parameters: int
    """Trainable parameters, tied tensors once: the sum over `tensors`."""
    shape: Shape
    execution: Callable[[], Execution]
    """Worked out when first asked for."""
    buffers: tuple[tuple[str, int], ...]
    """dtype and elements of each buffer that the model registers (rotary frequencies and the like); dtype
    "training" is that of the parameters, "built" is float32, or that of the parameters under zero.Init."""
    source: str
    """Where tensors and shape come from: a preset, a config.json, or inferred from a count."""
    inferred: bool = False

    def __hash__(self) -> int:
        """By identity: a search looks the same model up thousands of times."""
        return id(self)

    @property
    def largest(self) -> Tensor:
        return max(self.tensors, key=lambda tensor: tensor.elements)
