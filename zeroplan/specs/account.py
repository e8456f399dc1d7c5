"""What a model's operators keep and compute: accounts of one micro-batch."""

from typing import NamedTuple


class SavedByOperator(NamedTuple):
    """What an operator of one module keeps for backward."""

    part: str
    """Part of a layer: attention, scores (whatever a pair of tokens or a softmax's row has), mlp, norms or dropout."""
    module: str
    """Its path, in the layer or in the model."""
    operator: str
    bytes: int
    """With the polynomial that it is the value of."""


class SavedByLayer(NamedTuple):
    """What each of some layers of one make keeps."""

    path: str
    """The path of the first."""
    layers: int
    kept: tuple[SavedByOperator, ...]

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.kept)

    @property
    def parts(self) -> dict[str, int]:
        """Bytes by part of the layer."""
        totals: dict[str, int] = {}
        for each in self.kept:
            totals[each.part] = totals.get(each.part, 0) + each.bytes
        return totals


class SavedActivations(NamedTuple):
    """All that is alive when forward has returned and only the loss is held."""

    makes: tuple[SavedByLayer, ...]
    rest: tuple[SavedByOperator, ...]
    sizes: dict[str, int]
    """The sizes that the polynomials are in, by letter."""

    @property
    def bytes(self) -> int:
        return sum(make.layers * make.bytes for make in self.makes) + sum(each.bytes for each in self.rest)


class Flops(NamedTuple):
    """Floating-point operations of one micro-batch's matrix products, 2 for each multiplication and its addition."""

    forward: int
    """Operations of forward."""
    backward: int
    """Operations of backward."""
    recomputed: int
    """What checkpointed layers run again in backward; not in `backward`."""


class BackwardShare(NamedTuple):
    """What of backward runs, where some parameters do not train."""

    products: float
    """FLOPs of the layers' matrix products in backward over those in forward: 2 where all train."""
    head: float
    """The same of what lies outside of all layers."""
    layers: float
    """Share of the layers' work of which backward runs the attention and what is element-wise."""


class RecomputedShare(NamedTuple):
    """What runs again in backward, as shares of what all layers run in forward.

    A checkpointed layer stops when all that backward needs is there again: mostly before its last product.
    """

    products: float
    attention: float
    """The share of fused attention."""
