"""Sizes that a config.json leaves out: transformers' class has a default for each, which need not be the model's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zeroplan.architectures.config import COUNTS, POSITIVE, Config
from zeroplan.architectures.rope import RotaryConfig

DECIDES_NO_SIZE = frozenset({"max_window_layers", "original_max_position_embeddings", "query_pre_attn_scalar"})
SWITCHES = frozenset({"tie_word_embeddings", "multi_query", "new_decoder_architecture", "is_decoder"})
"""What is no size and changes the parameters by more than biases and norms do, or the loss."""
SIZES = (POSITIVE | COUNTS | SWITCHES) - DECIDES_NO_SIZE
FOLLOWS = frozenset({"head_dim", "rotary_dim"})
"""Where a family has no width of its own for these, they follow from sizes that are listed anyway."""


def assumed(content: Mapping[str, Any], config: Config, model_type: str) -> tuple[str, ...]:
    """Each as `num_hidden_layers 32 (transformers' default for qwen3)`, in the order in which the family has them."""
    sizes = [name for name in vars(config) if name in SIZES and name in config.readable()]
    return tuple(
        f"{config.names(name)[0]} {shown_value(value)} (transformers' default for {model_type})"
        for name in sizes
        if (value := vars(config)[name]) is not None and _is_left_out(name, content, config)
    )


def _is_left_out(field: str, content: Mapping[str, Any], config: Config) -> bool:
    if field == "max_position_embeddings" and isinstance(config, RotaryConfig):
        return False  # a rope has no rows
    if field == "sliding_window_pattern" and "layer_types" in content:
        return False
    if field in FOLLOWS and getattr(type(config), field, None) is None:
        return False
    names = config.names(field)
    return bool(names) and not any(name in content for name in names)


def shown_value(value: object) -> str:
    """A value as JSON writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
