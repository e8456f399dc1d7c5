"""Operators that work element by element, and what each keeps for backward (torch/csrc/autograd/derivatives.yaml).

Each makes one new tensor of its operands' common shape, in the wider of their dtypes.

Dropout: the mask is what it keeps, in the dtype of its input on the CPU, as one byte an element on CUDA.

Operators that write their result over their input: the same storage, and a copy of the old numbers if kept.

How the result of an elementwise operator lies in memory (ATen/TensorIterator.cpp).

Copies into a part of a tensor that is there already.
"""

from __future__ import annotations

from zeroplan.autograd.graph import operator, result, save_for_backward
from zeroplan.autograd.strides import Sizes, broadcast, broadcast_strides, infer_dense_strides, is_dense
from zeroplan.autograd.tensor import Needs, Tensor, empty, empty_like

BOOL = 1


def apply_dropout(x: Tensor, probability: float | None, *, on_cpu: bool) -> Tensor:
    """`x` with some elements 0 and the others scaled; x itself without a probability (ATen/native/Dropout.cpp)."""
    if not probability:
        return x
    if on_cpu:
        return mul(x, empty_like(x))
    node = operator("NativeDropoutBackward", mul_by_saved, (x,))
    out = empty_like(x)
    mask = empty_like(x, BOOL)
    save_for_backward(node, mask)
    return result(node, out)


def clamp_(x: Tensor) -> Tensor:
    """`x.clamp_()`: a copy of x as it was is kept."""
    before = tensor_iterator((x,), x.width) if x.node else None
    return result(operator("ClampBackward", mul_by_saved, (x,), (before,)), x.detach())


def add_(x: Tensor, y: Tensor) -> Tensor:
    """`x += y`: nothing is made, nothing kept."""
    return result(operator("AddBackward", pass_gradient, (x, y)), x.detach())


def div_(x: Tensor, y: Tensor) -> Tensor:
    """`x /= y`: a copy of x as it was is kept, and y."""
    before = empty_like(x) if y.node else None
    return result(operator("DivBackward", _div_backward, (x, y), (before, y)), x.detach())


def _div_backward(gradient: Tensor, x: Tensor, y: Tensor, needs: Needs) -> tuple[Tensor | None, ...]:
    """`-gradient * ((x / y) / y)`, then `gradient / y`."""

    def of_divisor() -> Tensor:
        once = tensor_iterator((x, y), gradient.width)
        twice = tensor_iterator((once, y), gradient.width)
        return tensor_iterator((tensor_iterator((gradient,), gradient.width), twice), gradient.width)

    of_y = of_divisor() if needs[1] else None
    of_x = tensor_iterator((gradient, y), gradient.width) if needs[0] else None
    return of_x, of_y


def tensor_iterator(operands: tuple[Tensor, ...], width: int) -> Tensor:
    """A new tensor of the operands' common shape, laid out in the order of their strides."""
    first = operands[0]
    shape, strides = first.shape, first.strides
    for x in operands:  # a loop, where `all` would say it: it runs thousands of times
        if x.shape != shape or x.strides != strides:
            break
    else:
        if is_dense(shape, strides):
            return empty(first.memory, shape, width, strides)
    shape = broadcast(tuple(x.shape for x in operands))
    if all(x.is_contiguous for x in operands):
        return empty(first.memory, shape, width)
    seen = [broadcast_strides(x.shape, x.strides, shape) for x in operands]
    return empty(first.memory, shape, width, infer_dense_strides(shape, *seen))


def copy_into_slice(base: Tensor, part: Tensor) -> Tensor:
    """`part` written into a slice of `base`, whose storage it keeps (torch's CopySlices)."""
    node = operator("CopySlices", _copy_slices_backward, (base, part), (), (base.shape, base.strides, part.shape))
    return result(node, base.detach())


def _copy_slices_backward(
    gradient: Tensor, shape: Sizes, strides: Sizes, part: Sizes, needs: Needs
) -> tuple[Tensor | None, ...]:
    """The base's gradient is copied, the part's cut out of it and replaced by zeros."""
    whole = empty(gradient.memory, shape, gradient.width, strides)
    cut = empty(gradient.memory, part, gradient.width)
    zeros = empty_like(cut) if needs[0] else None
    del zeros
    return (whole if needs[0] else None), cut


def constant_pad(x: Tensor, size: int) -> Tensor:
    """A copy whose last dimension is filled up to `size` (constant_pad_nd)."""
    node = operator("ConstantPadNdBackward", _constant_pad_backward, (x,), (), (x.shape[-1],))
    return result(node, empty(x.memory, (*x.shape[:-1], size), x.width))


def _constant_pad_backward(gradient: Tensor, size: int, _needs: Needs) -> Tensor:
    """What belongs to the input, copied out."""
    return empty_like(gradient.as_strided((*gradient.shape[:-1], size), gradient.strides))


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


def div(x: Tensor, y: Tensor) -> Tensor:
    """`x / y`: the divisor is kept where x needs a gradient, and x where the divisor does."""
    kept = (x if y.node else None, y)
    return result(operator("DivBackward", _div_backward, (x, y), kept), tensor_iterator((x, y), max(x.width, y.width)))


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
