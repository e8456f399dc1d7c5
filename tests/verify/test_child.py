"""DeepSpeed 0.19.8 itself, measured: the facts that the ledger has to reproduce."""

import copy
import importlib.metadata

import pytest

from zeroplan.verify.measure import measure


def installed():
    try:
        return importlib.metadata.version("deepspeed")
    except importlib.metadata.PackageNotFoundError:
        return "none"


pytestmark = pytest.mark.skipif(installed() != "0.19.8", reason="needs deepspeed 0.19.8 (zeroplan[verify])")

LLAMA = {
    "model_type": "llama",
    "vocab_size": 211,
    "hidden_size": 48,
    "intermediate_size": 97,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": False,
}
LLAMA_2_7B = {
    **LLAMA,
    "vocab_size": 32_000,
    "hidden_size": 4096,
    "intermediate_size": 11_008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
}
LAYER = [48 * 48, 24 * 48, 24 * 48, 48 * 48, 97 * 48, 97 * 48, 48 * 97, 48, 48]
TENSORS = [211 * 48, *LAYER, *LAYER, 48, 211 * 48]
PSI = sum(TENSORS)


def case(world, zero, model=LLAMA, **config):
    config = {"bf16": {"enabled": True}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}, **config}
    return {
        "model": model,
        "ds_config": {**copy.deepcopy(config), "zero_optimization": zero},
        "world": world,
        "rank": 0,
        "ranks_per_node": world,
        "seq": 16,
        "micro_batch": 1,
        "steps": 3,
        "mode": "meta",
        "attention": "eager",
        "checkpointing": "none",
        "activations": False,
    }


def run(given):
    found = measure(given, timeout=400)
    assert "refused" not in found, found
    assert "failed" not in found, found
    assert found["unexplained"] == []
    return found


def held(found, tier="gpu"):
    lines = {}
    for line in found["held"]:
        if line["tier"] == tier and line["kind"] not in ("inputs", "model buffers", "overflow flag", "norm scalars"):
            lines[line["kind"]] = lines.get(line["kind"], 0) + line["bytes"]
    return lines


def moved(found, collective, when="micro_step", step=3, **fields):
    entries = [
        entry
        for entry in found["traffic"]
        if (entry["collective"], entry["when"], entry["step"]) == (collective, when, step)
        and all(entry[name] == value for name, value in fields.items())
    ]
    return sum(entry["calls"] for entry in entries), sum(entry["bytes"] for entry in entries)


def up(value, to):
    return -(-value // to) * to


def test_stage_2_holds_flat_parameters_and_a_share_of_the_rest():
    found = run(case(3, {"stage": 2, "reduce_bucket_size": 5_000}, gradient_accumulation_steps=2))
    flat = up(PSI, 2 * 3)
    assert held(found) == {
        "flat parameters": 2 * flat,
        "fp32 master": 4 * flat // 3,
        "optimizer state exp_avg": 4 * flat // 3,
        "optimizer state exp_avg_sq": 4 * flat // 3,
    }
    # every micro-step reduces everything
    assert [moved(found, "all_reduce", micro=micro)[1] for micro in (1, 2)] == [2 * PSI, 2 * PSI]
    assert moved(found, "all_gather", "step") == (1, 2 * flat)


def test_stage_3_holds_partitions_bucket_and_persistent_parameters():
    zero = {"stage": 3, "reduce_bucket_size": 20_000, "stage3_param_persistence_threshold": 48}
    found = run(case(8, zero))
    share = sum(-(-k // 8) for k in TENSORS)
    assert held(found) == {
        "parameter partitions": 2 * share,
        "gradient partitions": 2 * share,
        "fp32 master": 4 * share,
        "optimizer state exp_avg": 4 * share,
        "optimizer state exp_avg_sq": 4 * share,
        "reduce bucket": 40_000,
        "persistent parameters": 5 * 2 * 48,
    }
    assert moved(found, "reduce_scatter")[1] == 2 * sum(up(k, 8) for k in TENSORS)
    assert moved(found, "all_gather", "step") == (5, 5 * 2 * 48)
    # a model within the live limit is gathered once per micro-step
    assert moved(found, "all_gather", phase="backward") == (0, 0)


def test_offload_puts_master_and_moments_on_the_host():
    found = run(case(2, {"stage": 2, "offload_optimizer": {"device": "cpu"}}))
    flat = up(PSI, 4)
    assert held(found) == {"flat parameters": 2 * flat, "offload scratch": 2 * max(TENSORS)}
    assert held(found, "host") == {"optimizer state exp_avg": 2 * flat, "optimizer state exp_avg_sq": 2 * flat}
    assert held(found, "host_pinned") == {
        "fp32 master": 2 * flat,
        "fp32 gradients": 2 * flat,
        "parameter staging": flat,
        "offload scratch": 2 * max(TENSORS),
    }


def test_zenflow_holds_a_tenth_of_the_columns_on_the_gpu():
    """int(4.8) of 48 columns, int(9.7) of 97, vectors whole; both moments in bf16, and an int32 for each column."""
    zero = {"stage": 2, "offload_optimizer": {"device": "cpu"}, "zenflow": {"update_interval": 2}}
    found = run(case(1, zero))
    rows = [211, *[48, 24, 24, 48, 97, 97] * 2, 211]
    chosen = 4 * sum(rows) + 2 * 9 * 48 + 5 * 48
    lines = held(found)
    assert lines["optimizer state exp_avg"] == lines["optimizer state exp_avg_sq"] == 2 * chosen
    assert lines["optimizer state step"] == 4 * len(TENSORS)
    assert lines["chosen columns"] == 4 * (4 * len(rows) + 2 * 9)
    # a broadcast for each tensor in each micro-step, and stage 2's reduction
    assert [moved(found, "broadcast", micro=micro) for micro in (1, 2)] == [(len(TENSORS), 2 * chosen)] * 2


def test_real_tensors_and_sizes_alone_agree():
    given = case(3, {"stage": 3, "reduce_bucket_size": 20_000, "stage3_prefetch_bucket_size": 3_000})
    given |= {"rank": 2}
    sizes, real = run(given), run({**given, "mode": "real"})
    assert sizes["held_total"] == real["held_total"]
    assert sizes["traffic"] == real["traffic"]
    less = [[phase["peak"]["gpu_less_activations"] for phase in found["phases"]] for found in (sizes, real)]
    assert less[0] == less[1]


def test_what_deepspeed_refuses_is_said():
    found = measure(case(2, {"stage": 1, "allgather_bucket_size": 12_345}))
    assert "multiple of nccl_start_alignment_factor" in found["refused"]


def test_llama_2_7b_on_8_ranks():
    found = run(case(8, {"stage": 3}, LLAMA_2_7B))
    psi = 6_738_415_616
    assert held(found) == {
        "parameter partitions": psi // 4,
        "gradient partitions": psi // 4,
        "fp32 master": psi // 2,
        "optimizer state exp_avg": psi // 2,
        "optimizer state exp_avg_sq": psi // 2,
        "reduce bucket": 1_000_000_000,
        "persistent parameters": 532_480,
    }
    assert moved(found, "all_gather", phase="forward") == (203, 13_566_476_288)
    assert moved(found, "all_gather", phase="backward") == (192, 11_414_798_336)
    assert moved(found, "reduce_scatter") == (14, 2 * psi)
    assert moved(found, "all_gather", "step") == (65, 532_480)
