"""Operators that work element by element, and how their results lie in memory (ATen/TensorIterator.cpp)."""

from __future__ import annotations

from zeroplan.autograd.graph import Needs, operator, result
from zeroplan.autograd.tensor import Sizes, Tensor, empty, empty_like, is_dense, row_major


def iterated(operands: tuple[Tensor, ...], width: int) -> Tensor:
    """A new tensor of the operands' common shape, laid out in the order of their strides."""
    first = operands[0]
    shape = first.shape
    if all(x.shape == shape and x.strides == first.strides for x in operands) and is_dense(shape, first.strides):
        return empty(first.memory, shape, width, first.strides)
    shape = broadcast(tuple(x.shape for x in operands))
    if all(x.contiguous for x in operands):
        return empty(first.memory, shape, width)
    return empty(first.memory, shape, width, _permuted(operands, shape))


def broadcast(shapes: tuple[Sizes, ...]) -> Sizes:
    """The common shape."""
    rank = max(len(shape) for shape in shapes)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(max(sizes) if 0 not in sizes else 0 for sizes in zip(*padded, strict=True))


def _permuted(operands: tuple[Tensor, ...], shape: Sizes) -> Sizes:
    """Strides of the result: dimensions from the smallest stride of the operands to the largest."""
    rank = len(shape)
    strides = [_broadcast_strides(x, shape) for x in operands]
    order = list(range(rank - 1, -1, -1))
    for at in range(1, rank):
        here = at
        for before in range(at - 1, -1, -1):
            verdict = _compared(strides, shape, order[before], order[here])
            if verdict > 0:
                order[before], order[here] = order[here], order[before]
                here = before
            elif verdict < 0:
                break
    found, step = [0] * rank, 1
    for dimension in order:
        found[dimension] = step
        step *= shape[dimension]
    return tuple(found)


def _compared(strides: list[Sizes], shape: Sizes, one: int, other: int) -> int:
    """1 where `one` lies farther apart than `other`, -1 where closer, 0 where nothing tells."""
    for each in strides:
        if each[one] and each[other]:
            if each[one] != each[other]:
                return 1 if each[one] > each[other] else -1
            if shape[one] > shape[other]:
                return 1
    return 0


def _broadcast_strides(x: Tensor, shape: Sizes) -> Sizes:
    """Strides over the common shape, 0 where x is repeated."""
    missing = len(shape) - len(x.shape)
    own = [0 if size == 1 and full != 1 else stride for size, stride, full in zip(x.shape, x.strides, shape[missing:], strict=True)]
    return (0,) * missing + tuple(own)


def add(x: Tensor, y: Tensor) -> Tensor:
    """x + y."""
    return result(operator("AddBackward", _add, (x, y)), iterated((x, y), max(x.width, y.width)))


def _add(gradient: Tensor, needs: Needs) -> tuple[Tensor | None, ...]:
    return tuple(gradient if need else None for need in needs)


def shifted(x: Tensor) -> Tensor:
    """x plus a number."""
    return result(operator("AddBackward", _pass, (x,)), iterated((x,), x.width))


def _pass(gradient: Tensor, _needs: Needs) -> Tensor:
    return gradient


def multiply(x: Tensor, y: Tensor) -> Tensor:
    """x * y: each is kept if the other needs a gradient."""
    kept = (x if y.node else None, y if x.node else None)
    return result(operator("MulBackward", _multiply, (x, y), kept), iterated((x, y), max(x.width, y.width)))


def _multiply(gradient: Tensor, x: Tensor, y: Tensor, needs: Needs) -> tuple[Tensor | None, ...]:
    of_y = iterated((gradient, x), gradient.width) if needs[1] else None
    of_x = iterated((gradient, y), gradient.width) if needs[0] else None
    return of_x, of_y


def scaled(x: Tensor) -> Tensor:
    """x times a number."""
    return result(operator("MulBackward", _scaled, (x,)), iterated((x,), x.width))


def _scaled(gradient: Tensor, _needs: Needs) -> Tensor:
    return iterated((gradient,), gradient.width)


def negated(x: Tensor) -> Tensor:
    return result(operator("NegBackward", _scaled, (x,)), iterated((x,), x.width))


def to(x: Tensor, width: int) -> Tensor:
    """x in a dtype of another width; itself where it has that already."""
    if x.width == width:
        return x
    return result(operator("ToCopyBackward", _to, (x,), (), (x.width,)), empty_like(x, width))


def _to(gradient: Tensor, width: int, _needs: Needs) -> Tensor:
    return gradient if gradient.width == width else iterated((gradient,), width)


def squared(x: Tensor) -> Tensor:
    """x ** 2."""
    return result(operator("PowBackward", _squared, (x,), (x,)), iterated((x,), x.width))


def _squared(gradient: Tensor, x: Tensor, _needs: Needs) -> Tensor:
    """gradient * (2 * x ** 1)"""
    power = iterated((x,), x.width)
    doubled = iterated((power,), x.width)
    return iterated((gradient, doubled), gradient.width)


def reciprocal_root(x: Tensor) -> Tensor:
    """1/sqrt(x)."""
    return result(operator("RsqrtBackward", _reciprocal_root, (x,)), iterated((x,), x.width), keeps=True)


def _reciprocal_root(gradient: Tensor, root: Tensor, _needs: Needs) -> Tensor:
    """(-0.5 * gradient) * root ** 3"""
    cube = iterated((root,), root.width)
    half = iterated((gradient,), gradient.width)
    return iterated((half, cube), half.width)


def tanh(x: Tensor) -> Tensor:
    """Keeps its result."""
    return of_result("TanhBackward", x)


def contiguous(x: Tensor) -> Tensor:
    """x itself, or a copy in row-major order."""
    if x.contiguous:
        return x
    return result(operator("CloneBackward", _pass, (x,)), empty(x.memory, x.shape, x.width, row_major(x.shape)))


def of_itself(name: str, x: Tensor) -> Tensor:
    """A function that keeps its input: silu, gelu."""
    return result(operator(name, _of_kept, (x,), (x,)), iterated((x,), x.width))


def of_result(name: str, x: Tensor) -> Tensor:
    """A function that keeps its result: tanh, relu, sigmoid."""
    return result(operator(name, _of_kept, (x,)), iterated((x,), x.width), keeps=True)


def _of_kept(gradient: Tensor, kept: Tensor, _needs: Needs) -> Tensor:
    return iterated((gradient, kept), gradient.width)


def clipped_in_place(x: Tensor) -> Tensor:
    """x.clamp_(): the same storage with new numbers; a copy of the old ones is kept."""
    before = iterated((x,), x.width) if x.node else None
    node = operator("ClampBackward", _of_kept, (x,), (before,))
    return result(node, x.detached())


def added_in_place(x: Tensor, y: Tensor) -> Tensor:
    """x += y: nothing is made, nothing kept."""
    return result(operator("AddBackward", _add, (x, y)), x.detached())


def divided_in_place(x: Tensor, y: Tensor) -> Tensor:
    """x /= y: a copy of x as it was is kept, and y."""
    before = empty_like(x) if y.node else None
    return result(operator("DivBackward", _divided, (x, y), (before, y)), x.detached())


def _divided(gradient: Tensor, x: Tensor, y: Tensor, needs: Needs) -> tuple[Tensor | None, ...]:
    """-gradient * ((x / y) / y), then gradient / y"""

    def of_divisor() -> Tensor:
        once = iterated((x, y), gradient.width)
        twice = iterated((once, y), gradient.width)
        return iterated((iterated((gradient,), gradient.width), twice), gradient.width)

    of_y = of_divisor() if needs[1] else None
    of_x = iterated((gradient, y), gradient.width) if needs[0] else None
    return of_x, of_y


def subtracted(x: Tensor, y: Tensor) -> Tensor:
    """x - y."""
    return result(operator("SubBackward", _subtracted, (x, y)), iterated((x, y), max(x.width, y.width)))


def _subtracted(gradient: Tensor, needs: Needs) -> tuple[Tensor | None, ...]:
    of_y = iterated((gradient,), gradient.width) if needs[1] else None
    return (gradient if needs[0] else None), of_y


def clipped(x: Tensor) -> Tensor:
    """x.clamp(): keeps x."""
    return result(operator("ClampBackward", _clipped, (x,), (x,)), iterated((x,), x.width))


def _clipped(gradient: Tensor, x: Tensor, _needs: Needs) -> Tensor:
    inside = iterated((x,), 1)
    return iterated((gradient, inside), gradient.width)
