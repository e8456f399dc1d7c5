"""Widths of a model's layers, from its config and its tree."""

from __future__ import annotations

from zeroplan.architectures.config import Config
from zeroplan.architectures.module import Module, tree
from zeroplan.architectures.norms import LayerNorm, RMSNorm
from zeroplan.architectures.rope import RotaryConfig
from zeroplan.specs.model import Shape


def shape_of(config: Config, root: Module) -> Shape:
    """Widths of a layer; norms, gating and experts are read off the last layer of the tree."""
    layer = last_layer(root)
    modules = [module for _name, module in layer.named_modules()]
    names = [name for name, _parameter in layer.named_parameters()]
    moe = any("experts." in name for name in names)
    ffn = getattr(config, "moe_intermediate_size", None) if moe else None
    shared = sum(
        parameter.shape[0] for name, parameter in layer.named_parameters()
        if "shared_expert" in name and name.endswith("up_proj.weight")
    )  # fmt: skip
    value_width = getattr(config, "v_head_dim", None) or config.head_width
    nope = getattr(config, "qk_nope_head_dim", None)
    head_width = nope + getattr(config, "qk_rope_head_dim", 0) if nope else config.head_width
    return Shape(
        hidden=config.hidden_size,
        layers=config.num_hidden_layers,
        heads=config.num_attention_heads,
        kv_heads=config.num_attention_heads if nope else config.kv_heads,
        head_width=head_width,
        value_width=value_width,
        ffn=ffn or config.ffn,
        vocab=config.vocab_size,
        positions=getattr(config, "max_position_embeddings", 0) or 0,
        rms_norm=any(isinstance(module, RMSNorm) for module in modules),
        norms=sum(isinstance(module, RMSNorm | LayerNorm) for module in layer.children.values()) or 1,
        gated=any("gate_proj" in name or "gate_up_proj" in name for name in names),
        experts=_experts(config) if moe else 0,
        experts_per_token=getattr(config, "num_experts_per_tok", 0) or 0 if moe else 0,
        dense_layers=getattr(config, "first_k_dense_replace", 0) or 0 if moe else 0,
        dense_ffn=config.ffn if moe else 0,
        shared_ffn=shared,
        windows=tuple(filter(None, _windows(config))),
        causal=getattr(config, "is_decoder", True),
        masked=config.masks_always,
    )


def _windows(config: Config) -> list[int | None]:
    """How far back each layer sees; nothing for families without positions of their own."""
    if not isinstance(config, RotaryConfig):
        return []
    widths = config.windows()
    return [widths[kind] for kind in config.kinds()]


def last_layer(root: Module) -> Module:
    """The last of the longest list of modules: a decoder's last layer."""
    lists = [m for _n, m in tree(root) if m.children and all(k.isdigit() for k in m.children)]
    longest = max(lists, key=lambda module: len(module.children))
    return list(longest.children.values())[-1]


def _experts(config: Config) -> int:
    for name in ("num_experts", "num_local_experts", "n_routed_experts"):
        if value := getattr(config, name, None):
            return int(value)
    return 0
