"""Scaled dot-product attention by torch's fused kernels: what each keeps, and how its results lie in memory.

Sizes are those that torch 2.13 gives for each kernel (torch/_meta_registrations.py). Queries, keys and values are
[b, n, s, d]; what a kernel takes for itself while it runs is not counted here.
"""

from __future__ import annotations

from functools import partial

from zeroplan.arithmetic import round_up
from zeroplan.autograd.elementwise import add, apply_dropout, mul_scalar, to
from zeroplan.autograd.graph import operator, product, result, save_for_backward
from zeroplan.autograd.memory import Memory
from zeroplan.autograd.products import batched_matmul
from zeroplan.autograd.reductions import softmax
from zeroplan.autograd.strides import Sizes, infer_dense_strides
from zeroplan.autograd.tensor import Tensor, empty, empty_like
from zeroplan.autograd.views import clone, expand, transpose, unsqueeze, view

BOOL, FLOAT, LONG = 1, 4, 8
Kernel = str
KERNELS = ("flash", "efficient", "cudnn", "cpu")
TILE = 32
"""The memory-efficient kernel rounds the rows of its log-sum-exp up to this."""


def fused_attention(
    kernel: Kernel, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, *, causal: bool = True
) -> Tensor:
    """softmax(q·kᵀ)·v without the scores: keeps q, k, v, the output, a log-sum-exp and the random state.

    Without a mask the kernel is causal, or each token sees all.
    """
    triangle = causal and mask is None
    backward = partial(_BACKWARD[kernel], triangle=triangle)
    node = operator(f"{kernel.capitalize()}AttentionBackward", backward, (q, k, v), (q, k, v))
    multiplications = _multiplications(q, k, v, scores=1, values=1)
    out, *extras = product(
        q.memory, multiplications, lambda: (_out(kernel, q, v), *_extras(kernel, q)), causal=triangle
    )
    save_for_backward(node, mask, out, *extras)
    return result(node, out)


def _out(kernel: Kernel, q: Tensor, v: Tensor) -> Tensor:
    batch, heads, seq, _width = q.shape
    shape = (batch, heads, seq, v.shape[-1])
    if kernel == "efficient":
        return empty_permuted(q, shape)
    if kernel == "cudnn" or q.shape == shape:
        return empty(q.memory, shape, q.width, infer_dense_strides(shape, q.strides))
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


def empty_permuted(x: Tensor, shape: Sizes) -> Tensor:
    """A new [b, n, s, d] that lies in memory as [b, s, n, d]."""
    batch, heads, seq, width = shape
    strides = (seq * heads * width, width, heads * width, 1)
    return empty(x.memory, (batch, heads, seq, width), x.width, strides)


def _multiplications(q: Tensor, k: Tensor, v: Tensor, *, scores: int, values: int) -> int:
    """So many products over the width of keys, and over that of values, for every pair of tokens."""
    pairs = q.elements // q.shape[-1] * k.shape[2]
    return pairs * (scores * q.shape[-1] + values * v.shape[-1])


def _count_backward(q: Tensor, k: Tensor, v: Tensor, *, triangle: bool) -> None:
    """The scores again, then the gradients of values and of probabilities, of queries and of keys."""
    q.memory.add_flops(_multiplications(q, k, v, scores=3, values=2), causal=triangle)


def _like_inputs(
    _gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, *_rest: object, triangle: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients laid out as queries, keys and values."""
    _count_backward(q, k, v, triangle=triangle)
    return empty_like(q), empty_like(k), empty_like(v)


def _like_permuted(
    _gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, *_rest: object, triangle: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients that lie as [b, s, n, d]."""
    _count_backward(q, k, v, triangle=triangle)
    return empty_permuted(q, q.shape), empty_permuted(k, k.shape), empty_permuted(v, v.shape)


def plain_attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, dropout: float, grouped: bool, causal: bool, on_cpu: bool
) -> Tensor:
    """The math kernel: scores, softmax and values operator by operator, all in fp32.

    ATen/native/transformers/attention.cpp, _scaled_dot_product_attention_math.
    """
    wide_q, wide_k, wide_v = to(q, FLOAT), to(k, FLOAT), to(v, FLOAT)
    query = mul_scalar(wide_q)
    if mask is None and causal:
        mask = _triangle(q.memory, q.shape[2], k.shape[2])
    times = q.shape[1] // k.shape[1] if grouped else 1
    keys, values = (repeat_heads(wide_k, times), repeat_heads(wide_v, times)) if grouped else (wide_k, wide_v)
    weights = batched_matmul(query, mul_scalar(transpose(keys, 2, 3)))
    if mask is not None:
        weights = add(weights, mask)
    weights = softmax(weights, FLOAT)
    weights = apply_dropout(weights, dropout, on_cpu=on_cpu)
    returned = to(weights, q.width)  # its second result, which nobody takes
    out = to(batched_matmul(weights, values), q.width)
    del returned
    return out


def _triangle(memory: Memory, queries: int, keys: int) -> Tensor:
    """The causal mask in bits, then in numbers."""
    ones = empty(memory, (queries, keys), BOOL)
    bits = empty(memory, ones.shape, BOOL)
    del ones
    return empty(memory, bits.shape, FLOAT)


def repeat_heads(x: Tensor, times: int) -> Tensor:
    """Each head as often as queries share it, copied."""
    batch, heads, seq, width = x.shape
    spread = expand(unsqueeze(x, 2), (batch, heads, times, seq, width))
    return view(clone(spread), (batch, heads * times, seq, width))


_BACKWARD = {"flash": _like_inputs, "cudnn": _like_inputs, "efficient": _like_permuted, "cpu": _like_permuted}
