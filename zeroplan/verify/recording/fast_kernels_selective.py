"""Tensors of Mamba's selective scan, made without computing (mamba_ssm 2.3.2.post1, CUDA).

Channels are [b, d, l] with n states each; A, D and the bias of steps are fp32, as transformers gives them. Autocast is
not meant.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from zeroplan.verify.recording import fast_kernels_conv as conv

SCANNED = 2048
"""Tokens that one block of the kernel takes."""
FLOAT = torch.float32
Tensors = tuple[Tensor | None, ...]


def selective_scan_fn(
    u: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, D: Tensor | None = None, z: Tensor | None = None,  # noqa: N803
    delta_bias: Tensor | None = None, return_last_state: bool = False,
) -> Any:  # fmt: skip
    """mamba_ssm/ops/selective_scan_interface.py: selective_scan_fn."""
    return SelectiveScanFn.apply(u, delta, a, b, c, D, z, delta_bias, return_last_state)


def mamba_inner_fn(
    xz: Tensor, conv1d_weight: Tensor, conv1d_bias: Tensor | None, x_proj_weight: Tensor, delta_proj_weight: Tensor,
    out_proj_weight: Tensor, out_proj_bias: Tensor | None, a: Tensor, _b: None = None, _c: None = None,
    D: Tensor | None = None, delta_bias: Tensor | None = None, b_rms_weight: Tensor | None = None,  # noqa: N803
    c_rms_weight: Tensor | None = None, dt_rms_weight: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """mamba_ssm/ops/selective_scan_interface.py: mamba_inner_fn, of which B and C follow from x."""
    weights = (conv1d_weight, conv1d_bias, x_proj_weight, delta_proj_weight, out_proj_weight, out_proj_bias)
    norms = (b_rms_weight, c_rms_weight, dt_rms_weight)
    made: Tensor = MambaInnerFn.apply(xz, *weights, a, D, delta_bias, *norms)
    return made


class SelectiveScanFn(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """mamba_ssm/ops/selective_scan_interface.py: SelectiveScanFn.

    Keeps what it is given, in rows of tokens, a pair of numbers of each state after each 2,048 tokens in fp32, and with
    z its results before the gate.
    """

    @staticmethod
    def forward(
        ctx: Any, u: Tensor, delta: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor | None, z: Tensor | None,
        bias: Tensor | None, ends: bool,
    ) -> Any:  # fmt: skip
        u, delta, b, c = (_in_tokens(each) for each in (u, delta, b, c))
        z = None if z is None else _in_tokens(z)
        ctx.grouped = b.dim() == 4, c.dim() == 4
        b, c = (each if each.dim() == 4 else each.unsqueeze(1) for each in (b, c))
        out, states, gated = _selective_scan(u, delta, a, z)
        ctx.save_for_backward(u, delta, a, b, c, d, z, bias, states, None if gated is None else out)
        made = out if gated is None else gated
        return (made, states[:, :, -1, 1::2]) if ends else made

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_of_end: Tensor | None) -> Tensors:
        u, delta, a, b, c, d, z, bias, _states, out = ctx.saved_tensors
        gradient = _in_tokens(gradient)
        made = _selective_gradients(SelectivelyGiven(u, delta, a, b, c, d, z, bias, out))
        of_b, of_c = (
            each if grouped else each.squeeze(1) for each, grouped in zip((made.b, made.c), ctx.grouped, strict=True)
        )
        return (made.u, made.delta, made.a, of_b, of_c, made.d, made.z, made.bias, None)


def _in_tokens(x: Tensor) -> Tensor:
    return x if x.stride(-1) == 1 else x.contiguous()


def _selective_scan(u: Tensor, delta: Tensor, a: Tensor, z: Tensor | None) -> tuple[Tensor, Tensor, Tensor | None]:
    """csrc/selective_scan/selective_scan.cpp: selective_scan_fwd: results, states, and gated results."""
    gated = None if z is None else torch.empty_like(z)
    out = torch.empty_like(delta)
    return out, u.new_empty(*u.shape[:2], -(-u.shape[2] // SCANNED), 2 * a.shape[1], dtype=a.dtype), gated


class SelectivelyGiven(NamedTuple):
    """What a selective scan's backward reads."""

    u: Tensor
    delta: Tensor
    a: Tensor
    b: Tensor
    c: Tensor
    d: Tensor | None
    z: Tensor | None
    bias: Tensor | None
    out: Tensor | None


class SelectiveGradients(NamedTuple):
    """What it gives."""

    u: Tensor
    delta: Tensor
    a: Tensor
    b: Tensor
    c: Tensor
    d: Tensor | None
    bias: Tensor | None
    z: Tensor | None
    gated: Tensor | None


def _selective_gradients(
    given: SelectivelyGiven, place: Tensor | None = None, *, again: bool = False
) -> SelectiveGradients:
    """csrc/selective_scan/selective_scan.cpp: selective_scan_bwd: those of B and C in fp32 first."""
    u, delta, a, b, c, d, z, bias, out = given
    of_z = torch.empty_like(z) if place is None and z is not None else place
    gated = torch.empty_like(out) if again and out is not None else None
    of_u, of_delta, of_a = torch.empty_like(u), torch.empty_like(delta), torch.empty_like(a)
    of_b, of_c = torch.empty_like(b, dtype=FLOAT), torch.empty_like(c, dtype=FLOAT)
    of_d, of_bias = (None if each is None else torch.empty_like(each) for each in (d, bias))
    narrowed = of_b.to(b.dtype), of_c.to(c.dtype)
    return SelectiveGradients(of_u, of_delta, of_a, *narrowed, of_d, of_bias, of_z, gated)


class MambaInnerFn(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """mamba_ssm/ops/selective_scan_interface.py: MambaInnerFn with checkpoint_lvl 1: all of Mamba between projections.

    Keeps its input in rows of tokens, [b, 2d, l], steps with B and C before they are apart, [bl, r + 2n], B and C,
    states as the selective scan, and results before the gate; the convolution and steps are computed again.
    """

    @staticmethod
    def forward(
        ctx: Any, xz: Tensor, conv_weight: Tensor, conv_bias: Tensor | None, x_proj: Tensor, delta_proj: Tensor,
        out_proj: Tensor, out_bias: Tensor | None, a: Tensor, d: Tensor | None, bias: Tensor | None,
        b_norm: Tensor | None, c_norm: Tensor | None, delta_norm: Tensor | None,
    ) -> Tensor:  # fmt: skip
        seq, rank, state = xz.shape[-1], delta_proj.shape[1], a.shape[1]
        xz = _in_tokens(xz)
        weight = conv_weight.squeeze(1)
        x, z = xz.chunk(2, dim=1)
        convolved: Tensor | None = conv.convolved(x)
        x_dbl = functional.linear(_by_token(convolved), x_proj)
        delta: Tensor | None = _by_sequence(delta_proj @ x_dbl[:, :rank].t(), seq)
        b, c = (_in_groups(part, seq) for part in (x_dbl[:, rank : rank + state], x_dbl[:, -state:]))
        if b_norm is not None:
            b = _by_token(b.squeeze(1)).contiguous()
            b = _normed(b)
            b = _in_groups(b, seq)
        if c_norm is not None:
            c = _by_token(c.squeeze(1)).contiguous()
            c = _normed(c)
            c = _in_groups(c, seq)
        if delta_norm is not None:
            delta = _by_token(delta).contiguous()
            delta = _normed(delta)
            delta = _in_rows(delta, seq)
        out, states, gated = _selective_scan(convolved, delta, a, z)
        assert gated is not None
        convolved = delta = None
        projections = (x_proj, delta_proj, out_proj)
        ctx.save_for_backward(xz, weight, conv_bias, x_dbl, *projections, a, b, c, d, bias, states, out)
        ctx.norms = tuple([each is not None for each in (b_norm, c_norm, delta_norm)])
        ctx.biased = out_bias is not None
        return functional.linear(gated.mT, out_proj, out_bias)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensors:
        xz, weight, conv_bias, x_dbl, x_proj, delta_proj, out_proj, a, b, c, d, bias, _states, out = ctx.saved_tensors
        seq, rank, state = xz.shape[-1], delta_proj.shape[1], a.shape[1]
        norms_b, norms_c, norms_delta = ctx.norms
        x, z = xz.chunk(2, dim=1)
        gradient = _in_tokens(gradient)
        convolved = conv.convolved(x)
        delta = _by_sequence(delta_proj @ x_dbl[:, :rank].t(), seq)
        if norms_delta:
            delta = _by_token(delta).contiguous()
            delta = _normed(delta)
            delta = _in_rows(delta, seq)
        if norms_b:
            b = _by_token(b.squeeze(1)).contiguous()
            b = _normed(b)
            b = _in_groups(b, seq)
        if norms_c:
            c = _by_token(c.squeeze(1)).contiguous()
            c = _normed(c)
            c = _in_groups(c, seq)
        of_xz = torch.empty_like(xz)
        of_x, of_z = of_xz.chunk(2, dim=1)
        flat = gradient.permute(2, 0, 1).flatten(1)
        of_out = _by_sequence(out_proj.t() @ flat, seq)
        given = SelectivelyGiven(convolved, delta, a, b, c, d, z, bias, out)
        made = _selective_gradients(given, of_z, again=True)
        of_convolved, of_delta, of_a, of_b, of_c, of_d, of_bias, _of_z, gated = made
        del made
        of_out_proj = torch.einsum("eB,dB->ed", flat, _by_channel(gated))
        of_out_bias = flat.sum(dim=1) if ctx.biased else None
        of_dbl = torch.empty_like(x_dbl)
        of_b = _by_token(of_b.squeeze(1)).contiguous()
        of_dbl[:, rank : rank + state] = of_b
        del of_b
        of_c = _by_token(of_c.squeeze(1)).contiguous()
        of_dbl[:, -state:] = of_c
        del of_c
        of_delta = _by_channel(of_delta)
        of_delta_proj = torch.einsum("dB,Br->dr", of_delta, x_dbl[:, :rank])
        of_dbl[:, :rank] = torch.einsum("dB,dr->Br", of_delta, delta_proj)
        of_convolved = _by_channel(of_convolved)
        of_x_proj = torch.einsum("Br,Bd->rd", of_dbl, _by_token(convolved))
        torch.addmm(of_convolved, x_proj.t(), of_dbl.t(), out=of_convolved)
        _of_x, of_weight, of_conv_bias = conv.gradients(x, weight, conv_bias, _by_sequence(of_convolved, seq), of_x)
        of_projections = (of_x_proj, of_delta_proj, of_out_proj, of_out_bias)
        del of_out, gated, given
        return (of_xz, of_weight.unsqueeze(1), of_conv_bias, *of_projections, of_a, of_d, of_bias, None, None, None)


def _by_token(x: Tensor) -> Tensor:
    """[b, d, l] as [b·l, d]."""
    return x.mT.flatten(0, 1)


def _by_channel(x: Tensor) -> Tensor:
    """[b, d, l] as [d, b·l]."""
    return x.transpose(0, 1).flatten(1)


def _by_sequence(x: Tensor, seq: int) -> Tensor:
    """[d, b·l] as [b, d, l]."""
    return x.unflatten(1, (-1, seq)).transpose(0, 1)


def _in_groups(x: Tensor, seq: int) -> Tensor:
    """[b·l, n] as [b, 1, n, l] in rows of tokens."""
    return x.unflatten(0, (-1, seq)).mT.unsqueeze(1).contiguous()


def _normed(x: Tensor) -> Tensor:
    """mamba_ssm/ops/triton/layer_norm.py: _layer_norm_fwd; 1/deviations go at once."""
    normed = torch.empty_like(x)
    deviations = x.new_empty(x.shape[0], dtype=FLOAT)
    del deviations
    return normed


def _in_rows(x: Tensor, seq: int) -> Tensor:
    """[b·l, d] as [b, d, l] in rows of tokens."""
    return x.unflatten(0, (-1, seq)).mT.contiguous()
