"""Tensors of the gated delta rule and of Kimi's delta attention, made without computing (fla-core 0.6.0, Triton).

Queries and keys are [B, T, H, K], values [B, T, HV, V], in chunks of 64 tokens. What the wrappers of fla hold for a
while is part of it: input_guard keeps what it copied until a function is over. Backends that other packages bring
(TileLang, FlashQLA, FlashKDA) are not meant; sequences of several lengths are refused.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

CHUNK, SUB_CHUNK = 64, 16
H100_TILE = 128
"""Elements of a head that one program of chunk_bwd_dqkwg takes, by the shared memory of an H100."""
INTRA_TILE = 32
"""The same of chunk_kda_bwd_intra, on any card."""
FLOAT = torch.float32
Pair = tuple[Tensor, Tensor | None]


def chunk_gated_delta_rule(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, scale: float | None = None,
    initial_state: Tensor | None = None, output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
) -> Pair:  # fmt: skip
    """fla/ops/gated_delta_rule/chunk.py: chunk_gated_delta_rule, with a gate and a beta that are computed before."""
    del scale
    how = (output_final_state, use_qk_l2norm_in_kernel)
    made: Pair = ChunkGatedDeltaRuleFunction.apply(*_of_one_length(cu_seqlens, q, k, v, g, beta), initial_state, *how)
    return made


def chunk_kda(
    q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, scale: float | None = None,
    initial_state: Tensor | None = None, output_final_state: bool = False, use_qk_l2norm_in_kernel: bool = False,
    cu_seqlens: Tensor | None = None,
) -> Pair:  # fmt: skip
    """fla/ops/kda/chunk.py: chunk_kda, with a gate and a beta that are computed before."""
    del scale
    how = (output_final_state, use_qk_l2norm_in_kernel)
    made: Pair = ChunkKDAFunction.apply(*_of_one_length(cu_seqlens, q, k, v, g, beta), initial_state, *how)
    return made


def _of_one_length(cu_seqlens: Tensor | None, *tensors: Tensor) -> tuple[Tensor, ...]:
    if cu_seqlens is not None:
        raise NotImplementedError("sequences of several lengths have as many chunks as their lengths say")
    return tensors


class ChunkGatedDeltaRuleFunction(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """fla/ops/gated_delta_rule/chunk.py: ChunkGatedDeltaRuleFunction.

    Keeps queries and keys normed, with 1/norm in fp32 [B, T, H], the values, the gate summed along a chunk in fp32
    [B, T, HV], beta, and the inverse of each chunk's matrix [B, T, HV, 64]. States are computed again in backward.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor | None, ends: bool,
        norms: bool,
    ) -> Pair:  # fmt: skip
        guarded = in_rows(q, k, v, g, beta, state)
        q, k, v, g, beta, state = guarded
        q, q_norm = l2norm(q) if norms else (q, None)
        k, k_norm = l2norm(k) if norms else (k, None)
        summed, out, inverse, end = _delta_rule(k, v, g, ends)
        ctx.save_for_backward(q, q_norm, k, k_norm, v, summed, beta, beta, inverse, state)
        del guarded
        return out, end

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_of_end: Tensor | None) -> tuple[Tensor | None, ...]:
        q, q_norm, k, _k_norm, v, summed, _raw, beta, _inverse, state = ctx.saved_tensors
        gradient = gradient.contiguous()
        of_q, of_k, of_v, of_beta, of_g, of_state = _delta_rule_backward(q, k, v, summed, beta, state, gradient)
        if q_norm is not None:
            of_q = torch.empty_like(q)
            of_k = torch.empty_like(k)
        return of_q, of_k, of_v, of_g, of_beta, of_state, None, None


def in_rows(*tensors: Tensor | None) -> Any:
    """fla/utils/decorators.py: input_guard: copies of those that do not lie in row-major order."""
    return tuple([None if each is None else each.contiguous() for each in tensors])


def l2norm(x: Tensor) -> tuple[Tensor, Tensor]:
    """fla/modules/norm/l2norm.py: l2norm_fwd."""
    normed = torch.empty_like(x.view(-1, x.shape[-1]))
    norms = torch.empty(normed.shape[:1], dtype=FLOAT, device=x.device)
    return normed.view(x.shape), norms.view(x.shape[:-1])


def _delta_rule(k: Tensor, v: Tensor, g: Tensor, ends: bool) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """fla/ops/gated_delta_rule/chunk.py: chunk_gated_delta_rule_fwd, and what it calls."""
    summed = torch.empty_like(g, dtype=FLOAT)
    inverse = k.new_empty(*v.shape[:3], CHUNK)
    w, u = k.new_empty(*v.shape[:3], k.shape[-1]), torch.empty_like(v)
    states, end, v_new = _states(k, u, ends)
    out = torch.empty_like(v_new)
    del w, u, states, v_new
    return summed, out, inverse, end


def _states(k: Tensor, u: Tensor, ends: bool = False) -> tuple[Tensor, Tensor | None, Tensor]:
    """fla/ops/common/chunk_delta_h.py: chunk_gated_delta_rule_fwd_h: the state at each chunk's start, and the last."""
    shape = state_shape(k, u)
    states = k.new_empty(shape)
    end = k.new_empty(shape[0], *shape[2:], dtype=FLOAT) if ends else None
    return states, end, torch.empty_like(u)


def state_shape(k: Tensor, u: Tensor) -> tuple[int, ...]:
    """[B, chunks, HV, K, V]: the last chunk may be shorter."""
    batch, seq, heads, width = u.shape
    return batch, -(-seq // CHUNK), heads, k.shape[-1], width


def _delta_rule_backward(
    q: Tensor, k: Tensor, v: Tensor, summed: Tensor, beta: Tensor, state: Tensor | None, gradient: Tensor
) -> tuple[Tensor | None, ...]:
    """fla/ops/gated_delta_rule/chunk.py: chunk_gated_delta_rule_bwd, and what it calls."""
    full = (*v.shape[:3], k.shape[-1])
    w, u = k.new_empty(full), torch.empty_like(v)
    states, _end, v_new = _states(k, u)
    of_v = torch.empty_like(gradient)
    of_states, of_state, of_v = _state_gradients(q, gradient, state, of_v)
    of_q, of_k, of_w, of_g = _product_gradients(q, k, w, summed, full)
    more_k, of_v, of_beta, more_g = _representation_gradients(k, v, summed, beta, full)
    of_k.add_(more_k)
    of_g.add_(more_g)
    of_g = torch.empty_like(of_g)
    del w, u, states, v_new, of_states, of_w, more_k, more_g
    return of_q, of_k, of_v, of_beta, of_g, of_state


def _state_gradients(q: Tensor, like: Tensor, state: Tensor | None, of_v: Tensor) -> tuple[Tensor, Any, Tensor]:
    """fla/ops/common/chunk_delta_h.py: chunk_gated_delta_rule_bwd_dhu."""
    of_states = q.new_empty(state_shape(q, like))
    of_state = None if state is None else torch.empty_like(state, dtype=FLOAT)
    return of_states, of_state, torch.empty_like(of_v)


def _product_gradients(
    q: Tensor, k: Tensor, w: Tensor, summed: Tensor, full: tuple[int, ...]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """fla/ops/common/chunk_o.py: chunk_bwd_dqkwg: queries and keys of all heads, then added up to their own."""
    of_q, of_k = q.new_empty(full), k.new_empty(full)
    tile = min(max(power_of_2(full[-1]), 16), H100_TILE)
    of_g = torch.empty(-(-full[-1] // tile), *summed.shape, dtype=FLOAT, device=summed.device)
    of_w = torch.empty_like(w)
    of_q = of_own_heads(of_q, q)
    of_k = of_own_heads(of_k, k)
    of_g = of_g.sum(0)
    return of_q, of_k, of_w, of_g


def power_of_2(number: int) -> int:
    """The next."""
    return 1 << (number - 1).bit_length()


def of_own_heads(gradient: Tensor, like: Tensor) -> Tensor:
    """[B, T, HV, K], summed over the value heads of a key head."""
    heads = like.shape[2]
    if gradient.shape[2] == heads:
        return gradient
    return gradient.view(*gradient.shape[:2], heads, -1, gradient.shape[-1]).sum(3)


def _representation_gradients(
    k: Tensor, v: Tensor, summed: Tensor, beta: Tensor, full: tuple[int, ...]
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """fla/ops/gated_delta_rule/wy_fast.py: prepare_wy_repr_bwd."""
    of_k, of_v = k.new_empty(full), torch.empty_like(v)
    of_g, of_beta = torch.empty_like(summed), torch.empty_like(beta)
    of_k = of_own_heads(of_k, k)
    return of_k, of_v, of_beta, of_g


class ChunkKDAFunction(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """fla/ops/kda/chunk.py: ChunkKDAFunction, which computes most of it again in backward (disable_recompute=False).

    Keeps what the gated delta rule keeps, with a gate for each element of a head, given and summed, [B, T, HV, K]; and
    a second matrix of each chunk.
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor | None, ends: bool,
        norms: bool,
    ) -> Pair:  # fmt: skip
        guarded = in_rows(q, k, v, g, beta, state)
        q, k, v, g, beta, state = guarded
        q, q_norm = l2norm(q) if norms else (q, None)
        k, k_norm = l2norm(k) if norms else (k, None)
        out, end, summed, products, inverse = _kda(k, v, g, ends)
        ctx.save_for_backward(q, q_norm, k, k_norm, v, summed, g, beta, beta, products, inverse, state)
        del guarded
        return out, end

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_of_end: Tensor | None) -> tuple[Tensor | None, ...]:
        q, q_norm, k, _k_norm, v, summed, g, _raw, beta, _products, inverse, state = ctx.saved_tensors
        gradient = gradient.contiguous()
        of_q, of_k, of_v, of_beta, of_g, of_state = _kda_backward(q, k, v, summed, beta, inverse, state, gradient)
        if q_norm is not None:
            of_q = torch.empty_like(q)
            of_k = torch.empty_like(k)
        narrowed = [each.to(of.dtype) for each, of in ((of_q, q), (of_k, k), (of_v, v), (of_g, g), (of_beta, beta))]
        return (*narrowed, of_state, None, None)


def _kda(k: Tensor, v: Tensor, g: Tensor, ends: bool) -> tuple[Tensor, Tensor | None, Tensor, Tensor, Tensor]:
    """fla/ops/kda/chunk_fwd.py: chunk_kda_fwd, and what it calls."""
    summed = torch.empty_like(g, dtype=FLOAT)
    w, u, keys, products, inverse = _kda_matrices(k, v)
    states, end, v_new = _states(keys, u, ends)
    out = torch.empty_like(v_new)
    del w, u, keys, states, v_new
    return out, end, summed, products, inverse


def _kda_matrices(k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """fla/ops/kda/chunk_intra.py: chunk_kda_fwd_intra, with diagonal blocks in fp32 until it is over."""
    heads = v.shape[:3]
    products, inverse = k.new_empty(*heads, CHUNK), k.new_empty(*heads, CHUNK)
    diagonal = k.new_empty(*heads, SUB_CHUNK, dtype=FLOAT)
    w, u, _queries, keys = _kda_again(k, v, queries=False)
    del diagonal
    return w, u, keys, products, inverse


def _kda_again(k: Tensor, v: Tensor, *, queries: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """fla/ops/kda/wy_fast.py: recompute_w_u_fwd; without queries, the third is a tensor of another."""
    full = (*v.shape[:3], k.shape[-1])
    w, u = k.new_empty(full), torch.empty_like(v)
    scaled = k.new_empty(full) if queries else w
    return w, u, scaled, k.new_empty(full)


def _kda_backward(
    q: Tensor, k: Tensor, v: Tensor, summed: Tensor, beta: Tensor, inverse: Tensor, state: Tensor | None,
    gradient: Tensor,
) -> tuple[Any, ...]:  # fmt: skip
    """fla/ops/kda/chunk_bwd.py: chunk_kda_bwd, and what it calls; gradients in fp32 except the values'."""
    w, u, queries, keys = _kda_again(k, v, queries=True)
    states, _end, v_new = _states(keys, u)
    of_products, of_v = v.new_empty(*v.shape[:3], CHUNK, dtype=FLOAT), torch.empty_like(gradient)
    of_states, of_state, of_v = _state_gradients(queries, gradient, state, of_v)
    of_q, of_k, of_v, of_beta, of_g, of_inverse = _kda_gradients(k, v, summed, beta, inverse)
    of_q, of_k, of_beta, of_g = _kda_intra_gradients(of_q, of_k, of_beta, of_g)
    of_q = of_own_heads(of_q, q)
    of_k = of_own_heads(of_k, k)
    of_g = torch.empty_like(of_g)
    del w, u, queries, keys, states, v_new, of_products, of_states, of_inverse
    return of_q, of_k, of_v, of_beta, of_g, of_state


def _kda_gradients(k: Tensor, v: Tensor, summed: Tensor, beta: Tensor, inverse: Tensor) -> tuple[Tensor, ...]:
    """fla/ops/kda/chunk_bwd.py: chunk_kda_bwd_wy_dqkg_fused."""
    of_q, of_k = (k.new_empty(*v.shape[:3], k.shape[-1], dtype=FLOAT) for _which in "qk")
    of_v = torch.empty_like(v)
    of_g, of_beta, of_inverse = (torch.empty_like(each, dtype=FLOAT) for each in (summed, beta, inverse))
    return of_q, of_k, of_v, of_beta, of_g, of_inverse


def _kda_intra_gradients(of_q: Tensor, of_k: Tensor, of_beta: Tensor, of_g: Tensor) -> tuple[Tensor, ...]:
    """fla/ops/kda/chunk_intra.py: chunk_kda_bwd_intra, which writes to other tensors than it reads."""
    tile = min(INTRA_TILE, power_of_2(of_k.shape[-1]))
    more_q, more_k = torch.empty_like(of_q), torch.empty_like(of_k)
    parts = of_beta.new_empty(-(-of_k.shape[-1] // tile), *of_beta.shape)
    more_g = torch.empty_like(of_g)
    summed = parts.sum(0).add_(of_beta)
    return more_q, more_k, summed, more_g
