"""Tensors of causal_conv1d, whose one autograd function here makes them and computes nothing (causal-conv1d 1.7.0).

Its kernels take nothing of their own: csrc/causal_conv1d.cpp has workspaces for deterministic algorithms alone, which
are not meant here. Widths and multiples of 8 that it insists on are not checked.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

FLOAT = torch.float32


def causal_conv1d_fn(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, seq_idx: Tensor | None = None,
    activation: str | None = None,
) -> Tensor:  # fmt: skip
    """causal_conv1d/causal_conv1d_interface.py: causal_conv1d_fn, without states; x is [b, d, l]."""
    del activation
    made: Tensor = CausalConv1dFn.apply(x, weight, bias, seq_idx)
    return made


class CausalConv1dFn(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """causal_conv1d/causal_conv1d_interface.py: CausalConv1dFn. Keeps its input, [b, d, l] in either order, the weight
    and the bias; what is before the activation is computed again in backward.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor | None, seq_idx: Tensor | None) -> Tensor:
        x = in_an_order(x)
        out = convolved(x)
        ctx.save_for_backward(x, weight, bias, seq_idx)
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, _seq_idx = ctx.saved_tensors
        of_x, of_weight, of_bias = gradients(x, weight, bias, in_an_order(gradient))
        return of_x, of_weight, of_bias, None


def in_an_order(x: Tensor) -> Tensor:
    """[b, d, l] with one element after the other in channels or in tokens, copied if it lies otherwise."""
    return x if 1 in (x.stride(2), x.stride(1)) else x.contiguous()


def convolved(x: Tensor) -> Tensor:
    """causal_conv1d/cpp_functions.py: causal_conv1d_fwd_function."""
    return torch.empty_like(x)


def gradients(
    x: Tensor, weight: Tensor, bias: Tensor | None, gradient: Tensor, of_x: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """causal_conv1d/cpp_functions.py: causal_conv1d_bwd_function, the parameters' in fp32 first.

    `gradient` is copied while the kernel runs unless it lies in the order of x (csrc/causal_conv1d.cpp).
    """
    if of_x is None:
        of_x = torch.empty_like(x)
    of_weight = torch.empty_like(weight, dtype=FLOAT)
    of_bias = None if bias is None else torch.empty_like(bias, dtype=FLOAT)
    by_token = x.stride(1) == 1 and x.stride(2) > 1
    if gradient.stride(1 if by_token else 2) != 1:
        copied = gradient.mT.contiguous() if by_token else gradient.contiguous()
        del copied
    of_weight = of_weight.to(weight.dtype)
    return of_x, of_weight, None if bias is None or of_bias is None else of_bias.to(bias.dtype)
