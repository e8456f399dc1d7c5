"""Products with weights that bitsandbytes 0.50.2 holds in 4 or 8 bit, and what each keeps for backward.

autograd/_functions.py and backends/cuda/ops.py. What a product keeps it keeps as an attribute of its node, not through
save_for_backward: checkpointing without reentrance drops none of it.
"""

from __future__ import annotations

from zeroplan.autograd.elementwise import to
from zeroplan.autograd.graph import log_saved, operator, product, result
from zeroplan.autograd.memory import Memory
from zeroplan.autograd.strides import Sizes
from zeroplan.autograd.tensor import Needs, Node, Tensor, empty, empty_like

FLOAT, INT, BOOL, BYTE, HALF = 4, 4, 1, 1, 2
PRODUCT_OF_CODES = 4
"""Of what the inner dimension is a multiple where cuBLASLt multiplies codes."""


def matmul_4bit(
    x: Tensor, shape: Sizes, bias: Tensor | None, *, compute: int, loaded: int, scales: int
) -> Tensor:  # fmt: skip
    """x·Wᵀ + b in the dtype of `compute` bytes; W of `shape` was quantized from one of `loaded` bytes. `scales`: how
    many of W's were quantized again.

    Its own kernel for at most 1,536 rows, which makes no W, is not counted: W is made whatever the rows are.
    """
    width = x.width
    x = to(x, compute)
    if bias is not None:
        bias = to(bias, compute)
    node = operator("MatMul4BitBackward", _matmul_4bit_backward, (x, bias), (), (x.shape, shape, loaded, scales))
    wide = dequantized_scales(x.memory, scales, adds=True) if scales else None
    weight = empty(x.memory, shape, x.width)
    out_shape = (*x.shape[:-1], shape[0])
    (out,) = product(x.memory, x.elements * shape[0], lambda: (empty(x.memory, out_shape, x.width),))
    del weight, wide
    return to(result(node, out), width)


def dequantized_scales(memory: Memory, scales: int, *, adds: bool) -> Tensor:
    """Scales that were quantized again, in fp32 while a weight is made of them; `adds`: their offset out of place."""
    without = empty(memory, (scales,), FLOAT)
    return empty(memory, (scales,), FLOAT) if adds else without


def _matmul_4bit_backward(
    gradient: Tensor, x_shape: Sizes, shape: Sizes, loaded: int, scales: int, needs: Needs
) -> tuple[Tensor | None, ...]:
    """The weight comes in the dtype that it was loaded in, and is cast where the gradient has another."""
    memory = gradient.memory
    of_bias = empty(memory, shape[:1], gradient.width) if needs[1] else None
    of_x = None
    if needs[0]:
        memory.add_flops(gradient.elements * shape[1])
        wide = dequantized_scales(memory, scales, adds=False) if scales else None
        weight = empty(memory, shape, loaded)
        del wide
        weight = weight if loaded == gradient.width else empty(memory, shape, gradient.width)
        of_x = empty(memory, x_shape, gradient.width)
        del weight
    return of_x, of_bias


def matmul_8bit(x: Tensor, shape: Sizes, bias: Tensor | None, *, fp16: bool) -> Tensor:
    """x·Wᵀ + b of x in int8, as CUDA runs it (MatMul8bitLt); outliers over a threshold would be products of their own,
    and are taken to be none. `fp16`: x is.
    """
    memory, rows = x.memory, x.elements // x.shape[-1]
    node = _node("MatMul8BitLtBackward", x, shape, bias, keeps=x.node is not None)
    codes, stats = _row_codes(x, fp16=fp16)
    sums = empty(memory, (rows, shape[0]), INT)
    if shape[1] % PRODUCT_OF_CODES:
        _product_in_fp32(codes, shape, rows)
    (out,) = product(memory, x.elements * shape[0], lambda: (empty(memory, (*x.shape[:-1], shape[0]), HALF),))
    out = out if fp16 else empty_like(out, x.width)
    del sums, codes, stats
    return result(node, out)


def _node(name: str, x: Tensor, shape: Sizes, bias: Tensor | None, *, keeps: bool) -> Node | None:
    node = operator(name, _matmul_8bit_backward, (x, bias), (), (x.width, x.shape, shape))
    if node is not None and keeps:
        node.kept = x.detach()
        log_saved(node, x)
    return node


def _row_codes(x: Tensor, *, fp16: bool) -> tuple[Tensor, Tensor]:
    """X in 8 bit and a scale for each row, of x in fp16 (backends/cuda/ops.py, int8_vectorwise_quant)."""
    half = x if fp16 else empty_like(x, HALF)
    stats = empty(x.memory, (x.elements // x.shape[-1],), FLOAT)
    codes = empty_like(half, BYTE)
    magnitudes = empty_like(half)
    empty_like(half, BOOL)
    del magnitudes
    return codes, stats


def _product_in_fp32(codes: Tensor, shape: Sizes, rows: int) -> None:
    """What cuBLASLt does not multiply is copied to fp32, x and the weight, and the sums from there."""
    wide = empty_like(codes, FLOAT), empty(codes.memory, shape, FLOAT)
    sums = empty(codes.memory, (rows, shape[0]), FLOAT)
    del wide
    empty_like(sums, INT)


def matmul_8bit_on_cpu(x: Tensor, shape: Sizes, bias: Tensor | None) -> Tensor:
    """x·Wᵀ + b with W made of its codes, as bitsandbytes trains on the CPU (MatMul8bitFp)."""
    node = _node("MatMul8BitFpBackward", x, shape, bias, keeps=True)
    weight = _weight_of_codes(x.memory, shape, x.width)
    (out,) = product(
        x.memory, x.elements * shape[0], lambda: (empty(x.memory, (*x.shape[:-1], shape[0]), x.width),)
    )  # fmt: skip
    del weight
    return result(node, out)


def _weight_of_codes(memory: Memory, shape: Sizes, width: int) -> Tensor:
    """A weight, of its codes times its rows' scales."""
    weight = empty(memory, shape, width)
    empty(memory, shape[:1], FLOAT)
    return weight


def _matmul_8bit_backward(
    gradient: Tensor, width: int, x_shape: Sizes, shape: Sizes, needs: Needs
) -> tuple[Tensor | None, ...]:
    """The weight, in the input's dtype."""
    memory = gradient.memory
    of_bias = empty(memory, shape[:1], gradient.width) if needs[1] else None
    of_x = None
    if needs[0]:
        memory.add_flops(gradient.elements * shape[1])
        weight = _weight_of_codes(memory, shape, width)
        of_x = empty(memory, x_shape, width)
        del weight
    return of_x, of_bias
