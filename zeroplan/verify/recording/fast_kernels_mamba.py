"""Tensors of Mamba-2's scan in chunks, made without computing (mamba_ssm 2.3.2.post1, Triton).

Autotuning chooses among blocks that read the same tensors. Deterministic algorithms make others and are not meant, nor
is autocast, nor an MLP's inputs beside the scan's.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from zeroplan.verify.recording import fast_kernels_conv as conv

H100_MULTIPROCESSORS = 132
"""Of an H100 SXM: they say in how many parts a norm's weight is summed."""
SPLIT_OVER = 1
"""Multiprocessors that the heads of a group are split over; sizes would not follow from tokens alone with a card's own.

1: one program sums a group, as on an H100 where there are chunks enough (132 and more for each of a group's heads).
"""
SMALLEST_ROWS, SMALLEST_STATE, WIDEST_NORM = 32, 64, 65_536
"""Rows of a chunk and elements of a state in the smallest blocks that are tried: there is room for a sum of each; and
bytes of a norm's row that one program can take.
"""
CONV_MULTIPLE = 8
"""Elements: the convolution's channels-last rows begin at multiples of it."""
FLOAT = torch.float32
Tensors = tuple[Tensor | None, ...]


def mamba_chunk_scan_combined(
    x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, chunk_size: int, D: Tensor, z: Tensor | None = None,  # noqa: N803
    dt_bias: Tensor | None = None, initial_states: Tensor | None = None, seq_idx: Tensor | None = None,
    return_final_states: bool = False,
) -> Any:  # fmt: skip
    """mamba_ssm/ops/triton/ssd_combined.py: mamba_chunk_scan_combined."""
    tensors = (x, dt, a, b, c, D, z, dt_bias, initial_states, seq_idx)
    return MambaChunkScanCombinedFn.apply(*tensors, chunk_size, return_final_states)


def mamba_split_conv1d_scan_combined(
    zxbcdt: Tensor, conv1d_weight: Tensor, conv1d_bias: Tensor | None, dt_bias: Tensor, a: Tensor, D: Tensor,  # noqa: N803
    chunk_size: int, seq_idx: Tensor | None = None, rmsnorm_weight: Tensor | None = None,
    outproj_weight: Tensor | None = None, outproj_bias: Tensor | None = None, headdim: int = 0, ngroups: int = 1,
) -> Tensor:  # fmt: skip
    """mamba_ssm/ops/triton/ssd_combined.py: mamba_split_conv1d_scan_combined, without states before or after."""
    tensors = (zxbcdt, conv1d_weight, conv1d_bias, dt_bias, a, D, seq_idx, rmsnorm_weight, outproj_weight, outproj_bias)
    made: Tensor = MambaSplitConv1dScanCombinedFn.apply(*tensors, chunk_size, headdim, ngroups)
    return made


class Chunks(NamedTuple):
    """How a scan is divided: tokens [b, l], heads [h, p], groups of heads with states n wide."""

    batch: int
    chunks: int
    chunk: int
    heads: int
    width: int
    groups: int
    state: int

    @classmethod
    def of(cls, x: Tensor, b: Tensor, chunk: int) -> Chunks:
        batch, seq, heads, width = x.shape
        return cls(batch, -(-seq // chunk), chunk, heads, width, *b.shape[2:])

    @property
    def steps(self) -> tuple[int, ...]:
        return self.batch, self.heads, self.chunks, self.chunk

    @property
    def states(self) -> tuple[int, ...]:
        return self.batch, self.chunks, self.heads, self.width, self.state

    @property
    def products(self) -> tuple[int, ...]:
        return self.batch, self.chunks, self.groups, self.chunk, self.chunk

    @property
    def row_blocks(self) -> int:
        return -(-self.chunk // SMALLEST_ROWS)

    @property
    def splits(self) -> int:
        """Parts in which the heads of a group are summed, so that no multiprocessor is idle."""
        share = self.heads // self.groups
        each = -(-self.batch * self.chunks * self.heads // SPLIT_OVER)
        return -(-share // max(min(each, share), 1))


class MambaChunkScanCombinedFn(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """mamba_ssm/ops/triton/ssd_combined.py: MambaChunkScanCombinedFn.

    Keeps what it is given, what it returns (with z: that before the gate) and decays summed along each chunk, in fp32.
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, dt: Tensor, a: Tensor, b: Tensor, c: Tensor, d: Tensor, z: Tensor | None,
        bias: Tensor | None, initial: Tensor | None, seq_idx: Tensor | None, chunk: int, ends: bool,
    ) -> Any:  # fmt: skip
        out, before, *inside, end = _scan(x, b, c, z, chunk)
        decays = inside[1]
        ctx.save_for_backward(out if before is None else before, x, dt, decays, a, b, c, d, z, bias, initial, seq_idx)
        ctx.chunk = chunk
        del inside
        return (out, end) if ends else out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, *_of_end: Tensor | None) -> Tensors:
        _out, x, dt, _decays, a, b, c, d, z, bias, initial, _seq_idx = ctx.saved_tensors
        given = Given(gradient, x, dt, a, b, c, d, z, bias, initial)
        made, _gated = _scan_backward(given, ctx.chunk, Places(), again=False)
        return (*made, None, None, None)


def _scan(x: Tensor, b: Tensor, c: Tensor, z: Tensor | None, chunk: int) -> Any:
    """mamba_ssm/ops/triton/ssd_combined.py: _mamba_chunk_scan_combined_fwd.

    Results (with a gate those before it too), steps and their decays, each chunk's first state, and the last.
    """
    of = Chunks.of(x, b, chunk)
    copied = [each.contiguous() for each in (b, c) if each.stride(-1) != 1]
    copied += [each.contiguous() for each in (x, z) if each is not None and 1 not in (each.stride(-1), each.stride(1))]
    steps, decays = (x.new_empty(of.steps, dtype=FLOAT) for _both in "ab")
    states = x.new_empty(of.states, dtype=FLOAT)
    states, end = _passed(states, c.dtype)
    products = x.new_empty(of.products, dtype=FLOAT)
    out = x.new_empty(x.shape)
    before = None if z is None else x.new_empty(x.shape)
    del copied, products
    return out, before, steps, decays, states, end


def _passed(states: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """mamba_ssm/ops/triton/ssd_state_passing.py: _state_passing_fwd."""
    batch, _chunks, *shape = states.shape
    return torch.empty_like(states, dtype=dtype), states.new_empty(batch, *shape, dtype=FLOAT)


class Given(NamedTuple):
    """What a scan's backward reads."""

    gradient: Tensor
    x: Tensor
    dt: Tensor
    a: Tensor
    b: Tensor
    c: Tensor
    d: Tensor
    z: Tensor | None
    bias: Tensor | None
    initial: Tensor | None


class Places(NamedTuple):
    """Where gradients are written; None: to a tensor of their own."""

    x: Tensor | None = None
    dt: Tensor | None = None
    b: Tensor | None = None
    c: Tensor | None = None
    z: Tensor | None = None


def _scan_backward(given: Given, chunk: int, places: Places, *, again: bool) -> tuple[Tensors, Tensor | None]:
    """mamba_ssm/ops/triton/ssd_combined.py: _mamba_chunk_scan_combined_bwd: gradients, and if `again` gated results.

    Steps, products and states are computed again, and all that is made lives until it is over, except what its own
    successor replaces.
    """
    gradient, x, dt, a, b, c, _d, z, bias, initial = given
    of = Chunks.of(x, b, chunk)
    gradient = gradient if gradient.stride(-1) == 1 else gradient.contiguous()
    of_b, of_c, of_dt = (
        torch.empty_like(each) if place is None else place
        for each, place in ((b, places.b), (c, places.c), (dt, places.dt))
    )
    steps_given = torch.empty_like(dt)
    steps, decays = (x.new_empty(of.steps, dtype=FLOAT) for _both in "ab")
    products = x.new_empty(of.products, dtype=FLOAT)
    states = x.new_empty(of.states, dtype=FLOAT)
    states, end = _passed(states, FLOAT)
    of_z = gated = of_d = None
    if z is not None:
        of_z, gradient, of_d, gated = _gate_gradients(given, gradient, of, places.z, again=again)
    of_states = x.new_empty(of.states, dtype=FLOAT)
    of_states, of_last, of_initial, states = _passed_gradients(states, of_states, x.dtype, initial)
    of_x, of_steps, d_of_x = _input_gradients(given, of, places.x)
    b_sums, after = _group_gradients(x, of)
    c_sums, before = _group_gradients(x, of)
    of_products = x.new_empty(*of.products[:2], of.splits, *of.products[2:], dtype=FLOAT)
    of_products = of_products.sum(2)
    before[..., -1].add_(of_last)
    since = before.flip([-1]).cumsum(dim=-1).flip([-1])
    of_decays = _decay_gradients(x, of)
    of_decays += after + since
    of_bias = None if bias is None else torch.empty_like(bias, dtype=FLOAT)
    of_a = torch.empty_like(a, dtype=FLOAT)
    del steps_given, steps, decays, products, states, end, of_states, of_steps, b_sums, c_sums, of_products, of_decays
    return (of_x, of_dt, of_a, of_b, of_c, d_of_x if z is None else of_d, of_z, of_bias, of_initial), gated


def _gate_gradients(
    given: Given, gradient: Tensor, of: Chunks, place: Tensor | None, *, again: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """mamba_ssm/ops/triton/ssd_chunk_scan.py: _chunk_scan_bwd_dz, with D's gradient."""
    assert given.z is not None
    of_d = _d_sums(given.d, of)
    of_z = torch.empty_like(given.z) if place is None else place
    gated = torch.empty_like(given.x) if again else None
    of_x = torch.empty_like(gradient)
    of_d = of_d.sum(dim=(0, 1, 2)).to(given.d.dtype)
    return of_z, of_x, of_d.view_as(given.d), gated


def _d_sums(d: Tensor, of: Chunks) -> Tensor:
    """D's gradient by block of rows."""
    return d.new_empty(of.row_blocks, of.batch, of.chunks, of.heads, d.shape[1] if d.dim() == 2 else 1, dtype=FLOAT)


def _passed_gradients(
    states: Tensor, gradient: Tensor, dtype: torch.dtype, initial: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    """mamba_ssm/ops/triton/ssd_state_passing.py: _state_passing_bwd, in the dtype of the input."""
    batch, chunks, heads, width, state = states.shape
    of_states = torch.empty_like(gradient, dtype=dtype)
    narrowed = states if dtype == states.dtype else torch.empty_like(states, dtype=dtype)
    of_initial = None if initial is None else torch.empty_like(of_states[:, 0])
    sums = states.new_empty(batch, heads, chunks, -(-width * state // SMALLEST_STATE))
    sums = sums.sum(dim=-1)
    return of_states, sums, of_initial, narrowed


def _input_gradients(given: Given, of: Chunks, place: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """mamba_ssm/ops/triton/ssd_combined.py: _chunk_scan_chunk_state_bwd_dx."""
    of_d = _d_sums(given.d, of)
    of_x = torch.empty_like(given.x) if place is None else place
    of_steps = given.x.new_empty(of.steps, dtype=FLOAT)
    of_d = of_d.sum(dim=(0, 1, 2))
    if given.d.dim() == 1:
        of_d = of_d.sum(dim=-1)
    return of_x, of_steps, of_d.to(given.d.dtype)


def _group_gradients(x: Tensor, of: Chunks) -> tuple[Tensor, Tensor]:
    """mamba_ssm/ops/triton/ssd_chunk_state.py: _chunk_state_bwd_db; ssd_chunk_scan.py: _chunk_scan_bwd_dC."""
    of_decays = x.new_empty(of.steps, dtype=FLOAT)
    parts = x.new_empty(*x.shape[:2], of.splits, of.groups, of.state, dtype=FLOAT)
    return parts.sum(2), of_decays


def _decay_gradients(x: Tensor, of: Chunks) -> Tensor:
    """mamba_ssm/ops/triton/ssd_chunk_scan.py: _chunk_scan_bwd_ddAcs_stable."""
    return x.new_empty(*of.steps[:3], of.row_blocks, of.chunk, dtype=FLOAT).sum(dim=3)


class Split(NamedTuple):
    """How a projection is divided: gate, convolved channels, steps; and those: input, B and C."""

    heads: int
    width: int
    groups: int
    channels: int

    def parts(self, projected: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[b, l, h, p], [b, l, channels] and [b, l, h], as views."""
        gate, convolved, steps = projected.split([self.heads * self.width, self.channels, self.heads], dim=-1)
        return gate.unflatten(-1, (self.heads, self.width)), convolved, steps

    def scanned(self, convolved: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """[b, l, h, p], [b, l, g, n] twice, as views."""
        inner = self.heads * self.width
        state = (self.channels - inner) // 2
        x, b, c = convolved.split([inner, state, state], dim=-1)
        of_groups = (self.groups, state // self.groups)
        return x.unflatten(-1, (self.heads, self.width)), b.unflatten(-1, of_groups), c.unflatten(-1, of_groups)


class MambaSplitConv1dScanCombinedFn(torch.autograd.Function):  # type: ignore[misc, unused-ignore]
    """mamba_ssm/ops/triton/ssd_combined.py: MambaSplitConv1dScanCombinedFn: convolution, scan, gated norm, projection.

    Keeps what it is given, and of its own the scan's results before the gate, [b, l, h, p], and with a norm 1/deviation
    of each row of a group in fp32. All else is computed again in backward.
    """

    @staticmethod
    def forward(
        ctx: Any, zxbcdt: Tensor, weight: Tensor, conv_bias: Tensor | None, bias: Tensor, a: Tensor, d: Tensor,
        seq_idx: Tensor | None, norm: Tensor | None, projection: Tensor | None, projection_bias: Tensor | None,
        chunk: int, width: int, groups: int,
    ) -> Tensor:  # fmt: skip
        split = Split(d.shape[0], width, groups, weight.shape[0])
        z, xbc, _dt = split.parts(zxbcdt)
        x, b, c = split.scanned(conv.convolved(from_multiples(xbc).mT).mT)
        out, before, *inside = _scan(x, b, c, z if norm is None else None, chunk)
        deviations = None
        if norm is not None:
            before = out
            out, deviations = _gated_norm(before, groups)
        out = out.view(*zxbcdt.shape[:2], -1)
        if projection is not None:
            out = functional.linear(out, projection, projection_bias)
        parameters = (a, d, bias, seq_idx, norm, deviations, projection, projection_bias)
        ctx.save_for_backward(zxbcdt, weight, conv_bias, before, *parameters)
        ctx.chunk, ctx.split = chunk, split
        del inside
        return out

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensors:
        zxbcdt, weight, conv_bias, out, a, d, bias, _seq_idx, norm, _deviations, projection, projection_bias = (
            ctx.saved_tensors
        )
        split, again = ctx.split, projection is not None
        gated = out.new_empty(*out.shape[:2], split.heads * split.width) if again else None
        z, xbc, dt = split.parts(zxbcdt)
        x, b, c = split.scanned(conv.convolved(from_multiples(xbc).mT).mT)
        of_projected = torch.empty_like(zxbcdt)
        of_z, of_xbc, of_dt = split.parts(of_projected)
        of_convolved = torch.empty_like(xbc)
        of_x, of_b, of_c = split.scanned(of_convolved)
        of_out = functional.linear(gradient, projection.t()) if again else gradient
        given = Given(of_out.unflatten(-1, (-1, split.width)), x, dt, a, b, c, d, z, bias, None)
        places = Places(of_x, of_dt, of_b, of_c, of_z)
        of_norm = None
        if norm is None:
            made, in_heads = _scan_backward(given, ctx.chunk, places, again=again)
            for_projection = None if in_heads is None else in_heads.flatten(2)
        else:
            of_normed, of_norm = _gated_norm_gradients(out, norm, split.groups)
            given = given._replace(gradient=of_normed, z=None)
            made, _none = _scan_backward(given, ctx.chunk, places, again=False)
            for_projection = gated
        of_projection = of_projection_bias = None
        if for_projection is not None:
            of_projection = torch.einsum("bso,bsd->od", gradient, for_projection)
            of_projection_bias = None if projection_bias is None else gradient.sum(dim=(0, 1))
        _of_xbc, of_weight, of_conv_bias = conv.gradients(
            from_multiples(xbc).mT, weight, conv_bias, from_multiples(of_convolved).mT, from_multiples(of_xbc).mT
        )
        _of_x, _of_dt, of_a, _of_b, _of_c, of_d, _of_z, of_bias, _of_initial = made
        of_parameters = (of_weight, of_conv_bias, of_bias, of_a, of_d, None, of_norm, of_projection, of_projection_bias)
        del gated, of_out
        return (of_projected, *of_parameters, None, None, None)


def from_multiples(x: Tensor) -> Tensor:
    """mamba_ssm/ops/triton/ssd_combined.py: ensure_stride."""
    return x if x.stride(1) % CONV_MULTIPLE == 0 else x.contiguous()


def _gated_norm(x: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """mamba_ssm/ops/triton/layernorm_gated.py: _layer_norm_fwd."""
    rows = x.shape[0] * x.shape[1]
    return torch.empty_like(x), x.new_empty(groups * rows, dtype=FLOAT)


def _gated_norm_gradients(x: Tensor, weight: Tensor, groups: int) -> tuple[Tensor, Tensor]:
    """mamba_ssm/ops/triton/layernorm_gated.py: _layer_norm_bwd: the weight's from a part of each program."""
    of_x = torch.empty_like(x)
    size = weight.shape[0] // groups
    block = min(WIDEST_NORM // x.element_size(), 1 << (size - 1).bit_length())
    warps = min(max(block // 256, 1), 8)
    programs = -(-H100_MULTIPROCESSORS * -(-4 // warps) // groups)
    parts = weight.new_empty(programs, weight.shape[0], dtype=FLOAT)
    return of_x, parts.sum(0).to(weight.dtype)
