"""Operators that work element by element, and what each keeps for backward (torch/csrc/autograd/derivatives.yaml).

Each makes one new tensor of its operands' common shape, in the wider of their dtypes.
"""

from __future__ import annotations

from zeroplan.autograd.graph import Needs, operator, result
from zeroplan.autograd.iterator import iterated
from zeroplan.autograd.tensor import Tensor, empty_like

FLOAT = 4


def add(x: Tensor, y: Tensor) -> Tensor:
    """`x + y`: keeps nothing, and its gradient is that of both."""
    return result(operator("AddBackward", passed_on, (x, y)), iterated((x, y), max(x.width, y.width)))


def passed_on(gradient: Tensor, needs: Needs) -> tuple[Tensor | None, ...]:
    """The gradient itself, for every input that needs one."""
    return tuple(gradient if need else None for need in needs)


def shifted(x: Tensor) -> Tensor:
    """`x` plus a number."""
    return result(operator("AddBackward", passed_on, (x,)), iterated((x,), x.width))


def subtracted(x: Tensor, y: Tensor) -> Tensor:
    """`x - y`: the second's gradient is made again."""
    return result(operator("SubBackward", _subtracted, (x, y)), iterated((x, y), max(x.width, y.width)))


def _subtracted(gradient: Tensor, needs: Needs) -> tuple[Tensor | None, ...]:
    of_y = iterated((gradient,), gradient.width) if needs[1] else None
    return (gradient if needs[0] else None), of_y


def multiply(x: Tensor, y: Tensor) -> Tensor:
    """`x * y`: each is kept if the other needs a gradient."""
    kept = (x if y.node else None, y if x.node else None)
    return result(operator("MulBackward", _multiply, (x, y), kept), iterated((x, y), max(x.width, y.width)))


def _multiply(gradient: Tensor, x: Tensor, y: Tensor, needs: Needs) -> tuple[Tensor | None, ...]:
    """The second's first."""
    of_y = iterated((gradient, x), gradient.width) if needs[1] else None
    of_x = iterated((gradient, y), gradient.width) if needs[0] else None
    return of_x, of_y


def scaled(x: Tensor) -> Tensor:
    """`x` times a number, which is not a tensor: keeps nothing."""
    return result(operator("MulBackward", _anew, (x,)), iterated((x,), x.width))


def negated(x: Tensor) -> Tensor:
    """`-x`."""
    return result(operator("NegBackward", _anew, (x,)), iterated((x,), x.width))


def _anew(gradient: Tensor, _needs: Needs) -> Tensor:
    return iterated((gradient,), gradient.width)


def to(x: Tensor, width: int) -> Tensor:
    """`x` in a dtype of another width; itself where it has that already."""
    if x.width == width:
        return x
    return result(operator("ToCopyBackward", _to, (x,), (), (x.width,)), empty_like(x, width))


def _to(gradient: Tensor, width: int, _needs: Needs) -> Tensor:
    return gradient if gradient.width == width else iterated((gradient,), width)


def power(x: Tensor) -> Tensor:
    """`x ** 2`, `x ** 3`: keeps x."""
    x = _widened(x)
    return result(operator("PowBackward", _power, (x,), (x,)), iterated((x,), x.width))


def _widened(x: Tensor) -> Tensor:
    """What torch.autocast does before a power or a root (autograd/autocast.py)."""
    return to(x, FLOAT) if x.memory.autocast else x


def _power(gradient: Tensor, x: Tensor, _needs: Needs) -> Tensor:
    """`gradient * (n * x ** (n - 1))`."""
    one_less = iterated((x,), x.width)
    slope = iterated((one_less,), x.width)
    return iterated((gradient, slope), gradient.width)


def reciprocal_root(x: Tensor) -> Tensor:
    """`1 / sqrt(x)`: keeps its result."""
    x = _widened(x)
    return result(operator("RsqrtBackward", _reciprocal_root, (x,)), iterated((x,), x.width), keeps=True)


def _reciprocal_root(gradient: Tensor, root: Tensor, _needs: Needs) -> Tensor:
    """`(-0.5 * gradient) * root ** 3`."""
    cube = iterated((root,), root.width)
    half = iterated((gradient,), gradient.width)
    return iterated((half, cube), half.width)


def tanh(x: Tensor) -> Tensor:
    """Keeps its result."""
    return of_result("TanhBackward", x)


def of_itself(name: str, x: Tensor) -> Tensor:
    """A function that keeps its input: silu, gelu."""
    return result(operator(name, times_kept, (x,), (x,)), iterated((x,), x.width))


def of_result(name: str, x: Tensor) -> Tensor:
    """A function that keeps its result: tanh, relu, sigmoid."""
    return result(operator(name, times_kept, (x,)), iterated((x,), x.width), keeps=True)


def times_kept(gradient: Tensor, kept: Tensor, _needs: Needs) -> Tensor:
    """One operator of the gradient and what was kept."""
    return iterated((gradient, kept), gradient.width)


def clipped(x: Tensor, bounds: int = 2) -> Tensor:
    """x.clamp() to one bound or two: keeps `x`."""
    return result(operator("ClampBackward", _clipped, (x,), (x,), (bounds,)), iterated((x,), x.width))


def _clipped(gradient: Tensor, x: Tensor, bounds: int, _needs: Needs) -> Tensor:
    """The gradient where x is within, from a comparison for each bound."""
    within = [iterated((x,), 1) for _bound in range(bounds)]
    return iterated((gradient, within[0]), gradient.width)


def root(x: Tensor) -> Tensor:
    """x.sqrt(): keeps its result."""
    return result(operator("SqrtBackward", _root, (x,)), iterated((x,), x.width), keeps=True)


def _root(gradient: Tensor, made: Tensor, _needs: Needs) -> Tensor:
    """Gradient / (2 * result)"""
    doubled = iterated((made,), made.width)
    return iterated((gradient, doubled), gradient.width)
