"""The flash-attention package: what its functions keep, and what its kernels make for themselves (flash-attn 2.8.3).

Queries, keys and values are [b, s, n, d], or [tokens, n, d] where sequences of several lengths lie in one row. What is
around a kernel is the package's Python (flash_attn_interface.py); what is made inside, read in
csrc/flash_attn/flash_api.cpp and hopper/flash_api.cpp, no run of ours has seen: a kernel's own tensors are logged as
kept by WORKSPACE. torch's own flash kernel, which sdpa chooses, is the second version with
the same tensors inside; those are not counted there (autograd/attention.py).
"""

from __future__ import annotations

from typing import NamedTuple

from zeroplan.arithmetic import round_up
from zeroplan.autograd.elementwise import constant_pad
from zeroplan.autograd.graph import operator, result, save_for_backward
from zeroplan.autograd.log import KEPT, WORKSPACE
from zeroplan.autograd.strides import Sizes
from zeroplan.autograd.tensor import Needs, Tensor, empty, empty_like

FLOAT, INT, LONG = 4, 4, 8
HEAD_ROW = 8
"""Elements: a head's width is a multiple of this."""
WIDEST_HEAD = 256
MOST_SPLIT = 992
"""Sequences of a row up to which the third version's kernel splits them as it runs, by a number for each."""
Three = tuple[Tensor, Tensor, Tensor]


class FlashPackage(NamedTuple):
    """How the package is called."""

    version: int
    multiprocessors: int
    dropout: float = 0.0
    softcap: bool = False
    local: bool = False
    """A window shorter than the sequence."""
    causal: bool = True
    """A query sees no later keys."""
    longest: int = 0
    """Queries of the longest sequence of a row; 0: the row is one."""


def flash_attention(q: Tensor, k: Tensor, v: Tensor, how: FlashPackage) -> Tensor:
    """FlashAttnFunc: keeps q, k, v (with heads filled up), the output, a log-sum-exp, and in 2 the random state."""
    node = operator("FlashAttnFuncBackward", _flash_attention, (q, k, v), (), (how, q.shape[-1]))
    width, (q, k, v) = q.shape[-1], _filled_up(q, k, v, how)
    batch, seq, heads, _width = q.shape
    out, sums = _output(q, how), empty(q.memory, (batch, heads, seq), FLOAT)
    parts = _in_parts(q, how) if how.version == 2 else (workspace(q, (1,), INT),)
    save_for_backward(node, q, k, v, out, sums, _random_state(q, how))
    del parts
    return result(node, first_of(out, width))


def flash_attention_of_several(
    q: Tensor, k: Tensor, v: Tensor, starts_q: Tensor, starts_k: Tensor, how: FlashPackage
) -> Tensor:
    """FlashAttnVarlenFunc: keeps where sequences start in the rows too, and how long the rows are (cu_seqlens)."""
    node = operator("FlashAttnVarlenFuncBackward", _flash_attention_of_several, (q, k, v), (), (how, q.shape[-1]))
    width, (q, k, v) = q.shape[-1], _filled_up(q, k, v, how)
    tokens, heads, _width = q.shape
    sequences = starts_q.shape[0] - 1
    out, sums = _output(q, how), empty(q.memory, (heads, tokens), FLOAT)
    if how.version == 3:
        schedule = workspace(q, (1 + sequences * (sequences <= MOST_SPLIT),), INT)
        del schedule
    save_for_backward(node, q, k, v, out, sums, starts_q, starts_k, _random_state(q, how))
    return result(node, first_of(out, width))


def _filled_up(q: Tensor, k: Tensor, v: Tensor, how: FlashPackage) -> Three:
    if how.version == 3 or not q.shape[-1] % HEAD_ROW:
        return q, k, v
    full = round_up(q.shape[-1], HEAD_ROW)
    with q.memory.no_grad():
        return constant_pad(q, full), constant_pad(k, full), constant_pad(v, full)


def _output(q: Tensor, how: FlashPackage) -> Tensor:
    return empty_like(q) if how.version == 2 else empty(q.memory, q.shape, q.width)


def _random_state(q: Tensor, how: FlashPackage) -> Tensor | None:
    return empty(q.memory, (2,), LONG) if how.version == 2 else None


def first_of(x: Tensor, width: int) -> Tensor:
    """The first elements of each head, without a graph or a copy."""
    return x.as_strided((*x.shape[:-1], width), x.strides)


def workspace(like: Tensor, shape: Sizes, width: int) -> Tensor:
    """A kernel's own tensor."""
    out = empty(like.memory, shape, width)
    assert out.storage is not None
    like.memory.log.append((KEPT, out.storage.number, WORKSPACE, like.memory.scope, 0))
    return out


def _in_parts(q: Tensor, how: FlashPackage) -> tuple[Tensor, ...]:
    """Where a small batch leaves multiprocessors idle, keys go in parts, each with an output in fp32."""
    batch, seq, heads, width = q.shape
    block = 256 if width <= 64 else 128 if width <= 128 else 64
    parts = splits(batch * heads * -(-seq // 64), 2 * how.multiprocessors, -(-seq // block))
    if how.dropout or parts == 1:
        return ()
    shape = (parts, batch, heads, seq)
    return workspace(q, shape, FLOAT), workspace(q, (*shape, rounded_width(width)), FLOAT)


def splits(blocks: int, slots: int, key_blocks: int) -> int:
    """In how many parts keys go: the fewest whose waves are filled 0.85 times as well as the best (flash_api.cpp)."""
    if 5 * blocks >= 4 * slots:
        return 1
    filled = {}
    for parts in range(1, min(128, slots, key_blocks) + 1):
        if parts == 1 or -(-key_blocks // parts) != -(-key_blocks // (parts - 1)):
            waves = -(-blocks * parts // slots)
            filled[parts] = blocks * parts / slots / waves
    return next(parts for parts, each in filled.items() if each >= 0.85 * max(filled.values()))


def rounded_width(width: int) -> int:
    """The width of a head in the second version's kernels."""
    return round_up(width, 32 if width <= 128 else 64)


def _flash_attention(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, _out: Tensor, _sums: Tensor, _state: Tensor | None,
    how: FlashPackage, width: int, _needs: Needs,
) -> Three:  # fmt: skip
    """Gradients laid out as q, k and v; of heads that were filled up, a view."""
    batch, seq = q.shape[:2]
    return _gradients(gradient, q, k, v, how, width, Rows(batch, 0, seq, k.shape[1], seq))


def _flash_attention_of_several(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, _out: Tensor, _sums: Tensor, starts: Tensor, _starts_k: Tensor,
    _state: Tensor | None, how: FlashPackage, width: int, _needs: Needs,
) -> Three:  # fmt: skip
    rows = Rows(1, starts.shape[0] - 1, q.shape[0], k.shape[0], how.longest)
    return _gradients(gradient, q, k, v, how, width, rows)


class Rows(NamedTuple):
    """What queries and keys are of."""

    number: int
    sequences: int
    """That lie in one row; 0: each is a row of its own."""
    queries: int
    keys: int
    longest: int
    """Queries of a sequence, at most."""

    def with_room(self, tokens: int, block: int) -> int:
        """A row's tokens, and room for whole blocks of each sequence."""
        return tokens + self.sequences * block if self.sequences else round_up(tokens, block)


def _gradients(
    gradient: Tensor, q: Tensor, k: Tensor, v: Tensor, how: FlashPackage, width: int, rows: Rows
) -> Three:
    out = (empty_like(q), empty_like(k), empty_like(v))
    if width != q.shape[-1]:
        gradient = empty(q.memory, q.shape, gradient.width)
    inside = _second(q, k, rows) if how.version == 2 else _third(q, k, how, rows)
    del inside
    of_q, of_k, of_v = out
    return first_of(of_q, width), first_of(of_k, width), first_of(of_v, width)


def _second(q: Tensor, k: Tensor, rows: Rows) -> tuple[Tensor, ...]:
    """mha_bwd of csrc/flash_attn/flash_api.cpp: softmax_d, dq_accum, and with fewer key heads dk and dv for all."""
    heads, width = q.shape[-2:]
    rounded = rows.with_room(rows.queries, 128)
    sums = workspace(q, (rows.number, heads, rounded), FLOAT)
    of_q = workspace(q, (rows.number, rounded, heads, rounded_width(width)), FLOAT)
    if k.shape[-2] == heads:
        return sums, of_q
    shape = (rows.number, rows.keys, heads, width)
    return sums, of_q, workspace(q, shape, q.width), workspace(q, shape, q.width)


def _third(q: Tensor, k: Tensor, how: FlashPackage, rows: Rows) -> tuple[Tensor, ...]:
    """mha_bwd of hopper/flash_api.cpp on compute capability 9: sums of gradients in fp32, and a semaphore a block."""
    heads, width = q.shape[-2:]
    wide = next(each for each in (64, 96, 128, 192, 256) if width <= each)
    whole = not (how.causal or how.local or how.softcap)
    capped = how.softcap and how.causal and not how.local
    block = (96 if capped else 128) if wide <= 64 else 80 if wide == 128 and whole else 64
    shape = (rows.number, heads, round_up(rows.with_room(rows.queries, block), block))
    out = [workspace(q, shape, FLOAT), workspace(q, shape, FLOAT), workspace(q, (*shape, wide), FLOAT)]
    if k.shape[-2] != heads:
        key_block = 128 if wide <= 128 else 96 if wide <= 192 else 80
        keys = round_up(rows.with_room(rows.keys, key_block), key_block)
        out += [workspace(q, (rows.number, k.shape[-2], keys, wide), FLOAT) for _which in "kv"]
    blocks, sequences = -(-rows.longest // block), rows.number * (rows.sequences or 1)
    return (*out, workspace(q, (blocks, sequences, heads), INT))
