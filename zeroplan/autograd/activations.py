"""The activation functions of transformers' activations.py, by the operators each is made of."""

from __future__ import annotations

from collections.abc import Callable

from zeroplan.autograd.elementwise import (
    add,
    add_scalar,
    clamp,
    mul,
    mul_scalar,
    pow_scalar,
    sqrt,
    tanh,
    tensor_iterator,
    unary_saving_input,
    unary_saving_result,
)
from zeroplan.autograd.graph import operator, result
from zeroplan.autograd.tensor import Needs, Tensor


def activation(function: str, x: Tensor) -> Tensor:
    """The function that `hidden_act` names."""
    return FUNCTIONS[function](x)


def gelu_new(x: Tensor) -> Tensor:
    """0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))), operator by operator."""
    return mul(mul_scalar(x), add_scalar(tanh(mul_scalar(add(x, mul_scalar(pow_scalar(x)))))))


def gelu_fast(x: Tensor) -> Tensor:
    """0.5·x·(1 + tanh(a·x·(1 + b·x·x))), operator by operator."""
    return mul(mul_scalar(x), add_scalar(tanh(_argument(x))))


def gelu_python(x: Tensor) -> Tensor:
    """0.5·x·(1 + erf(x/√2)), operator by operator."""
    return mul(mul_scalar(x), add_scalar(erf(mul_scalar(x))))


def laplace(x: Tensor) -> Tensor:
    """0.5·(1 + erf((x - μ)/(σ·√2)))."""
    x = mul_scalar(add_scalar(x))
    return mul_scalar(add_scalar(erf(x)))


def erf(x: Tensor) -> Tensor:
    """The error function, which keeps its input."""
    return result(operator("ErfBackward", _erf_backward, (x,), (x,)), tensor_iterator((x,), x.width))


def _erf_backward(gradient: Tensor, x: Tensor, _needs: Needs) -> Tensor:
    """(2/√π · exp(-x²)) · gradient"""
    squared = tensor_iterator((x,), x.width)
    negative = tensor_iterator((squared,), x.width)
    exponential = tensor_iterator((negative,), x.width)
    slope = tensor_iterator((exponential,), x.width)
    return tensor_iterator((slope, gradient), gradient.width)


def relu_squared(x: Tensor) -> Tensor:
    """relu(x)²; the square keeps relu's result too."""
    out = unary_saving_result("ReluBackward", x)
    return pow_scalar(out)


def sqrt_softplus(x: Tensor) -> Tensor:
    return sqrt(unary_saving_input("SoftplusBackward", x))


def quick_gelu(x: Tensor) -> Tensor:
    """x·sigmoid(1.702·x)."""
    return mul(x, unary_saving_result("SigmoidBackward", mul_scalar(x)))


def bloom_gelu(x: Tensor) -> Tensor:
    """A function with a backward of its own: 0.5·x·(1 + tanh(a·x·(1 + b·x²))), each operator's result made again."""
    with x.memory.no_grad():
        out = mul(mul_scalar(x), add_scalar(tanh(_argument(x))))
    return result(operator("GeLUFunctionBackward", _bloom_gelu_backward, (x,), (x,)), out)


def _argument(x: Tensor) -> Tensor:
    """`a·x·(1 + b·x·x)`"""
    return mul(mul_scalar(x), add_scalar(mul(mul_scalar(x), x)))


def _bloom_gelu_backward(gradient: Tensor, x: Tensor, _needs: Needs) -> Tensor:
    """The derivative, worked out from x."""
    with x.memory.no_grad():
        curve = tanh(_argument(x))
        slope = add(
            mul(mul_scalar(x), mul(add_scalar(mul(curve, curve)), add_scalar(mul(mul_scalar(x), x)))),
            mul_scalar(add_scalar(curve)),
        )
        return mul(slope, gradient)


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": lambda x: unary_saving_input("SiluBackward", x),
    "swish": lambda x: unary_saving_input("SiluBackward", x),
    "gelu": lambda x: unary_saving_input("GeluBackward", x),
    "gelu_pytorch_tanh": lambda x: unary_saving_input("GeluBackward", x),
    "gelu_python_tanh": gelu_new,
    "gelu_new": gelu_new,
    "gelu_accurate": gelu_new,
    "gelu_fast": gelu_fast,
    "gelu_python": gelu_python,
    "gelu_10": lambda x: clamp(unary_saving_input("GeluBackward", x)),
    "hardswish": lambda x: unary_saving_input("HardswishBackward", x),
    "laplace": laplace,
    "leaky_relu": lambda x: unary_saving_input("LeakyReluBackward", x),
    "linear": lambda x: x,
    "mish": lambda x: unary_saving_input("MishBackward", x),
    "quick_gelu": quick_gelu,
    "relu2": relu_squared,
    "relu6": lambda x: unary_saving_input("HardtanhBackward", x),
    "sqrtsoftplus": sqrt_softplus,
    "relu": lambda x: unary_saving_result("ReluBackward", x),
    "sigmoid": lambda x: unary_saving_result("SigmoidBackward", x),
    "tanh": tanh,
}
