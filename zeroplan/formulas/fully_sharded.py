"""PyTorch's FSDP as torchtitan and llm-foundry run it: fp32 shards, 16-bit gathered weights, what a layer keeps."""

from __future__ import annotations

from zeroplan.arithmetic import ceil_div


def shards(psi: int, k: int, n_d: int) -> int:
    """⌈K·Ψ / N⌉ -- sharded weights, gradients and two moments: 16 bytes per parameter in fp32, 8 in pure 16 bit
    [torch distributed/fsdp].
    """
    return ceil_div(k * psi, n_d)


def selective_layer(t: int, h: int, q: int, kv: int, f: int, a: int, tp: int) -> int:
    """⌈(4·T·h + 4·T·q + 2·T·k + 2·T·f + 4·T·n) / τ⌉ -- of seven matrix products every second is kept (query, value,
    gate, down), attention's output and log-sum-exp, and the layer's input [torchtitan
    parallelisms/parallelize_llama.py:_save_list].
    """
    return ceil_div(4 * t * h + 4 * t * q + 2 * t * kv + 2 * t * f + 4 * t * a, tp)


def root_group(h: int, v: int, copies: int, tp: int) -> int:
    """⌈2·c·h·D / τ⌉ -- embedding and head stay gathered in 16 bit from forward to the end of backward [torch
    distributed/fsdp/_fully_shard/_fsdp_state.py:_lazy_init].
    """
    return ceil_div(2 * copies * h * v, tp)


def gathered_layers(psi: int, copies: int) -> int:
    """2·c·Ψ -- layers gathered in 16 bit: the one at work and the one prefetched [torch
    distributed/fsdp/_fully_shard/_fsdp_param_group.py].
    """
    return 2 * copies * psi


def reduced_layer(psi: int) -> int:
    """6·Ψ -- a layer's 16-bit gradients and their fp32 copy in the reduce-scatter [torch
    distributed/fsdp/_fully_shard/_fsdp_collectives.py:foreach_reduce].
    """
    return 6 * psi


def whole_gradients(psi: int, g: int) -> int:
    """g·Ψ -- unsharded gradients of a pipeline stage, which are reduced after the last micro-batch [published tt]."""
    return g * psi


def head_gradient(h: int, v: int, tp: int) -> int:
    """⌈2·h·D / τ⌉ -- the head's weight gradient in 16 bit, as backward begins [torch derivatives.yaml mm]."""
    return ceil_div(2 * h * v, tp)
