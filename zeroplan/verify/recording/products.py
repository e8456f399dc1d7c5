"""Floating-point operations of torch's operators below autograd: of those that multiply, as FlopCounterMode counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils.flop_counter import flop_registry

aten = torch.ops.aten
ATTENTION = {
    aten._scaled_dot_product_flash_attention, aten._scaled_dot_product_efficient_attention,
    aten._scaled_dot_product_cudnn_attention, aten._scaled_dot_product_flash_attention_for_cpu,
}  # fmt: skip
ATTENTION_BACKWARD = {
    aten._scaled_dot_product_flash_attention_backward, aten._scaled_dot_product_efficient_attention_backward,
    aten._scaled_dot_product_cudnn_attention_backward, aten._scaled_dot_product_flash_attention_for_cpu_backward,
}  # fmt: skip


def flops(function: Any, arguments: Sequence[Any], named: Mapping[str, Any], result: Any) -> int:
    """Of one call; 0 for what does not multiply. With fewer heads of keys each is counted for all of its queries."""
    operator = getattr(function, "overloadpacket", None)
    if operator in ATTENTION:
        query, key, value = arguments[:3]
        return _pairs(query, key) * int(query.shape[-1] + value.shape[-1])
    if operator in ATTENTION_BACKWARD:
        query, key, value = arguments[1:4]
        return _pairs(query, key) * int(3 * query.shape[-1] + 2 * value.shape[-1])
    if operator is aten._grouped_mm:
        x, y = arguments[:2]
        return _grouped(x, y, result)
    counts = flop_registry.get(operator)
    return int(counts(*arguments, **named, out_val=result)) if counts else 0


def is_causal(function: Any, arguments: Sequence[Any], named: Mapping[str, Any]) -> bool:
    """Whether it is attention that leaves out the pairs of a token and those ahead."""
    operator = getattr(function, "overloadpacket", None)
    if operator not in ATTENTION:
        return False
    names = [each.name for each in function._schema.arguments]
    given = {**dict(zip(names, arguments, strict=False)), **named}
    return given.get("is_causal") is True and given.get("attn_bias") is None


def _pairs(query: torch.Tensor, key: torch.Tensor) -> int:
    """2 for each pair of a query and a key, a multiplication and its addition."""
    return 2 * int(query.shape[0] * query.shape[1] * query.shape[2]) * int(key.shape[2])


def _grouped(x: torch.Tensor, y: torch.Tensor, result: torch.Tensor) -> int:
    """Each row meets one group's matrix, or in a gradient of these each row is summed over once."""
    if y.dim() == 3:
        return 2 * int(x.numel()) * int(y.shape[-1])
    return 2 * int(x.shape[-1]) * int(result.shape[-1]) * int(result.shape[-2])
