"""LayerNorm as one operator (native_layer_norm)."""

from __future__ import annotations

from zeroplan.autograd.autocast import cast_to_fp32
from zeroplan.autograd.graph import operator, result, save_for_backward
from zeroplan.autograd.tensor import Needs, Tensor, empty, empty_like

FLOAT = 4


def layer_norm(x: Tensor, weight: Tensor | None = None, bias: Tensor | None = None, *, on_cpu: bool) -> Tensor:
    """Keeps its input, and mean and 1/deviation of each row: in fp32 on CUDA, in the input's dtype on the CPU."""
    x = cast_to_fp32(x)
    node = operator("NativeLayerNormBackward", _layer_norm_backward, (x, weight, bias), (x,))
    out = empty_like(x)
    rows = (*x.shape[:-1], 1)
    width = x.width if on_cpu else FLOAT
    save_for_backward(node, empty(x.memory, rows, width), empty(x.memory, rows, width))
    return result(node, out)


def _layer_norm_backward(
    _gradient: Tensor, x: Tensor, _mean: Tensor, _deviation: Tensor, needs: Needs
) -> tuple[Tensor | None, ...]:
    rows = (x.shape[-1],)
    return (
        empty_like(x) if needs[0] else None,
        empty(x.memory, rows, x.width) if needs[1] else None,
        empty(x.memory, rows, x.width) if needs[2] else None,
    )
