"""The activation functions of transformers' activations.py, by the operators each is made of."""

from __future__ import annotations

from collections.abc import Callable

from zeroplan.autograd.elementwise import (
    add,
    clipped,
    multiply,
    of_itself,
    of_result,
    power,
    root,
    scaled,
    shifted,
    tanh,
)
from zeroplan.autograd.graph import Needs, operator, result
from zeroplan.autograd.iterator import iterated
from zeroplan.autograd.tensor import Tensor


def activated(function: str, x: Tensor) -> Tensor:
    """The function that `hidden_act` names."""
    return FUNCTIONS[function](x)


def gelu_new(x: Tensor) -> Tensor:
    """0.5·x·(1 + tanh(√(2/π)·(x + 0.044715·x³))), operator by operator."""
    return multiply(scaled(x), shifted(tanh(scaled(add(x, scaled(power(x)))))))


def gelu_fast(x: Tensor) -> Tensor:
    """0.5·x·(1 + tanh(a·x·(1 + b·x·x))), operator by operator."""
    return multiply(scaled(x), shifted(tanh(_argument(x))))


def gelu_python(x: Tensor) -> Tensor:
    """0.5·x·(1 + erf(x/√2)), operator by operator."""
    return multiply(scaled(x), shifted(erf(scaled(x))))


def laplace(x: Tensor) -> Tensor:
    """0.5·(1 + erf((x - μ)/(σ·√2)))."""
    x = scaled(shifted(x))
    return scaled(shifted(erf(x)))


def erf(x: Tensor) -> Tensor:
    """The error function, which keeps its input."""
    return result(operator("ErfBackward", _erf, (x,), (x,)), iterated((x,), x.width))


def _erf(gradient: Tensor, x: Tensor, _needs: Needs) -> Tensor:
    """(2/√π · exp(-x²)) · gradient"""
    squared = iterated((x,), x.width)
    negative = iterated((squared,), x.width)
    exponential = iterated((negative,), x.width)
    slope = iterated((exponential,), x.width)
    return iterated((slope, gradient), gradient.width)


def relu_squared(x: Tensor) -> Tensor:
    """relu(x)²; the square keeps relu's result too."""
    made = of_result("ReluBackward", x)
    return power(made)


def root_of_softplus(x: Tensor) -> Tensor:
    return root(of_itself("SoftplusBackward", x))


def quick_gelu(x: Tensor) -> Tensor:
    """x·sigmoid(1.702·x)."""
    return multiply(x, of_result("SigmoidBackward", scaled(x)))


def bloom_gelu(x: Tensor) -> Tensor:
    """A function with a backward of its own: 0.5·x·(1 + tanh(a·x·(1 + b·x²))), each operator's result made again."""
    with x.memory.no_grad():
        made = multiply(scaled(x), shifted(tanh(_argument(x))))
    return result(operator("GeLUFunctionBackward", _bloom_gelu, (x,), (x,)), made)


def _argument(x: Tensor) -> Tensor:
    """`a·x·(1 + b·x·x)`"""
    return multiply(scaled(x), shifted(multiply(scaled(x), x)))


def _bloom_gelu(gradient: Tensor, x: Tensor, _needs: Needs) -> Tensor:
    """The derivative, worked out from x."""
    with x.memory.no_grad():
        curve = tanh(_argument(x))
        slope = add(
            multiply(scaled(x), multiply(shifted(multiply(curve, curve)), shifted(multiply(scaled(x), x)))),
            scaled(shifted(curve)),
        )
        return multiply(slope, gradient)


FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "silu": lambda x: of_itself("SiluBackward", x),
    "swish": lambda x: of_itself("SiluBackward", x),
    "gelu": lambda x: of_itself("GeluBackward", x),
    "gelu_pytorch_tanh": lambda x: of_itself("GeluBackward", x),
    "gelu_python_tanh": gelu_new,
    "gelu_new": gelu_new,
    "gelu_accurate": gelu_new,
    "gelu_fast": gelu_fast,
    "gelu_python": gelu_python,
    "gelu_10": lambda x: clipped(of_itself("GeluBackward", x)),
    "hardswish": lambda x: of_itself("HardswishBackward", x),
    "laplace": laplace,
    "leaky_relu": lambda x: of_itself("LeakyReluBackward", x),
    "linear": lambda x: x,
    "mish": lambda x: of_itself("MishBackward", x),
    "quick_gelu": quick_gelu,
    "relu2": relu_squared,
    "relu6": lambda x: of_itself("HardtanhBackward", x),
    "sqrtsoftplus": root_of_softplus,
    "relu": lambda x: of_result("ReluBackward", x),
    "sigmoid": lambda x: of_result("SigmoidBackward", x),
    "tanh": tanh,
}
