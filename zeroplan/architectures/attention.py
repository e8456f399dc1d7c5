"""Attention as transformers runs it: rotary positions, repeated heads, and the two implementations."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from zeroplan.architectures.forward_run import BOOL, LONG, MULTIPROCESSORS, ForwardRun
from zeroplan.arithmetic import round_up
from zeroplan.autograd.attention import fused_attention, plain_attention
from zeroplan.autograd.autocast import autocast, cast_all_for_product
from zeroplan.autograd.elementwise import add, apply_dropout, constant_pad, mul, mul_scalar, neg, tanh, to
from zeroplan.autograd.products import batched_matmul
from zeroplan.autograd.reductions import cat, softmax
from zeroplan.autograd.strides import contiguous_strides
from zeroplan.autograd.tensor import Tensor, empty
from zeroplan.autograd.views import contiguous, expand, narrow, reshape, transpose, unsqueeze, view

if TYPE_CHECKING:
    from zeroplan.autograd.flash import FlashPackage

HALF, FLOAT = 2, 4
ROW = 16
LARGEST_NATIVE_HEAD = 256
"""Head width up to which sdpa takes fewer key heads than query heads itself (integrations/sdpa_attention.py)."""
FLASH_ROW = 8
"""Elements: flash takes heads whose width is a multiple of this."""
MASK_ROW = 8
"""Elements: the memory-efficient kernel takes a mask whose rows are a multiple of this."""
Rope = tuple[Tensor, Tensor]
Attended = tuple[Tensor, Tensor | None]
"""The values that queries attend to, and under eager attention the weights."""


def rotary(run: ForwardRun, positions: Tensor, width: int, dtype_width: int) -> Rope:
    """Cosines and sines of every position, [1, s, width]: computed and scaled in fp32, then cast; no gradient."""
    with run.no_grad():
        shape = (*positions.shape, width)
        halves = empty(run, (*positions.shape, width // 2), FLOAT)  # noqa: F841 (alive while the function runs)
        both = empty(run, shape, FLOAT)
        cosines = mul_scalar(empty(run, both.shape, FLOAT))
        sines = mul_scalar(empty(run, both.shape, FLOAT))
        return to(cosines, dtype_width), to(sines, dtype_width)


def split_heads(x: Tensor, width: int) -> Tensor:
    """[b, s, n·d] as [b, n, s, d]."""
    return transpose(view(x, (*x.shape[:-1], -1, width)), 1, 2)


def split_rotary(x: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The first elements of each head, which are turned, and the others, which pass."""
    return narrow(x, -1, width), narrow(x, -1, x.shape[-1] - width, start=width)


def apply_positions(
    run: ForwardRun,
    q: Tensor,
    k: Tensor,
    rope: Rope,
    by_transformers: Callable[[Tensor, Tensor, Rope], tuple[Tensor, Tensor]],
) -> tuple[Tensor, Tensor]:
    """Queries and keys with their positions in them: by Liger's kernel, or as the family writes it."""
    if run.liger:
        from zeroplan.autograd import liger

        return liger.rotary(q, k, *rope)
    return by_transformers(q, k, rope)


def apply_rotary_pos_emb(q: Tensor, k: Tensor, rope: Rope) -> tuple[Tensor, Tensor]:
    """Queries and keys with their positions in them."""
    cosines, sines = unsqueeze(rope[0], 1), unsqueeze(rope[1], 1)
    turned_q = rotate(q, cosines, sines)
    turned_k = rotate(k, cosines, sines)
    return turned_q, turned_k


def apply_rotary_pos_emb_and_cast(q: Tensor, k: Tensor, rope: Rope) -> tuple[Tensor, Tensor]:
    """As `apply_rotary_pos_emb`, and then back in the dtype they had."""
    cosines, sines = unsqueeze(rope[0], 1), unsqueeze(rope[1], 1)
    turned_q = rotate(q, cosines, sines)
    turned_k = rotate(k, cosines, sines)
    return to(turned_q, q.width), to(turned_k, k.width)


def apply_partial_rotary(q: Tensor, k: Tensor, rope: Rope) -> tuple[Tensor, Tensor]:
    """As `apply_rotary_pos_emb`, for the first elements of each head; keys are turned after queries (Phi 3)."""
    cosines, sines = unsqueeze(rope[0], 1), unsqueeze(rope[1], 1)
    q_turned, q_passed = split_rotary(q, cosines.shape[-1])
    k_turned, k_passed = split_rotary(k, cosines.shape[-1])
    made_q = cat((rotate(q_turned, cosines, sines), q_passed), -1)
    return made_q, cat((rotate(k_turned, cosines, sines), k_passed), -1)


def apply_partial_rotary_jointly(q: Tensor, k: Tensor, rope: Rope) -> tuple[Tensor, Tensor]:
    """As `apply_partial_rotary`, but both are turned before either is joined with what passes (GPT-NeoX)."""
    q_turned, q_passed = split_rotary(q, rope[0].shape[-1])
    k_turned, k_passed = split_rotary(k, rope[0].shape[-1])
    made_q, made_k = apply_rotary_pos_emb(q_turned, k_turned, rope)
    made_q = cat((made_q, q_passed), -1)
    return made_q, cat((made_k, k_passed), -1)


def rotate(x: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """`x * cos + rotate_half(x) * sin`."""
    return add(mul(x, cosines), mul(rotate_half(x), sines))


def rotate_half(x: Tensor) -> Tensor:
    """The second half negated, then the first."""
    half = x.shape[-1] // 2
    first = narrow(x, -1, half)
    second = narrow(x, -1, x.shape[-1] - half, start=half)
    return cat((neg(second), first), -1)


def repeat_kv(x: Tensor, times: int) -> Tensor:
    """Every head of keys or values as often as queries share it."""
    if times == 1:
        return x
    batch, heads, seq, width = x.shape
    return reshape(expand(unsqueeze(x, 2), (batch, heads, times, seq, width)), (batch, heads * times, seq, width))


def attention_interface(
    run: ForwardRun, attend: Callable[..., Attended], q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None,
    positions: Tensor | None = None,
) -> Attended:  # fmt: skip
    """A call of the model's attention interface: checkpointed, where attention alone is.

    It is told the positions too, and does nothing with them; its checkpoint keeps them.
    """
    if not run.recomputing.attention:
        return attend(q, k, v, mask)

    def part(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, _positions: Tensor | None) -> Attended:
        with autocast(run, autocast_bytes):
            return attend(q, k, v, mask)

    from zeroplan.autograd.checkpoint import checkpoint_part

    autocast_bytes = run.autocast
    out: Attended = checkpoint_part(run, part, q, k, v, mask, positions)
    return out


def attention_forward(
    run: ForwardRun, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, positions: Tensor | None = None, *,
    dropout: float = 0.0, softcap: bool = False, local: bool = False, causal: bool = True, positioned: bool = True,
) -> Attended:  # fmt: skip
    """The values that each query attends to, [b, s, n, d], and under eager attention the weights.

    `apply_positions`: a layer is given positions, and the flash-attention package looks at them.
    """
    attend = partial(
        _attention_forward, run, dropout=dropout, softcap=softcap, local=local, causal=causal, positioned=positioned
    )
    return attention_interface(run, attend, q, k, v, mask, positions)


def _attention_forward(
    run: ForwardRun, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *,
    dropout: float, softcap: bool, local: bool,
    causal: bool, positioned: bool,
) -> Attended:  # fmt: skip
    if run.flash:
        from zeroplan.autograd.flash import FlashPackage

        how = FlashPackage(run.flash, MULTIPROCESSORS, dropout, softcap, local, causal)
        return flash_attention_forward(run, q, k, v, how, positions=positioned), None
    times = q.shape[1] // k.shape[1]
    if run.attention == "eager":
        return eager_attention_forward(run, q, k, v, mask, times, dropout=dropout, softcap=softcap)
    native = mask is None and k.shape[-1] == v.shape[-1] <= LARGEST_NATIVE_HEAD
    if not native:
        k, v = repeat_kv(k, times), repeat_kv(v, times)
    out = sdpa_attention_forward(run, q, k, v, mask, dropout=dropout, grouped=native and times > 1, causal=causal)
    return contiguous(transpose(out, 1, 2)), None


def flash_attention_forward(
    run: ForwardRun, q: Tensor, k: Tensor, v: Tensor, how: FlashPackage, *, positions: bool
) -> Tensor:
    """The flash-attention package as transformers calls it (integrations/flash_attention.py)."""
    q, k, v = transpose(q, 1, 2), transpose(k, 1, 2), transpose(v, 1, 2)
    width, value = q.shape[-1], v.shape[-1]
    if value != width:
        v = constant_pad(v, width)
    out = _flash_attention_forward(run, q, k, v, how, positions=positions)
    return out if value == width else narrow(out, -1, value)


def _flash_attention_forward(
    run: ForwardRun, q: Tensor, k: Tensor, v: Tensor, how: FlashPackage, *, positions: bool = True
) -> Tensor:
    """_flash_attention_forward of [b, s, n, d]; where it gets positions, it looks whether one row holds several texts.

    The third version has no dropout.
    """
    if run.autocast and q.width != run.autocast:
        q, k, v = to(q, run.autocast), to(k, run.autocast), to(v, run.autocast)
    if positions and run.batch == 1:
        is_packed_sequence(run)
    from zeroplan.autograd.flash import flash_attention

    return flash_attention(q, k, v, how if how.version == 2 else how._replace(dropout=0.0))


def is_packed_sequence(run: ForwardRun) -> None:
    """modeling_flash_attention_utils.py, _is_packed_sequence."""

    def numbers(*shape: int) -> Tensor:
        return empty(run, shape, LONG)

    counted, least = numbers(run.seq), numbers()
    expected = numbers(run.seq)
    del counted, least
    difference = numbers(1, run.seq)
    size = numbers(1, run.seq)
    del difference, expected
    total = numbers()
    del size, total


def sdpa_attention_forward(
    run: ForwardRun, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *,
    dropout: float = 0.0, grouped: bool = False,
    causal: bool = True,
) -> Tensor:  # fmt: skip
    """F.scaled_dot_product_attention: a mask of bits becomes numbers, again in every layer, and a kernel is chosen.

    The memory-efficient kernel wants rows of a multiple of 8 elements, and gets a copy of a mask that has others
    (ATen/native/transformers/attention.cpp: convert_boolean_attn_mask, preprocess_mask).
    """
    q, k, v = cast_all_for_product(q, k, v)
    if mask is not None and mask.width == BOOL:
        mask = empty(run, mask.shape, q.width)
    kernel = run.kernel
    if kernel == "cuda":
        kernel = cuda_kernel(q, k, v, mask, grouped=grouped)
    if kernel == "efficient" and mask is not None and mask.shape[-1] % MASK_ROW:
        padded = (*mask.shape[:-1], round_up(mask.shape[-1], MASK_ROW))
        mask = empty(run, padded, mask.width).as_strided(mask.shape, contiguous_strides(padded))
    if kernel == "cpu" and (dropout or v.shape[-1] != q.shape[-1] or (k.shape[1] != q.shape[1] and not grouped)):
        kernel = "math"
    if kernel == "math":
        return plain_attention(q, k, v, mask, dropout=dropout, grouped=grouped, causal=causal, on_cpu=run.on_cpu)
    if kernel == "flash" and q.shape[-1] % FLASH_ROW:
        return flash_attention_padded(q, k, v, causal=causal)
    return fused_attention(kernel, q, k, v, mask, causal=causal)


def flash_attention_padded(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    """Heads are filled up for the kernel, and its result cut (pad_last_dim, post_process_flash_output)."""
    width = q.shape[-1]
    full = round_up(width, FLASH_ROW)
    q, k, v = constant_pad(q, full), constant_pad(k, full), constant_pad(v, full)
    return narrow(fused_attention("flash", q, k, v, causal=causal), -1, width)


def cuda_kernel(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, *, grouped: bool) -> str:
    """The kernel that torch chooses on an A100 or newer (ATen/native/transformers/cuda/sdp_utils.cpp).

    Flash takes 16 bit, no mask and heads of one width; the memory-efficient kernel as many key heads as query heads,
    in rows of 16 bytes. On an H100 cuDNN goes before flash, and keeps as much.
    """
    width, value = q.shape[-1], v.shape[-1]
    same = k.shape[1] == q.shape[1]
    if q.width == HALF and mask is None and width == value <= LARGEST_NATIVE_HEAD and (grouped or same):
        return "flash"
    aligned = all(size * q.width % ROW == 0 for size in (width, value))
    return "efficient" if aligned and same else "math"


def eager_attention_forward(
    run: ForwardRun, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, times: int, *, dropout: float, softcap: bool
) -> tuple[Tensor, Tensor]:
    """Scores of all queries and keys, their softmax in fp32 and back, and its product with the values."""
    keys, values = repeat_kv(k, times), repeat_kv(v, times)
    weights = mul_scalar(batched_matmul(q, transpose(keys, 2, 3)))
    if softcap:
        weights = mul_scalar(weights)
        weights = tanh(weights)
        weights = mul_scalar(weights)
    if mask is not None:
        weights = add(weights, mask)
    weights = to(softmax(weights, FLOAT, fused=run.half and not run.on_cpu), q.width)
    weights = apply_dropout(weights, dropout, on_cpu=run.on_cpu)
    out = batched_matmul(weights, values)
    return contiguous(transpose(out, 1, 2)), weights
