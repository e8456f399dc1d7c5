"""The product of tokens, in the order of their experts, with each expert's own matrix."""

from __future__ import annotations

from zeroplan.autograd.graph import Needs, operator, product, result
from zeroplan.autograd.strides import Sizes
from zeroplan.autograd.tensor import Tensor, empty


def grouped_mm(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
    """[r, h] by [E, h, f] (torch._grouped_mm): each kept for the other's gradient, and where each expert's rows end."""
    kept = (x if weight.node else None, weight if x.node else None, offsets)
    node = operator(
        "GroupedMmBackward", _grouped_mm_backward, (x, weight), kept, (x.shape, weight.shape, weight.strides)
    )
    shape = (x.shape[0], weight.shape[2])
    (out,) = product(x.memory, x.elements * weight.shape[2], lambda: (empty(x.memory, shape, x.width),))
    return result(node, out)


def _grouped_mm_backward(
    gradient: Tensor, _x: Tensor | None, _weight: Tensor | None, _offsets: Tensor,
    x_shape: Sizes, weight_shape: Sizes, weight_strides: Sizes, needs: Needs,
) -> tuple[Tensor | None, ...]:  # fmt: skip
    """The experts' gradient comes whole, and first."""
    gradient.memory.add_flops(gradient.elements * x_shape[1] * sum(needs))
    of_weight = empty(gradient.memory, weight_shape, gradient.width, weight_strides) if needs[1] else None
    of_x = empty(gradient.memory, x_shape, gradient.width) if needs[0] else None
    return of_x, of_weight
