"""Small models of the families whose layers run kernels of fla, causal_conv1d and mamba_ssm, as they are run on a card.

python -m tests.references.gpu.kernel_families [FAMILY ...]      writes recordings/FAMILY.trace.json.gz

Heads, states and chunks have the sizes of released models, other widths are small. Needs transformers.
"""

import gzip
import sys
import time
from pathlib import Path

RECORDINGS = Path(__file__).with_name("recordings")
SMALL = {
    "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 8, "num_key_value_heads": 2, "vocab_size": 4096,
    "intermediate_size": 2048, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
LINEAR = {
    "linear_num_key_heads": 4, "linear_num_value_heads": 8, "linear_key_head_dim": 128, "linear_value_head_dim": 128,
    "head_dim": 128, "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"],
}  # fmt: skip
EXPERTS = {"num_experts_per_tok": 2, "moe_intermediate_size": 512}
MAMBA_2 = {
    "mamba_n_heads": 32, "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_chunk_size": 256,
}  # fmt: skip
FAMILIES = {
    "qwen3_5_text": LINEAR,
    "qwen3_next": {**LINEAR, **EXPERTS, "num_experts": 8, "shared_expert_intermediate_size": 512},
    "olmo_hybrid": {
        **LINEAR, "num_key_value_heads": 8, "linear_num_key_heads": 8, "linear_key_head_dim": 96, "linear_value_head_dim": 192,
    },
    "kimi_linear": {
        **EXPERTS, "num_key_value_heads": 8, "linear_num_heads": 8, "linear_head_dim": 128, "num_local_experts": 8,
        "layer_types": LINEAR["layer_types"], "mlp_layer_types": ["dense", "sparse", "sparse", "sparse"],
        "n_shared_experts": 1, "kv_lora_rank": 128, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128,
        "n_group": 1, "topk_group": 1,
    },
    "nemotron_h": {"mamba_num_heads": 32, "mamba_head_dim": 64, "ssm_state_size": 128, "n_groups": 8, "chunk_size": 128},
    "falcon_h1": {**MAMBA_2, "mamba_d_ssm": 2048, "head_dim": 128},
    "granitemoehybrid": {
        **MAMBA_2, "layer_types": ["mamba", "mamba", "mamba", "attention"], "num_local_experts": 8,
        "num_experts_per_tok": 2, "shared_intermediate_size": 512,
    },
    "bamba": {**MAMBA_2, "attn_layer_indices": [2]},
    "zamba2": {
        "mamba_d_state": 64, "mamba_headdim": 64, "n_mamba_heads": 32, "mamba_ngroups": 2, "chunk_size": 256,
        "layers_block_type": ["mamba", "hybrid", "mamba", "hybrid"], "adapter_rank": 64,
    },
    "mamba2": {"num_heads": 32, "head_dim": 64, "state_size": 128, "n_groups": 8, "chunk_size": 256},
    "mamba": {"state_size": 16, "time_step_rank": 64},
    "falcon_mamba": {"state_size": 16, "time_step_rank": 64},
    "jamba": {
        "attn_layer_period": 4, "attn_layer_offset": 2, "num_experts": 4, "mamba_d_state": 16, "mamba_dt_rank": 64,
    },
    "lfm2": {"layer_types": ["conv", "conv", "full_attention", "conv"]},
}  # fmt: skip


NO_ATTENTION = ("mamba2", "mamba", "falcon_mamba")


def content(family):
    """config.json."""
    return {"model_type": family, **SMALL, **FAMILIES[family]}


def main(*families):
    from zeroplan.catalog.recording import written
    from zeroplan.verify.recording import variants
    from zeroplan.verify.recording.model import recording
    from zeroplan.verify.recording.variants import Way

    variants.BATCHES = (1, 2)
    RECORDINGS.mkdir(exist_ok=True)
    for family in families or FAMILIES:
        path, begun = RECORDINGS / f"{family}.trace.json.gz", time.monotonic()
        attention = "eager" if family in NO_ATTENTION else "sdpa"
        known = recording(content(family), name=family, place=family, ways=[Way(attention, "bf16")])
        path.write_bytes(gzip.compress(written(known).encode(), mtime=0))
        print(f"{family}: {time.monotonic() - begun:.0f} s, {path.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
