"""What a ds_config switches on that no plan has in it: named where GPUs hold the same between steps, else refused.

Which of the two it is was read in DeepSpeed 0.19.8, and is asked of it here where it is installed: rank 0 of 8 trains a
Llama of two layers with the switch and without, and what it holds on the GPU after its last step is compared.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
from functools import cache

import pytest

from zeroplan.deepspeed.read import read_config
from zeroplan.errors import ContradictionError
from zeroplan.verify.measure import measure

BF16 = {"bf16": {"enabled": True}}
FP32 = {"bf16": {"enabled": False}}
AUTOCAST = {"enabled": True, "dtype": "bfloat16"}
LTD = {
    "total_layer_num": 2, "random_ltd_layer_num": 1, "random_ltd_layer_id": [1], "model_mask_name": "attention_mask",
    "model_type": "decoder", "hidden_state_order": "batch_seq_dim",
    "random_ltd_schedule": {"min_value": 8, "max_value": 16, "schedule_type": "fixed_linear",
                            "schedule_config": {"require_steps": 10, "seq_per_step": 8}},
}  # fmt: skip
ROUTING = {"data_efficiency": {"data_routing": {"random_ltd": {"enabled": True, **LTD}}}}
CPU = {"offload_optimizer": {"device": "cpu"}}


def zero(stage, **section):
    return {"zero_optimization": {"stage": stage, **section}}


NAMED = {
    "sequence groups of the script's": (zero(2) | {"sequence_parallel_size": 4}, "sequence_parallel_size 4"),
    "sequence groups of a mesh at stage 3": (
        zero(3) | {"sequence_parallel_size": 4, "data_parallel_size": 2}, "sequence_parallel_size 4"),
    "SuperOffload": (
        zero(3, offload_optimizer={"device": "cpu", "super_offload": True}),
        "zero_optimization.offload_optimizer.super_offload true"),
    "random layer-token dropping": (ROUTING, "data_efficiency.data_routing.random_ltd.enabled true"),
    "a curriculum": (
        {"data_efficiency": {"data_sampling": {"curriculum_learning": {"enabled": True, "curriculum_metrics": {}}}}},
        "data_efficiency.data_sampling.curriculum_learning.enabled true"),
    "dynamic batching": (
        {"data_efficiency": {"data_sampling": {"dynamic_batching": {"enabled": True, "max_tokens": 64}}}},
        "data_efficiency.data_sampling.dynamic_batching.enabled true"),
    "accumulation by hand": (
        zero(2) | {"managed_gradient_accumulation": False}, "managed_gradient_accumulation false"),
    "autocast of other modules": (
        zero(2) | FP32 | {"torch_autocast": {**AUTOCAST, "lower_precision_safe_modules": ["torch.nn.Conv2d"]}},
        "torch_autocast.lower_precision_safe_modules"),
    "autocast without a dtype": (zero(2) | FP32 | {"torch_autocast": {"enabled": True}}, "torch_autocast.enabled true"),
    "autocast to the other half": (
        zero(2) | {"torch_autocast": {"enabled": True, "dtype": "float16"}}, 'torch_autocast.dtype "float16"'),
    "autotuning": ({"autotuning": {"enabled": True}}, "autotuning.enabled true"),
    "checkpoints of DataStates": ({"datastates_ckpt": {"host_cache_size": 16}}, "datastates_ckpt"),
}  # fmt: skip
REFUSED = {
    "sequence groups of a mesh": (
        zero(2) | {"sequence_parallel_size": 4, "data_parallel_size": 2}, "sequence_parallel_size 4"),
    "tensor parallelism": (zero(1) | {"tensor_parallel": {"autotp_size": 2}}, "tensor_parallel.autotp_size 2"),
    "expert parallelism": (
        {"expert_parallel": {"enabled": True, "autoep_size": 2}}, "expert_parallel.enabled true"),
    "a pipeline": ({"pipeline": {"stages": 4}}, "pipeline.stages 4"),
    "DeepCompile": (zero(3) | {"compile": {"deepcompile": True}}, "compile.deepcompile true"),
    "the hybrid engine": ({"hybrid_engine": {"enabled": True}}, "hybrid_engine.enabled true"),
    "weights quantized at birth": (
        zero(3) | {"weight_quantization": {"quantized_initialization": {"num_bits": 8}}},
        "weight_quantization.quantized_initialization"),
    "Muon's momentum kept from NVMe": (
        zero(3, offload_optimizer={"device": "nvme", "nvme_path": "/nvme"}, reduce_scatter=False,
             save_muon_momentum_buffer_in_memory=True) | {"optimizer": {"type": "Muon"}},
        "zero_optimization.save_muon_momentum_buffer_in_memory true"),
    "ZenFlow under Muon": (
        zero(2, **CPU, zenflow={"update_interval": 1}) | {"optimizer": {"type": "Muon"}}, "zero_optimization.zenflow"),
    "autocast of other modules at stage 3": (
        zero(3) | FP32 | {"torch_autocast": {**AUTOCAST, "lower_precision_safe_modules": ["torch.nn.Conv2d"]}},
        "torch_autocast.lower_precision_safe_modules"),
    "autocast without a dtype at stage 3": (
        zero(3) | FP32 | {"torch_autocast": {"enabled": True}}, "torch_autocast.enabled true"),
    "autocast to the other half at stage 3": (
        zero(3) | {"torch_autocast": {"enabled": True, "dtype": "float16"}}, 'torch_autocast.dtype "float16"'),
}  # fmt: skip
SILENT = {
    "sequence groups of one": zero(2) | {"sequence_parallel_size": 1, "data_parallel_size": 8},
    "AutoTP of one": {"tensor_parallel": {"autotp_size": 1}},
    "AutoTP's own section": {"tensor_parallel": {"tp": {"tp_size": 2}}},
    "experts that stay": {"expert_parallel": {"enabled": False, "autoep_size": 4}},
    "stages that DeepSpeed chooses": {"pipeline": {"stages": "auto"}},
    "a compiler that is off": {"compile": {"deepcompile": False, "offload_activation": True}},
    "SuperOffload below stage 3": zero(2, offload_optimizer={"device": "cpu", "super_offload": True}),
    "quantization after birth": zero(3) | {"weight_quantization": {"post_init_quant": {}}},
    "dropping that is off": {"data_efficiency": {"enabled": True, "data_routing": {"enabled": True}}},
    "autocast of linear layers": FP32 | {
        "torch_autocast": {**AUTOCAST, "lower_precision_safe_modules": ["torch.nn.Linear"]}},
    "no DataStates": {"datastates_ckpt": False},
}  # fmt: skip


def read(config):
    return read_config({**BF16, **config}, "ds.json")


@pytest.mark.parametrize(("config", "what"), NAMED.values(), ids=NAMED)
def test_what_holds_the_same_is_named(config, what):
    found = read(config).unplanned
    assert [one.what for one in found] == [f"ds.json: {what}"]
    assert all(one.effect and one.instead for one in found)


@pytest.mark.parametrize(("config", "what"), REFUSED.values(), ids=REFUSED)
def test_what_holds_something_else_is_refused(config, what):
    with pytest.raises(ContradictionError) as refused:
        read(config)
    said = str(refused.value)
    assert said.startswith(f"ds.json: {what} is not planned: ")
    assert "\n" not in said
    assert len(said) < 400


@pytest.mark.parametrize("config", SILENT.values(), ids=SILENT)
def test_what_changes_nothing_is_neither(config):
    assert read(config).unplanned == ()


def test_sequence_groups_reduce_in_their_own_dtype():
    """runtime/engine.py:2182: communication_data_type is replaced, by fp32 where nothing is stated."""
    split = {"sequence_parallel_size": 4, "communication_data_type": "bf16"}
    assert read(split).fields["communication_dtype"] == "fp32"
    assert read({**split, "seq_parallel_communication_data_type": "bf16"}).fields["communication_dtype"] == "bf16"
    assert read({**split, "sequence_parallel_size": 1}).fields["communication_dtype"] == "bf16"


MODEL = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 176, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 256, "max_position_embeddings": 128,
    "tie_word_embeddings": False,
}  # fmt: skip
SIZES = {"reduce_bucket_size": 5000, "stage3_prefetch_bucket_size": 1000, "stage3_param_persistence_threshold": 100}


def on_gpu(**config):
    """Bytes by kind and dtype on rank 0 after three steps."""
    pytest.importorskip("torch")
    if any(importlib.util.find_spec(name) is None for name in ("deepspeed", "transformers")):
        pytest.skip("DeepSpeed is not installed")
    if importlib.metadata.version("deepspeed") != "0.19.8":
        pytest.skip("another DeepSpeed than 0.19.8")
    stage = config["zero_optimization"]["stage"]
    adam = {"type": "AdamW", "params": {"lr": 1e-5, "torch_adam": True}}
    content = {**BF16, "optimizer": adam, **config, "zero_optimization": {**SIZES, **config["zero_optimization"]}}
    found = measure({
        "model": MODEL, "ds_config": content, "world": 8, "rank": 0, "ranks_per_node": 8, "seq": 16, "micro_batch": 1,
        "steps": 3, "mode": "meta", "activations": False, "attention": "eager", "checkpointing": "none",
        "zero_init": stage == 3, "parameter_groups": 1, "gpu_memory": None,
    })  # fmt: skip
    assert "held" in found, found
    held = {}
    for entry in found["held"]:
        if entry["tier"] == "gpu" and entry["kind"] != "inputs":
            kind = entry["kind"], entry["dtype"]
            held[kind] = held.get(kind, 0) + entry["bytes"]
    return held


@cache
def without(stage, *, fp32=False):
    return on_gpu(**zero(stage), **(FP32 if fp32 else {}))


@pytest.mark.parametrize("stage", [1, 3])
@pytest.mark.parametrize(
    "switch", [{"managed_gradient_accumulation": False}, {**ROUTING, "sequence_parallel_size": 4},
               {"pipeline": {"activation_checkpoint_interval": 1}, "tensor_parallel": {"tp": {"tp_size": 2}},
                "moe": {"enabled": True}}], ids=str,
)  # fmt: skip
def test_deepspeed_holds_the_same(switch, stage):
    assert on_gpu(**zero(stage), **switch) == without(stage)


@pytest.mark.parametrize("stage", [1, 2])
def test_a_mesh_leaves_the_partition_to_its_data_ranks(stage):
    """Of 8 ranks in sequence groups of 4 two share a batch: each holds a half of the master copy, not an eighth."""
    mesh = on_gpu(**zero(stage), sequence_parallel_size=4, data_parallel_size=2)
    assert mesh["fp32 master", "float32"] == 4 * without(stage)["fp32 master", "float32"]


def test_a_mesh_at_stage_3_changes_the_bucket_alone():
    """5,000 elements, in fp32."""
    mesh, plain = on_gpu(**zero(3), sequence_parallel_size=4, data_parallel_size=2), dict(without(3))
    assert plain.pop(("reduce bucket", "bfloat16")) == 10_000
    assert mesh.pop(("reduce bucket", "float32")) == 20_000
    assert mesh == plain


def test_tensor_parallelism_halves_the_linear_layers():
    assert on_gpu(**zero(1), tensor_parallel={"autotp_size": 2}) != without(1)


def test_autocast_decides_how_many_buckets_there_are():
    """A bucket of 5,000 elements for each dtype in which gradients travel, at stage 3 alone."""
    cast = {"torch_autocast": AUTOCAST}
    conv = {"torch_autocast": {**AUTOCAST, "lower_precision_safe_modules": ["torch.nn.Conv2d"]}}
    nothing = {"torch_autocast": {"enabled": True}}

    def buckets(**config):
        return {dtype: size for (kind, dtype), size in on_gpu(**zero(3), **FP32, **config).items()
                if kind == "reduce bucket"}  # fmt: skip

    assert buckets(**cast) == {"bfloat16": 10_000, "float32": 20_000}
    assert buckets(**conv) == {"float32": 20_000}
    assert buckets(**nothing) == {"float32": 40_000}
    assert on_gpu(**zero(2), **FP32, **conv) == on_gpu(**zero(2), **FP32, **nothing) == without(2, fp32=True)
