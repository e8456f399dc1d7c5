"""Operators that work element by element, and what each keeps for backward (torch/csrc/autograd/derivatives.yaml).

Each makes one new tensor of its operands' common shape, in the wider of their dtypes.
"""

from __future__ import annotations

from zeroplan.autograd.graph import Needs, operator, result
from zeroplan.autograd.iterator import tensor_iterator
from zeroplan.autograd.tensor import Tensor, empty_like

FLOAT = 4


def add(x: Tensor, y: Tensor) -> Tensor:
    """`x + y`: keeps nothing, and its gradient is that of both."""
    return result(operator("AddBackward", pass_gradient, (x, y)), tensor_iterator((x, y), max(x.width, y.width)))


def pass_gradient(gradient: Tensor, needs: Needs) -> tuple[Tensor | None, ...]:
    """The gradient itself, for every input that needs one."""
    return tuple(gradient if need else None for need in needs)


def add_scalar(x: Tensor) -> Tensor:
    """`x` plus a number."""
    return result(operator("AddBackward", pass_gradient, (x,)), tensor_iterator((x,), x.width))


def sub(x: Tensor, y: Tensor) -> Tensor:
    """`x - y`: the second's gradient is made again."""
    return result(operator("SubBackward", _sub_backward, (x, y)), tensor_iterator((x, y), max(x.width, y.width)))


def _sub_backward(gradient: Tensor, needs: Needs) -> tuple[Tensor | None, ...]:
    of_y = tensor_iterator((gradient,), gradient.width) if needs[1] else None
    return (gradient if needs[0] else None), of_y


def mul(x: Tensor, y: Tensor) -> Tensor:
    """`x * y`: each is kept if the other needs a gradient."""
    kept = (x if y.node else None, y if x.node else None)
    return result(operator("MulBackward", _mul_backward, (x, y), kept), tensor_iterator((x, y), max(x.width, y.width)))


def _mul_backward(gradient: Tensor, x: Tensor, y: Tensor, needs: Needs) -> tuple[Tensor | None, ...]:
    """The second's first."""
    of_y = tensor_iterator((gradient, x), gradient.width) if needs[1] else None
    of_x = tensor_iterator((gradient, y), gradient.width) if needs[0] else None
    return of_x, of_y


def mul_scalar(x: Tensor) -> Tensor:
    """`x` times a number, which is not a tensor: keeps nothing."""
    return result(operator("MulBackward", _new_gradient, (x,)), tensor_iterator((x,), x.width))


def neg(x: Tensor) -> Tensor:
    """`-x`."""
    return result(operator("NegBackward", _new_gradient, (x,)), tensor_iterator((x,), x.width))


def _new_gradient(gradient: Tensor, _needs: Needs) -> Tensor:
    return tensor_iterator((gradient,), gradient.width)


def to(x: Tensor, width: int) -> Tensor:
    """`x` in a dtype of another width; itself where it has that already."""
    if x.width == width:
        return x
    return result(operator("ToCopyBackward", _to_backward, (x,), (), (x.width,)), empty_like(x, width))


def _to_backward(gradient: Tensor, width: int, _needs: Needs) -> Tensor:
    return gradient if gradient.width == width else tensor_iterator((gradient,), width)


def pow_scalar(x: Tensor) -> Tensor:
    """`x ** 2`, `x ** 3`: keeps x."""
    x = _cast_to_fp32(x)
    return result(operator("PowBackward", _pow_backward, (x,), (x,)), tensor_iterator((x,), x.width))


def _cast_to_fp32(x: Tensor) -> Tensor:
    """What torch.autocast does before a power or a root (autograd/autocast.py)."""
    return to(x, FLOAT) if x.memory.autocast else x


def _pow_backward(gradient: Tensor, x: Tensor, _needs: Needs) -> Tensor:
    """`gradient * (n * x ** (n - 1))`."""
    one_less = tensor_iterator((x,), x.width)
    slope = tensor_iterator((one_less,), x.width)
    return tensor_iterator((gradient, slope), gradient.width)


def rsqrt(x: Tensor) -> Tensor:
    """`1 / sqrt(x)`: keeps its result."""
    x = _cast_to_fp32(x)
    return result(operator("RsqrtBackward", _rsqrt_backward, (x,)), tensor_iterator((x,), x.width), keeps=True)


def _rsqrt_backward(gradient: Tensor, root: Tensor, _needs: Needs) -> Tensor:
    """`(-0.5 * gradient) * root ** 3`."""
    cube = tensor_iterator((root,), root.width)
    half = tensor_iterator((gradient,), gradient.width)
    return tensor_iterator((half, cube), half.width)


def tanh(x: Tensor) -> Tensor:
    """Keeps its result."""
    return unary_saving_result("TanhBackward", x)


def unary_saving_input(name: str, x: Tensor) -> Tensor:
    """A function that keeps its input: silu, gelu."""
    return result(operator(name, mul_by_saved, (x,), (x,)), tensor_iterator((x,), x.width))


def unary_saving_result(name: str, x: Tensor) -> Tensor:
    """A function that keeps its result: tanh, relu, sigmoid."""
    return result(operator(name, mul_by_saved, (x,)), tensor_iterator((x,), x.width), keeps=True)


def mul_by_saved(gradient: Tensor, kept: Tensor, _needs: Needs) -> Tensor:
    """One operator of the gradient and what was kept."""
    return tensor_iterator((gradient, kept), gradient.width)


def clamp(x: Tensor, bounds: int = 2) -> Tensor:
    """x.clamp() to one bound or two: keeps `x`."""
    return result(operator("ClampBackward", _clamp_backward, (x,), (x,), (bounds,)), tensor_iterator((x,), x.width))


def _clamp_backward(gradient: Tensor, x: Tensor, bounds: int, _needs: Needs) -> Tensor:
    """The gradient where x is within, from a comparison for each bound."""
    within = [tensor_iterator((x,), 1) for _bound in range(bounds)]
    return tensor_iterator((gradient, within[0]), gradient.width)


def sqrt(x: Tensor) -> Tensor:
    """x.sqrt(): keeps its result."""
    return result(operator("SqrtBackward", _sqrt_backward, (x,)), tensor_iterator((x,), x.width), keeps=True)


def _sqrt_backward(gradient: Tensor, out: Tensor, _needs: Needs) -> Tensor:
    """Gradient / (2 * result)"""
    doubled = tensor_iterator((out,), out.width)
    return tensor_iterator((gradient, doubled), gradient.width)
