"""Liger's kernels as autograd functions: what each keeps, makes and overwrites (liger-kernel 0.8.5, Triton on CUDA).

Kernels write where Python tells them to, so a gradient often takes the place of what it is computed from. Recorded
from Liger's own Python (tests/references/make_liger_reference.py); what a kernel takes for itself is not in it.
"""

from __future__ import annotations

from zeroplan.autograd.graph import operator, result, results, save_for_backward
from zeroplan.autograd.losses import FLOAT, LABEL
from zeroplan.autograd.memory import Memory
from zeroplan.autograd.strides import Sizes
from zeroplan.autograd.tensor import Needs, Tensor, empty, empty_like
from zeroplan.autograd.views import contiguous, reshape, transpose_plain, view

BOOL, INT = 1, 4
TILE = 64
"""Rows of an expert that one program of the fused experts takes."""


def in_rows(x: Tensor) -> Tensor:
    """`x` without a graph in row-major order, copied if it lies otherwise (ops/utils.py:ensure_contiguous)."""
    return x.detach() if x.is_contiguous else empty(x.memory, x.shape, x.width)


def rms_norm(x: Tensor, weight: Tensor, *, in_place: bool, programs: int) -> Tensor:
    """ops/rms_norm.py: keeps its input, and 1/deviation of each row in fp32."""
    node = operator("LigerRMSNormFunctionBackward", _rms_norm, (x, weight), (), (in_place, programs))
    rows = in_rows(x)
    out = empty(x.memory, x.shape, x.width)
    save_for_backward(node, rows, weight, empty(x.memory, (x.elements // x.shape[-1],), FLOAT))
    return result(node, out)


def _rms_norm(
    gradient: Tensor, _x: Tensor, weight: Tensor, _deviation: Tensor, in_place: bool, programs: int, _needs: Needs
) -> tuple[Tensor, Tensor]:
    """The input's gradient over the result's, if in place; the weight's from a part of each program in fp32."""
    given = in_rows(gradient)
    parts = empty(given.memory, (programs, given.shape[-1]), FLOAT)  # noqa: F841 (alive while it runs)
    of_x = given if in_place else empty_like(given)
    summed = empty(given.memory, weight.shape, FLOAT)
    return of_x, summed if weight.width == FLOAT else empty_like(summed, weight.width)


def rotary(q: Tensor, k: Tensor, cosines: Tensor, sines: Tensor) -> tuple[Tensor, Tensor]:
    """ops/rope.py: queries and keys, [b, n, s, d], turned where they are if they lie as [b, s, n, d], else copied."""
    node = operator("LigerRopeFunctionBackward", _rotary, (q, k))
    out = (by_token(q), by_token(k))
    save_for_backward(node, cosines, sines)
    turned_q, turned_k = results(node, out)
    return turned_q, turned_k


def by_token(x: Tensor) -> Tensor:
    """[b, n, s, d] that lies as [b, s, n, d]."""
    return transpose_plain(in_rows(transpose_plain(x, 1, 2)), 1, 2)


def _rotary(gradients: list[Tensor], _cosines: Tensor, _sines: Tensor, _needs: Needs) -> tuple[Tensor, Tensor]:
    of_q, of_k = gradients
    return by_token(of_q), by_token(of_k)


def gated(gate: Tensor, up: Tensor) -> Tensor:
    """act(gate)·up (ops/swiglu.py, ops/geglu.py): keeps both factors, and not the activation."""
    node = operator("LigerSiLUMulFunctionBackward", _gated, (gate, up))
    gate, up = in_rows(gate), in_rows(up)
    out = empty_like(gate)
    save_for_backward(node, gate, up)
    return result(node, out)


def _gated(gradient: Tensor, gate: Tensor, up: Tensor, _needs: Needs) -> tuple[Tensor, Tensor]:
    """Each factor's gradient is written over it."""
    given = in_rows(gradient)
    del given
    return gate, up


def causal_loss(x: Tensor, weight: Tensor, labels: Tensor, *, budget: int) -> Tensor:
    """transformers/model/loss_utils.py:LigerForCausalLMLoss: labels padded by one and shifted, as without Liger."""
    batch, seq = labels.shape
    padded = empty(x.memory, (batch, seq + 1), LABEL)
    shifted = contiguous(padded.as_strided((batch, seq), padded.strides))  # noqa: F841 (alive while the loss runs)
    return fused_linear_cross_entropy(view(x, (-1, x.shape[-1])), weight, budget)


def fused_linear_cross_entropy(x: Tensor, weight: Tensor, budget: int) -> Tensor:
    """ops/fused_linear_cross_entropy.py: logits of some rows at a time, and both gradients already in forward.

    In 16 bit a product is added to the weight's gradient where it is; in fp32 it is made first.
    """
    memory, (rows, _width) = x.memory, x.shape
    node = operator("LigerFusedLinearCrossEntropyFunctionBackward", _made_in_forward, (x, weight))
    of_x = empty(memory, x.shape, x.width)
    of_weight = empty(memory, weight.shape, weight.width)
    losses = empty(memory, (rows,), FLOAT)
    counted = empty(memory, (rows,), BOOL)
    logits = empty(memory, (chunk(rows, weight.shape, budget), weight.shape[0]), x.width)
    product = empty_like(of_weight) if x.width == FLOAT else None
    del product, logits
    loss = empty(memory, (), FLOAT)
    save_for_backward(node, of_x, of_weight)
    del losses, counted
    return result(node, loss)


def chunk(rows: int, weight: Sizes, budget: int) -> int:
    """Rows whose logits take about `budget` times what the input takes, a power of two."""
    vocabulary, width = weight
    share = -(-rows // -(-vocabulary // (budget * width)))
    return min(rows, 1 << (share - 1).bit_length())


def _made_in_forward(gradient: Tensor, of_x: Tensor, of_weight: Tensor, _needs: Needs) -> tuple[Tensor, Tensor]:
    """Scaled where they are, unless the loss's gradient is equal to a 1 made for that question."""
    one = empty(gradient.memory, (), FLOAT)
    del one
    return of_x, of_weight


def experts(x: Tensor, up: Tensor, down: Tensor, chosen: Tensor, scores: Tensor) -> Tensor:
    """ops/fused_moe.py: tokens [T, h] through their experts, gathered inside the products.

    Keeps what is before the activation, and indices; how many tiles there are depends on the routing, here at most.
    """
    memory, (tokens, hidden) = x.memory, x.shape
    each, (count, wide, _hidden) = chosen.shape[-1], up.shape
    node = operator("LigerFusedMoEFunctionBackward", _experts, (x, up, down, None, scores), (), (each, scores.shape))
    counts, *places = _routing(memory, tokens, each, count)
    before = empty(memory, (tokens * each, wide), x.width)
    after = empty(memory, (tokens * each, wide // 2), x.width)
    out = empty(memory, (tokens * each, hidden), x.width)
    weights = reshape(scores.detach(), (-1,))
    made = empty(memory, x.shape, x.width)
    save_for_backward(node, x, up, down, before, weights, *places)
    del counts, after, out
    return result(node, made)


def _routing(memory: Memory, tokens: int, each: int, count: int) -> tuple[Tensor, ...]:
    """How many rows each expert has, and where they start; permutations; each tile's first row and expert: int32."""

    def numbers(*shape: int) -> Tensor:
        return empty(memory, shape, INT)

    per_block = max(1, 1024 >> (each - 1).bit_length())
    blocks = numbers(count, -(-tokens // per_block))
    counts, starts, tile_starts = numbers(count), numbers(count + 1), numbers(count + 1)
    tiles = (tokens * each) // TILE + count
    first, expert = numbers(tiles), numbers(tiles)
    scatter, reverse, gather = (numbers(tokens * each) for _permutation in range(3))
    del blocks, tile_starts
    return counts, starts, gather, scatter, reverse, first, expert


def _experts(gradient: Tensor, x: Tensor, up: Tensor, down: Tensor, before: Tensor, *rest: object) -> tuple[
    Tensor | None, ...
]:  # fmt: skip
    """Gradients of the rows, of both weights whole, of the input and of the scores."""
    memory, rows = gradient.memory, before.shape[0]
    *_indices, each, shape, _needs = rest
    of_before = empty_like(before)
    weighted = empty(memory, (rows, before.shape[1] // 2), gradient.width)
    of_scores = empty(memory, (rows,), gradient.width)
    of_down = empty(memory, down.shape, down.width)
    of_rows = empty(memory, (rows, x.shape[1]), gradient.width)
    of_x = empty(memory, x.shape, gradient.width)
    of_up = empty(memory, up.shape, up.width)
    del of_before, weighted, of_rows, each
    assert isinstance(shape, tuple)
    return of_x, of_up, of_down, None, reshape(of_scores, shape)
