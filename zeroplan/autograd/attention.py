"""Scaled dot-product attention by torch's fused kernels: what each keeps, and how its results lie in memory.

Sizes are those that torch 2.13 gives for each kernel (torch/_meta_registrations.py). Queries, keys and values are
[b, n, s, d]; what a kernel takes for itself while it runs is not counted here.
"""

from __future__ import annotations

from zeroplan.arithmetic import round_up
from zeroplan.autograd.graph import Needs, Node, operator
from zeroplan.autograd.tensor import Sizes, Tensor, empty, empty_like, is_dense

FLOAT, LONG = 4, 8
Kernel = str
KERNELS = ("flash", "efficient", "cudnn", "cpu")
TILE = 32
"""The memory-efficient kernel rounds the rows of its log-sum-exp up to this."""


def fused_attention(
    kernel: Kernel, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, dropout: float = 0.0
) -> Tensor:
    """softmax(q·kᵀ)·v without the scores: keeps q, k, v, the output, a log-sum-exp and the random state."""
    node = operator(f"{kernel.capitalize()}AttentionBackward", _BACKWARD[kernel], (q, k, v), (q, k, v))
    made = _out(kernel, q, v)
    extras = _extras(kernel, q)
    if node is not None:
        node.shapes, node.widths = (made.shape,), (made.width,)
        checkpoint = q.memory.checkpoint
        pack = checkpoint.pack if checkpoint else None
        for each in (mask, made, *extras):
            if each is not None:
                node.keep(each, pack)
        made.node = node
    return made


def _out(kernel: Kernel, q: Tensor, v: Tensor) -> Tensor:
    batch, heads, seq, _width = q.shape
    shape = (batch, heads, seq, v.shape[-1])
    if kernel == "efficient":
        return permuted(q, shape)
    if kernel == "cudnn" or q.shape == shape:
        return empty_like(q) if q.shape == shape else laid_out_as(q, shape)
    return empty(q.memory, shape, q.width)


def _extras(kernel: Kernel, q: Tensor) -> tuple[Tensor, ...]:
    """The log-sum-exp, then seed and offset of the random numbers."""
    batch, heads, seq, _width = q.shape
    rows = round_up(seq, TILE) if kernel == "efficient" else seq
    log_sum_exp = empty(q.memory, (batch, heads, rows), FLOAT)
    if kernel == "cpu":
        return (log_sum_exp,)
    seed = empty(q.memory, (2 if kernel == "flash" else 1,), LONG)
    return log_sum_exp, seed, empty(q.memory, (1,), LONG)


def permuted(x: Tensor, shape: Sizes) -> Tensor:
    """A new [b, n, s, d] that lies in memory as [b, s, n, d]."""
    batch, heads, seq, width = shape
    strides = (seq * heads * width, width, heads * width, 1)
    return empty(x.memory, (batch, heads, seq, width), x.width, strides)


def laid_out_as(x: Tensor, shape: Sizes) -> Tensor:
    """A new tensor with x's order of dimensions."""
    order = sorted(range(len(shape)), key=lambda at: (x.strides[at], -at))
    strides, step = [0] * len(shape), 1
    for at in order:
        strides[at] = step
        step *= shape[at]
    return empty(x.memory, shape, x.width, tuple(strides))


def _like_inputs(_gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, *_rest: object) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients laid out as queries, keys and values."""
    return empty_like(q), empty_like(k), empty_like(v)


def _permuted(_gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, *_rest: object) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients that lie as [b, s, n, d]."""
    return permuted(q, q.shape), permuted(k, k.shape), permuted(v, v.shape)


_BACKWARD = {"flash": _like_inputs, "cudnn": _like_inputs, "efficient": _permuted, "cpu": _permuted}
__all__ = ["Needs", "Node", "fused_attention", "is_dense"]
