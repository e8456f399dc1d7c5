"""The model's own operators as CUDA runs them, on torch's `meta` device.

`meta` runs what torch falls back to where a device has no kernel of its own, which holds other tensors. Here each of
those operators is replaced by the one that torch 2.13 calls for a CUDA tensor; functions of its source are named below.
Attention's kernel is chosen as in ATen/native/transformers/cuda/sdp_utils.cpp with its default order, flash first: on
cards of compute capability 9 and 10 with cuDNN over 9.15 torch asks cuDNN before that. What a kernel takes for itself
while it runs is not seen.
Only the child process imports this module (it needs torch).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

aten = torch.ops.aten
HALF = (torch.float16, torch.bfloat16)
WIDEST_FLASH_HEAD = 256
ALIGNED = 8
"""Elements: heads of the flash kernel, and rows of a mask for the efficient one, are padded to a multiple of this."""
Function = Callable[..., Any]


@contextlib.contextmanager
def as_on_cuda() -> Iterator[None]:
    """Inside, `meta` tensors meet CUDA's kernels; tensors on any other device are left alone."""
    replaced = [
        (functional, "scaled_dot_product_attention", attention),
        (torch, "softmax", softmax),
        (torch.Tensor, "softmax", softmax),
    ]
    originals = [(owner, name, getattr(owner, name)) for owner, name, _replacement in replaced]
    for (owner, name, otherwise), (_owner, _name, replacement) in zip(originals, replaced, strict=True):
        setattr(owner, name, replacement(otherwise))
    operators = torch.library.Library("aten", "IMPL")
    operators.impl("dropout", dropout, "AutogradMeta")
    try:
        yield
    finally:
        operators._destroy()
        for owner, name, otherwise in originals:
            setattr(owner, name, otherwise)


def attention(otherwise: Function) -> Function:
    """scaled_dot_product_attention (ATen/native/transformers/attention.cpp)."""

    def run(
        query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0,
        is_causal: bool = False, scale: float | None = None, enable_gqa: bool = False,
    ) -> Any:  # fmt: skip
        given = (query, key, value)
        if query.device.type == "meta" and flash_fits(*given, attn_mask, grouped=enable_gqa):
            return _flash(*given, dropout_p, is_causal, scale)
        if query.device.type == "meta" and efficient_fits(*given):
            return _efficient(*given, attn_mask, dropout_p, is_causal, scale)
        return otherwise(*given, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa)

    return run


def flash_fits(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, grouped: bool) -> bool:
    """can_use_flash_attention: 16 bit, no mask, one width; fewer key heads than query heads where asked for."""
    same = query.shape[-1] == key.shape[-1] == value.shape[-1] <= WIDEST_FLASH_HEAD
    heads = query.dim() == 4 and (grouped or _same_heads(query, key, value))
    return query.dtype in HALF and mask is None and same and heads


def efficient_fits(query: Tensor, key: Tensor, value: Tensor) -> bool:
    """can_use_mem_efficient_attention: head widths of whole 16 bytes, as many key heads as query heads."""
    if query.dim() != 4 or query.dtype not in (*HALF, torch.float32):
        return False
    multiple = 8 if query.dtype in HALF else 4
    widths = query.shape[-1] == key.shape[-1] and not query.shape[-1] % multiple and not value.shape[-1] % multiple
    return widths and _same_heads(query, key, value)


def _same_heads(query: Tensor, key: Tensor, value: Tensor) -> bool:
    return bool(query.shape[1] == key.shape[1] == value.shape[1])


def _flash(query: Tensor, key: Tensor, value: Tensor, probability: float, causal: bool, scale: float | None) -> Tensor:
    """pad_last_dim, the kernel, and post_process_flash_output."""
    width = query.shape[-1]
    if width % ALIGNED:
        padding = (0, ALIGNED - width % ALIGNED)
        query, key, value = (functional.pad(each, padding) for each in (query, key, value))
    made: Tensor = aten._scaled_dot_product_flash_attention(query, key, value, probability, causal, scale=scale)[0]
    return made if made.shape[-1] == width else made[..., :width]


def _efficient(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, probability: float, causal: bool,
    scale: float | None,
) -> Tensor:  # fmt: skip
    """The log-sum-exp is made where a gradient will ask for it (should_compute_logsumexp)."""
    if mask is not None:
        mask = _in_rows(_in_numbers(mask, query.dtype)).expand(*query.shape[:3], key.shape[2])
    trains = torch.is_grad_enabled() and any(each.requires_grad for each in (query, key, value))
    made: Tensor = aten._scaled_dot_product_efficient_attention(
        query, key, value, mask, trains, probability, causal, scale=scale
    )[0]
    return made


def _in_numbers(mask: Tensor, dtype: torch.dtype) -> Tensor:
    """0 for true and minus infinity for false (convert_boolean_attn_mask)."""
    if mask.dtype != torch.bool:
        return mask
    return torch.where(mask, 0.0, torch.scalar_tensor(float("-inf"), dtype=dtype, device=mask.device))


def _in_rows(mask: Tensor) -> Tensor:
    """A copy with padded rows, unless every row begins at a multiple of 8 elements (preprocess_mask, pad_bias)."""
    if mask.stride(-1) == 1 and not any(stride % ALIGNED for stride in mask.stride()[:-1]):
        return mask
    keys = mask.shape[-1]
    return functional.pad(mask, (0, ALIGNED - keys % ALIGNED))[..., :keys]


def dropout(input: Tensor, p: float, train: bool) -> Tensor:
    """native_dropout, whose mask is bool, where it is fused (ATen/native/Dropout.cpp, is_fused_kernel_acceptable).

    As an operator and not a function of Python: attention's math kernel calls it too.
    """
    if not train or p == 0:
        return input
    made: Tensor = aten.native_dropout(input, p, True)[0] if p < 1 else input * input.new_zeros(())
    return made


def softmax(otherwise: Function) -> Function:
    """CUDA takes fp16 to fp32 inside the kernel, without a copy in fp32 first (ATen/native/SoftMax.cpp)."""

    def run(input: Tensor, *args: Any, **options: Any) -> Any:
        if input.device.type == "meta" and input.dtype == torch.float16 and options.get("dtype") == torch.float32:
            return aten._softmax(input, args[0] if args else options["dim"], True)
        return otherwise(input, *args, **options)

    return run
