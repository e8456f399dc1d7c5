"""Matrix products and the embedding.

The product of tokens, in the order of their experts, with each expert's own matrix.
"""

from __future__ import annotations

from math import prod

from zeroplan.autograd.autocast import cast_all_for_product
from zeroplan.autograd.graph import operator, product, result, save_for_backward
from zeroplan.autograd.strides import Sizes
from zeroplan.autograd.tensor import Needs, Tensor, empty, empty_like
from zeroplan.autograd.views import expand, reshape, reshape_plain, transpose, view


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


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """torch.nn.functional.linear, or what DeepSpeed's stage 3 puts in its place."""
    if x.memory.zero_linear:
        return zero3_linear(x, weight, bias)
    if bias is None:
        x, weight = cast_all_for_product(x, weight)
    else:
        x, weight, bias = cast_all_for_product(x, weight, bias)
    return torch_linear(x, weight, bias)


def torch_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x·Wᵀ + b over the last dimension: the rows in one product."""
    flat = (x.elements // x.shape[-1], x.shape[-1])
    if bias is None:  # torch makes the view of the weight first, backward undoes it last
        turned = transpose(weight, 0, 1)
        rows = reshape(x, flat)
    else:
        rows = reshape(x, flat)
        turned = transpose(weight, 0, 1)
    out = matmul(rows, turned, bias)
    return view(out, (*x.shape[:-1], weight.shape[0])) if len(x.shape) > 2 else out


def zero3_linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x·Wᵀ + b as DeepSpeed's stage 3 runs it (runtime/zero/linear.py): keeps x and the weight once it has run.

    Under torch.autocast copies in 16 bit live as long as the product: x is kept as it came.
    """
    autocast_bytes = x.memory.autocast
    node = operator(
        "LinearFunctionForZeroStage3Backward", _zero3_linear_backward, (x, weight, bias), (), (autocast_bytes,)
    )
    narrow = empty_like(x, autocast_bytes) if autocast_bytes and x.width != autocast_bytes else x
    narrow_weight = empty(x.memory, weight.shape, autocast_bytes) if autocast_bytes else weight
    contiguous_x = reshape_plain(narrow, (x.elements // x.shape[-1], x.shape[-1]))
    out = _product(x, x.elements * weight.shape[0], (*x.shape[:-1], weight.shape[0]), autocast_bytes)
    del contiguous_x, narrow, narrow_weight
    save_for_backward(node, x, weight, bias)
    return result(node, out)


def _zero3_linear_backward(
    gradient: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None, autocast_bytes: int, needs: Needs
) -> tuple[Tensor | None, ...]:
    """The input's gradient first, then the weight's, then the bias's; autocast has the weight's copy meanwhile."""
    narrow_weight = empty(x.memory, weight.shape, autocast_bytes) if autocast_bytes and needs[0] else None
    flat = (gradient.elements // gradient.shape[-1], gradient.shape[-1])
    x.memory.add_flops(gradient.elements * x.shape[-1] * sum(needs[:2]))
    of_x = of_weight = of_bias = None
    if needs[0]:
        rows = reshape_plain(gradient, flat)
        of_x = empty(x.memory, x.shape, gradient.width)
        del rows
    if needs[1]:
        rows = reshape_plain(gradient, flat)
        narrow = empty_like(x, autocast_bytes) if autocast_bytes and x.width != autocast_bytes else x
        inputs = reshape_plain(narrow, (flat[0], x.shape[-1]))
        of_weight = empty(x.memory, weight.shape, gradient.width)
        del rows, inputs, narrow
    if bias is not None and needs[2]:
        of_bias = empty(x.memory, bias.shape, bias.width if autocast_bytes else gradient.width)
    del narrow_weight
    return of_x, of_weight, of_bias


def matmul(x: Tensor, y: Tensor, bias: Tensor | None = None) -> Tensor:
    """x·y (+ b), each kept for the other's gradient."""
    if bias is None:
        x, y = cast_all_for_product(x, y)
    else:
        bias, x, y = cast_all_for_product(bias, x, y)
    kept, shapes = (x if y.node else None, y if x.node else None), (x.shape, y.shape)
    if bias is None:
        node = operator("MmBackward", _matmul_backward, (x, y), kept, shapes)
    else:
        node = operator("AddmmBackward", _with_bias, (x, y, bias), kept, shapes)
    return result(node, _product(x, x.elements * y.shape[1], (x.shape[0], y.shape[1])))


def _matmul_backward(
    gradient: Tensor, _x: Tensor | None, _y: Tensor | None, x_shape: Sizes, y_shape: Sizes, needs: Needs
) -> tuple[Tensor | None, ...]:
    """The second's gradient first; a weight's comes out in the weight's own layout."""
    gradient.memory.add_flops(gradient.elements * x_shape[1] * sum(needs))
    of_y = as_transposed(empty(gradient.memory, y_shape[::-1], gradient.width)) if needs[1] else None
    of_x = empty(gradient.memory, x_shape, gradient.width) if needs[0] else None
    return of_x, of_y


def _with_bias(
    gradient: Tensor, _x: Tensor | None, _y: Tensor | None, x_shape: Sizes, y_shape: Sizes, needs: Needs
) -> tuple[Tensor | None, ...]:
    gradient.memory.add_flops(gradient.elements * x_shape[1] * sum(needs[:2]))
    of_x = empty(gradient.memory, x_shape, gradient.width) if needs[0] else None
    of_y = as_transposed(empty(gradient.memory, y_shape[::-1], gradient.width)) if needs[1] else None
    return of_x, of_y, gradient if needs[2] else None


def _product(x: Tensor, multiplications: int, shape: Sizes, autocast_bytes: int = 0) -> Tensor:
    """A product's result, in the dtype of x or of autocast."""
    return product(x.memory, multiplications, lambda: (empty(x.memory, shape, autocast_bytes or x.width),))[0]


def as_transposed(x: Tensor) -> Tensor:
    """A matrix seen with its dimensions swapped, without a graph."""
    return x.as_strided(x.shape[::-1], x.strides[::-1])


def batched_matmul(x: Tensor, y: Tensor) -> Tensor:
    """torch.matmul of [b, n, s, d] and [b, n, d, t]: one product a head."""
    x, y = cast_all_for_product(x, y)
    batch = x.shape[:-2]
    flat = prod(batch)
    left = reshape(expand(x, (*batch, *x.shape[-2:])), (flat, *x.shape[-2:]))
    right = reshape(expand(y, (*batch, *y.shape[-2:])), (flat, *y.shape[-2:]))
    out = bmm(left, right)
    return view(out, (*batch, *out.shape[1:]))


def bmm(x: Tensor, y: Tensor) -> Tensor:
    """torch.bmm of [r, s, d] and [r, d, t]."""
    x, y = cast_all_for_product(x, y)
    kept = (x if y.node else None, y if x.node else None)
    node = operator("BmmBackward", _bmm_backward, (x, y), kept, (x.shape, y.shape))
    return result(node, _product(x, x.elements * y.shape[2], (*x.shape[:2], y.shape[2])))


def baddbmm(base: Tensor | None, x: Tensor, y: Tensor, *, scales: bool = True) -> Tensor:
    """torch.baddbmm: a product, added to a base that needs no gradient; with `scales` it is scaled by another number
    than 1.
    """
    x, y = cast_all_for_product(x, y)
    start = empty(x.memory, (*x.shape[:2], y.shape[2]), x.width) if base is None else base
    node = operator("BaddbmmBackward", _baddbmm_backward, (x, y), (x, y), (x.shape, y.shape, scales))
    out = result(node, _product(x, x.elements * y.shape[2], (*x.shape[:2], y.shape[2])))
    del start
    return out


def _baddbmm_backward(
    gradient: Tensor, _x: Tensor, _y: Tensor, x_shape: Sizes, y_shape: Sizes, scales: bool, needs: Needs
) -> tuple[Tensor | None, ...]:
    """Each product is scaled after it (maybe_multiply)."""
    gradient.memory.add_flops(gradient.elements * x_shape[2] * sum(needs))

    def scaled(shape: Sizes) -> Tensor:
        product = empty(gradient.memory, shape, gradient.width)
        return empty_like(product) if scales else product

    of_x = scaled(x_shape) if needs[0] else None
    of_y = scaled(y_shape) if needs[1] else None
    return of_x, of_y


def heads_joined(x: Tensor) -> Tensor:
    """[b, n, s, d] as [b·n, s, d]."""
    return reshape(x, (x.shape[0] * x.shape[1], *x.shape[2:]))


def _bmm_backward(
    gradient: Tensor, _x: Tensor | None, _y: Tensor | None, x_shape: Sizes, y_shape: Sizes, needs: Needs
) -> tuple[Tensor | None, ...]:
    gradient.memory.add_flops(gradient.elements * x_shape[2] * sum(needs))
    of_y = empty(gradient.memory, y_shape, gradient.width) if needs[1] else None
    of_x = empty(gradient.memory, x_shape, gradient.width) if needs[0] else None
    return of_x, of_y


def embedding(ids: Tensor, weight: Tensor) -> Tensor:
    """Rows of a table; its gradient is dense."""
    node = operator("EmbeddingBackward", _embedding_backward, (weight,), (ids,), (weight.shape,))
    return result(node, empty(weight.memory, (*ids.shape, weight.shape[1]), weight.width))


def _embedding_backward(gradient: Tensor, _ids: Tensor, shape: Sizes, _needs: Needs) -> Tensor:
    return empty(gradient.memory, shape, gradient.width)
