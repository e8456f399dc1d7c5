"""What DeepSpeed itself says where a config meets a model: small Llamas on the CPU, ranks that are not there.

`tests.references.make_check_references models` asks; `tests/check/test_models.py` has the answers beside the rules'.
"""

from __future__ import annotations

import math
from typing import Any

from tests.check import deepspeed_says

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 512, "intermediate_size": 1024, "num_hidden_layers": 2,
    "num_attention_heads": 8, "num_key_value_heads": 4, "vocab_size": 2048, "max_position_embeddings": 128, "tie_word_embeddings": False,
}  # fmt: skip
EMBEDDING = LLAMA["vocab_size"] * LLAMA["hidden_size"]
"""Its largest tensor: 1,048,576 elements, 2 MiB."""
ODD = {"hidden_size": 500, "num_attention_heads": 5, "num_key_value_heads": 5, "intermediate_size": 1001}
STAGE_3 = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": 3}}


def buffers() -> list[tuple[int, int]]:
    """Ranks and buffer_size: the largest tensor's share, one element less, and sizes that shares too small to swap take."""
    found = [(world, size + step) for world in (1, 2, 3) for size in [math.ceil(EMBEDDING / world)] for step in (-1, 0)]
    return [*found, (4, 1000), (8, 1000), (1, 2 * EMBEDDING)]


def offloaded(buffer_size: int) -> dict[str, Any]:
    offload = {"device": "nvme", "nvme_path": "nvme", "buffer_size": buffer_size}
    return STAGE_3 | {"zero_optimization": {"stage": 3, "offload_param": offload}}


def quantized() -> list[tuple[dict[str, int], int]]:
    """Widths and ranks: shares of which some are no multiples of 8."""
    return [(widths, world) for widths in ({}, ODD) for world in (1, 2, 3, 4, 8, 16, 64, 128)]


QUANTIZED = STAGE_3 | {"zero_optimization": {"stage": 3, "zero_quantized_weights": True}}
HEADS = [(heads, keys, ranks) for heads, keys in ((32, 8), (32, 32), (28, 4), (12, 1), (8, 2)) for ranks in (2, 3, 4, 6, 7, 8, 12, 16, 32)]


def says_of_llama(config: dict[str, Any], widths: dict[str, int], world: int) -> str:
    return deepspeed_says.says(config, world=world, model=LLAMA | widths)


def says_of_heads(heads: int, keys: int, ranks: int) -> str:
    """What Ulysses says of heads that are divided among so many ranks."""
    return deepspeed_says.asked(_divide, heads, keys, ranks)


def _divide(heads: int, keys: int, ranks: int) -> None:
    import torch
    import torch.distributed as dist
    from deepspeed.runtime.sequence_parallel.ulysses_sp import UlyssesSPAttentionHF

    deepspeed_says.connect(ranks)
    UlyssesSPAttentionHF(
        attn=torch.nn.Identity(), batch_size=1, attn_head_count=heads, attn_head_size=8, kv_head_count=keys,
        num_hidden_layers=1, process_group=dist.group.WORLD, seq_length_is_variable=True,
    )  # fmt: skip
