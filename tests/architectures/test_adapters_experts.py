"""Adapters on experts and routers, beside real peft 0.21.2 on transformers 5.24 and torch 2.14.

Names, shapes and what trains are what `get_peft_model(...).named_parameters()` gave, as far as it trains or lies under an
adapter; bytes of activations are what the same models had in bf16, 2 sequences of 7 tokens, eager attention. Frozen
routers of deepseek_v2 and v3 are built in fp32, so no bytes of theirs are here.
"""

import pytest

from zeroplan.architectures.adapters import with_adapter
from zeroplan.architectures.model import model_of
from zeroplan.architectures.read import read_config
from zeroplan.catalog.adapters import read_adapter, settings
from zeroplan.costs.deepspeed.fetch import micro_steps
from zeroplan.costs.deepspeed.reduction import left_leaves
from zeroplan.costs.passes import alone
from zeroplan.deepspeed.read import read_config as read_ds_config
from zeroplan.errors import ContradictionError
from zeroplan.specs.cluster import Cluster
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Strategy, Workload

BASE = {
    "vocab_size": 32, "hidden_size": 16, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 1,
    "intermediate_size": 24, "pad_token_id": 0,
}  # fmt: skip
LATENT = {
    **BASE, "num_hidden_layers": 2, "num_key_value_heads": 4, "n_routed_experts": 4, "n_shared_experts": 1,
    "num_experts_per_tok": 2, "moe_intermediate_size": 8, "kv_lora_rank": 8, "q_lora_rank": 8, "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 4, "v_head_dim": 4, "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1,
}  # fmt: skip
MODELS = {
    "mixtral": {**BASE, "num_local_experts": 3, "num_experts_per_tok": 2},
    "qwen3_moe": {**BASE, "head_dim": 4, "num_experts": 3, "moe_intermediate_size": 8, "num_experts_per_tok": 2},
    "qwen2_moe": {
        **BASE, "num_experts": 3, "moe_intermediate_size": 8, "shared_expert_intermediate_size": 8,
        "num_experts_per_tok": 2,
    },
    "deepseek_v2": LATENT,
    "deepseek_v3": LATENT,
    "gpt_oss": {
        **BASE, "head_dim": 4, "num_local_experts": 3, "num_experts_per_tok": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
}  # fmt: skip


def model(family, adapter, **changes):
    model_type, config = read_config({"model_type": family, **MODELS[family], **changes}, "case")
    return with_adapter(model_of(model_type, config, name=family, source="case"), read_adapter(adapter, "case"))


def wrapped(family, adapter):
    """Names, shapes, and whether each trains: of what trains or lies under an adapter, without the common start."""
    return {
        tensor.name.removeprefix("base_model.model.model."): (tensor.shape, tensor.trainable)
        for tensor in model(family, adapter).tensors
        if tensor.trainable or ".base_layer." in tensor.name
    }


def linear(path, out, inside, rank=2, *, biased=False, bias_trains=False):
    """A linear layer's own parameters, and its adapter's."""
    bias = {f"{path}.base_layer.bias": ((out,), bias_trains)} if biased else {}
    return {f"{path}.base_layer.weight": ((out, inside), False), **bias} | matrices(path, out, inside, rank)


def matrices(path, out, inside, rank):
    return {
        f"{path}.lora_A.default.weight": ((rank, inside), True),
        f"{path}.lora_B.default.weight": ((out, rank), True),
    }


def frozen(path, *shape):
    return {path: (shape, False)}


def attention(layer, *names):
    sizes = {"q_proj": (16, 16), "k_proj": (8, 16), "v_proj": (8, 16), "o_proj": (16, 16)}
    pairs = [linear(f"layers.{layer}.self_attn.{name}", *sizes[name]) for name in names]
    return {name: value for pair in pairs for name, value in pair.items()}


def latent_attention(layer):
    sizes = {"q_a_proj": (8, 16), "q_b_proj": (32, 8), "kv_a_proj_with_mqa": (12, 16), "kv_b_proj": (32, 8), "o_proj": (16, 16)}
    pairs = [linear(f"layers.{layer}.self_attn.{name}", *size) for name, size in sizes.items()]
    return {name: value for pair in pairs for name, value in pair.items()}


EVERY = ("q_proj", "k_proj", "v_proj", "o_proj")
TARGETS = {
    "mixtral, all-linear": ("mixtral", {"r": 2, "target_modules": "all-linear"}, {
        **attention(0, *EVERY), **linear("layers.0.mlp.gate", 3, 16),
        **frozen("layers.0.mlp.experts.base_layer.base_layer.gate_up_proj", 3, 48, 16),
        **frozen("layers.0.mlp.experts.base_layer.base_layer.down_proj", 3, 16, 24),
        **matrices("layers.0.mlp.experts.base_layer", 48, 16, 12), **matrices("layers.0.mlp.experts", 16, 24, 6),
    }),
    "mixtral, parameters": (
        "mixtral",
        {"r": 2, "target_modules": ["q_proj"], "target_parameters": ["experts.gate_up_proj", "experts.down_proj"]},
        {
            **attention(0, "q_proj"), **frozen("layers.0.mlp.experts.base_layer.base_layer.gate_up_proj", 3, 48, 16),
            **frozen("layers.0.mlp.experts.base_layer.base_layer.down_proj", 3, 16, 24),
            **matrices("layers.0.mlp.experts.base_layer", 48, 16, 6), **matrices("layers.0.mlp.experts", 16, 24, 6),
        },
    ),
    "mixtral, expression": ("mixtral", {"r": 2, "target_modules": r".*\.(v_proj|w1|w3)"}, {
        **attention(0, "v_proj"), **frozen("layers.0.mlp.experts.base_layer.gate_up_proj", 3, 48, 16),
        **frozen("layers.0.mlp.experts.base_layer.down_proj", 3, 16, 24), **matrices("layers.0.mlp.experts", 48, 16, 12),
    }),
    "qwen3_moe, names": (
        "qwen3_moe", {"r": 2, "target_modules": ["o_proj", "gate_proj", "up_proj", "down_proj"]},
        {
            **attention(0, "o_proj"), **frozen("layers.0.mlp.experts.base_layer.base_layer.gate_up_proj", 3, 16, 16),
            **frozen("layers.0.mlp.experts.base_layer.base_layer.down_proj", 3, 16, 8),
            **matrices("layers.0.mlp.experts.base_layer", 16, 16, 12), **matrices("layers.0.mlp.experts", 16, 8, 6),
        },
    ),
    "deepseek_v2, names": (
        "deepseek_v2", {"r": 2, "target_modules": ["kv_b_proj", "gate_proj", "up_proj", "gate"]},
        {
            **linear("layers.0.self_attn.kv_b_proj", 32, 8), **linear("layers.1.self_attn.kv_b_proj", 32, 8),
            **frozen("layers.1.mlp.experts.base_layer.gate_up_proj", 4, 16, 16),
            **frozen("layers.1.mlp.experts.base_layer.down_proj", 4, 16, 8),
            **matrices("layers.1.mlp.experts", 16, 16, 16), **linear("layers.1.mlp.gate", 4, 16),
        },
    ),
    "deepseek_v3, all-linear": ("deepseek_v3", {"r": 2, "target_modules": "all-linear"}, {
        **latent_attention(0), **latent_attention(1),
        **frozen("layers.1.mlp.experts.base_layer.base_layer.gate_up_proj", 4, 16, 16),
        **frozen("layers.1.mlp.experts.base_layer.base_layer.down_proj", 4, 16, 8),
        **matrices("layers.1.mlp.experts.base_layer", 16, 16, 16), **matrices("layers.1.mlp.experts", 16, 8, 8),
        **linear("layers.1.mlp.gate", 4, 16),
    }),
    "qwen2_moe, all-linear": ("qwen2_moe", {"r": 2, "target_modules": "all-linear"}, {
        **linear("layers.0.self_attn.q_proj", 16, 16, biased=True), **linear("layers.0.self_attn.k_proj", 8, 16, biased=True),
        **linear("layers.0.self_attn.v_proj", 8, 16, biased=True), **linear("layers.0.self_attn.o_proj", 16, 16),
        **linear("layers.0.mlp.shared_expert.gate_proj", 8, 16), **linear("layers.0.mlp.shared_expert.up_proj", 8, 16),
        **linear("layers.0.mlp.shared_expert.down_proj", 16, 8), **linear("layers.0.mlp.shared_expert_gate", 1, 16),
    }),
    "gpt_oss, parameters": (
        "gpt_oss",
        {
            "r": 2, "target_modules": ["q_proj"], "bias": "lora_only",
            "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj", "router.weight"],
        },
        {
            **linear("layers.0.self_attn.q_proj", 16, 16, biased=True, bias_trains=True),
            **linear("layers.0.mlp.router", 3, 16, biased=True, bias_trains=True),
            **frozen("layers.0.mlp.experts.base_layer.base_layer.gate_up_proj", 3, 16, 48),
            **frozen("layers.0.mlp.experts.base_layer.base_layer.gate_up_proj_bias", 3, 48),
            **frozen("layers.0.mlp.experts.base_layer.base_layer.down_proj", 3, 24, 16),
            **frozen("layers.0.mlp.experts.base_layer.base_layer.down_proj_bias", 3, 16),
            **matrices("layers.0.mlp.experts.base_layer", 48, 16, 6), **matrices("layers.0.mlp.experts", 16, 24, 6),
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", TARGETS)
def test_the_tree_is_pefts(case):
    family, adapter, expected = TARGETS[case]
    assert list(wrapped(family, adapter).items()) == list(expected.items())


ROUTED = {
    "mixtral": {"r": 2, "target_modules": "all-linear"},
    "qwen3_moe": {"r": 2, "lora_alpha": 2, "target_modules": ["gate_proj", "up_proj"]},
    "gpt_oss": {
        "r": 2, "target_modules": [],
        "target_parameters": ["mlp.experts.gate_up_proj", "mlp.experts.down_proj", "router.weight"],
    },
}  # fmt: skip
MEASURED = {
    ("mixtral", "none"): (47424, 50688, 51064),
    ("mixtral", "full"): (4124, 16568, 29792),
    ("qwen3_moe", "none"): (18592, 21856, 22064),
    ("qwen3_moe", "full"): (4124, 9288, 18200),
    ("gpt_oss", "none"): (41936, 45200, 45408),
    ("gpt_oss", "full"): (4264, 21796, 30364),
}


def job(family, adapter, stage, checkpointing="none", *, prefetch=50_000_000, **changes):
    numbers = {"stage3_prefetch_bucket_size": prefetch, "stage3_param_persistence_threshold": 0}
    zero = {"stage": stage, **(numbers if stage == 3 else {})}
    fields = read_ds_config({"zero_optimization": zero, "bf16": {"enabled": True}}, "case").fields
    strategy = Strategy(**{**fields, "micro_batch": 2, "checkpointing": checkpointing, "attention": "eager"})
    return Job(
        model=model(family, adapter, **changes), cluster=Cluster(nodes=1, gpus_per_node=2), workload=Workload(seq=7),
        rank=0, strategy=strategy,
    )  # fmt: skip


@pytest.mark.parametrize(("family", "checkpointing"), MEASURED)
def test_activations_are_those_of_torch(family, checkpointing):
    """Saved, and the peaks of forward and backward: merged matrices are made twice, and one is kept."""
    counted = alone(job(family, ROUTED[family], 0, checkpointing, num_hidden_layers=2))
    assert tuple(counted) == MEASURED[family, checkpointing]


def test_all_layers_have_experts_adapters_whatever_layers_are_named():
    """peft looks at no other field for a parameter: q_proj of layer 0 only, experts of both."""
    adapter = {"target_modules": ["q_proj", "gate_proj", "up_proj"], "layers_to_transform": [0], "exclude_modules": ["experts"]}
    names = [tensor.name for tensor in model("qwen3_moe", adapter, num_hidden_layers=2).tensors if "lora_A" in tensor.name]
    assert [name.removeprefix("base_model.model.model.layers.") for name in names] == [
        "0.self_attn.q_proj.lora_A.default.weight", "0.mlp.experts.lora_A.default.weight",
        "1.mlp.experts.lora_A.default.weight",
    ]  # fmt: skip


def test_a_rank_of_ones_own_comes_before_the_doubled_one():
    shapes = {
        tensor.name.rpartition("layers.0.mlp.")[2]: tensor.shape
        for tensor in model("mixtral", {"r": 2, "target_modules": ["w1", "w3"], "rank_pattern": {"gate_up_proj": 5}}).tensors
    }
    assert shapes["experts.lora_A.default.weight"] == (15, 16)  # 3 experts of rank 5


@pytest.mark.parametrize("option", ["lora_dropout", "use_dora", "lora_bias"])
def test_what_peft_refuses_with_parameters_is_refused(option):
    adapter = {"target_modules": [], "target_parameters": ["experts.down_proj"], option: 0.1 if option == "lora_dropout" else True}
    with pytest.raises(ContradictionError, match=f"experts.down_proj with {option}: peft refuses that"):
        model("mixtral", adapter)


@pytest.mark.parametrize(("family", "adapter", "said"), [
    ("mixtral", {"target_modules": ["w1"]}, "w1 without w3"),
    ("deepseek_v3", {"target_modules": ["mlp.up_proj"]}, "up_proj without gate_proj"),
    ("gpt_oss", {"target_parameters": ["self_attn.sinks"]}, "shape \\[4\\]"),
    ("mixtral", {"target_modules": ["q_proj"], "target_parameters": ["q_proj.weight"]}, "name it once"),
    ("mixtral", {"target_parameters": ["embed_tokens.weight"]}, "an embedding's"),
    ("mixtral", {"target_parameters": ["experts.up_proj"]}, "named like 'experts.up_proj'"),
])  # fmt: skip
def test_what_has_no_such_parameter_is_one_line(family, adapter, said):
    with pytest.raises(ContradictionError, match=said) as error:
        model(family, adapter)
    assert "\n" not in str(error.value)


def test_a_module_that_is_no_leaf_stops_deepspeed_unless_prefetch_passes_over_it():
    """With a prefetch of 0 the trace's next tensors are not those that the next module fetches (tracing error)."""
    adapter = {"r": 2, "target_modules": ["q_proj"], "target_parameters": ["experts.gate_up_proj"]}
    assert micro_steps(job("gpt_oss", adapter, 3)).steady.gathers
    with pytest.raises(ContradictionError, match="tracing error"):
        micro_steps(job("gpt_oss", adapter, 3, prefetch=0))


def test_a_leaf_is_gathered_with_its_adapters():
    """Mixtral's blocks are leaves in DeepSpeed: its run gathered 8,544 bytes in one call, with 11 calls for the rest."""
    one = job("mixtral", {"r": 2, "target_modules": ["q_proj", "w1", "w3"]}, 3, prefetch=0)
    forward = [gather for gather in micro_steps(one).steady.calls if gather.pass_index == 0]
    assert sorted(2 * gather.elements for gather in forward if len(gather.tensors) > 1) == [8544]
    assert len(forward) == 12


def test_a_leaf_before_which_nothing_trains_stops_deepspeed():
    """Its hook fires before its backward and reduces zeros: "Attempting to broadcast a dimension" in the run."""
    adapter = {"r": 2, "target_modules": ["w1", "w3"]}
    with pytest.raises(ContradictionError, match="given nothing that needs a gradient"):
        left_leaves(job("mixtral", adapter, 3))
    assert left_leaves(job("mixtral", adapter, 3, "full"))


def test_fields_are_read_and_written_as_peft_has_them():
    stated = {"r": 8, "target_modules": [], "target_parameters": ["experts.down_proj"], "alpha_pattern": {"down_proj": 4}}
    assert settings(read_adapter(stated, "adapter_config.json")) == stated
