"""A family that is not described, by its sizes: described families' own models planned so, against themselves.

What transformers writes into each preset's config.json (tests/references/saved_configs.json) is read as if its family
were unknown, and what a GPU needs is compared with the plan of the family, itself equal to runs of DeepSpeed.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import REFERENCES
from zeroplan.architectures.approximate import DENSE, SPARSE, approximate
from zeroplan.catalog import presets
from zeroplan.catalog.models import from_file, from_preset
from zeroplan.costs.ledger import ledger
from zeroplan.errors import SpecError
from zeroplan.fit import fit
from zeroplan.specs.cluster import Cluster
from zeroplan.specs.job import Job
from zeroplan.specs.model import Model
from zeroplan.specs.strategy import Strategy, Workload

SAVED: dict[str, dict[str, Any]] = json.loads((REFERENCES / "saved_configs.json").read_text())["presets"]
OF_THEIR_OWN = {"bert": "type_vocab_size", "falcon": "alibi", "gpt_oss": "swiglu_alpha"}
"""Families with attention or experts that no other has: their keys are refused."""
PARTS = 0.01
"""Share by which the count of parameters may be off."""


def as_unknown(name: str) -> dict[str, Any]:
    return {**{k: v for k, v in SAVED[name].items() if k != "architectures"}, "model_type": "somebodys_own"}


def needed(model: Model, stage: int, attention: str, checkpointing: str) -> int:
    """Bytes of one of 8 GPUs with one sequence of 2,048 tokens, or as many as the model has positions."""
    seq = min(2048, model.shape.positions or 2048)
    strategy = Strategy(stage, attention=attention, checkpointing=checkpointing)
    job = Job(model, Cluster(nodes=1, gpus_per_node=8), Workload(seq=seq), strategy)
    return fit(job, ledger(job)).gpu.needed


PLANNED = [name for name in presets.names("model") if SAVED[name]["model_type"] not in OF_THEIR_OWN]


def test_every_family_is_compared_or_refused():
    families = {config["model_type"] for config in SAVED.values()}
    assert {SAVED[name]["model_type"] for name in PLANNED} == families - OF_THEIR_OWN.keys()
    assert len(families) >= 25


@pytest.mark.parametrize("name", PLANNED)
def test_memory_is_that_of_the_family(name):
    exact, found = from_preset(name), approximate(as_unknown(name), "config.json", name)
    assert found.approximate == (SPARSE if exact.shape.experts else DENSE)
    assert found.parameters == pytest.approx(exact.parameters, rel=PARTS)
    for stage in range(4):
        for checkpointing in ("none", "full"):
            how = (stage, "sdpa" if exact.has_sdpa else "eager", checkpointing)
            assert needed(found, *how) == pytest.approx(needed(exact, *how), rel=found.approximate), how


@pytest.mark.parametrize("name", [name for name in presets.names("model") if name not in PLANNED])
def test_layers_of_their_own_are_refused(name):
    with pytest.raises(SpecError, match=OF_THEIR_OWN[SAVED[name]["model_type"]] + "|new_decoder_architecture|parallel_attn"):
        approximate(as_unknown(name), "config.json", name)


BASE = as_unknown("llama-3.1-8b")


@pytest.mark.parametrize(
    ("changes", "fragment"),
    [
        *[({name: None}, f"without {name}") for name in
          ("hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "intermediate_size")],
        ({"hidden_size": "4096"}, "hidden_size = '4096'"),
        ({"hidden_size": 4096.0}, "whole number"),
        ({"num_hidden_layers": 10_001}, "10,000"),
        ({"ssm_state_size": 16}, "ssm_state_size"),
        ({"linear_num_value_heads": 16}, "linear_num_value_heads"),
        ({"conv_kernel": 4}, "conv_kernel"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder"),
        ({"encoder_layers": 6}, "encoder_layers"),
        ({"layer_types": ["linear_attention"] * 32}, "linear_attention"),
        ({"model_type": "mamba"}, "mamba"),
        ({"model_type": "t5"}, "a decoder"),
        ({"tie_word_embeddings": "yes"}, "tie_word_embeddings = 'yes'"),
        ({"num_local_experts": 8}, "without num_experts_per_tok"),
        ({"num_attention_heads": 7}, "num_key_value_heads"),
        ({"vision_config": {"hidden_size": 1}}, "multimodal"),
        ({"architectures": ["MineForSequenceClassification"]}, "MineForSequenceClassification"),
        ({"quantization_config": {"quant_method": "gptq", "bits": 4}}, "gptq"),
    ],
    ids=lambda each: str(each)[:40],
)  # fmt: skip
def test_what_no_such_model_has_is_refused_in_a_line(tmp_path, changes, fragment):
    (tmp_path / "config.json").write_text(json.dumps({k: v for k, v in {**BASE, **changes}.items() if v is not None}))
    with pytest.raises(SpecError) as refused:
        from_file(tmp_path)
    assert fragment in str(refused.value)
    assert "\n" not in str(refused.value)
    assert "--params" not in str(refused.value)


def test_a_table_of_words_is_not_guessed(tmp_path):
    small = {k: v for k, v in as_unknown("qwen3-0.6b").items() if k != "tie_word_embeddings"}
    with pytest.raises(SpecError, match="tie_word_embeddings"):
        approximate(small, "config.json", "small")


def test_it_says_what_it_is():
    found = approximate(as_unknown("qwen3-30b-a3b"), "config.json", "mine")
    assert (found.family, found.name) == ("somebodys_own", "mine")
    assert "somebodys_own is not described" in found.source
    assert "within 15%" in found.source


CHATGLM = {
    "model_type": "chatglm", "architectures": ["ChatGLMModel"], "hidden_size": 4096, "ffn_hidden_size": 13696, "num_layers": 28,
    "num_attention_heads": 32, "kv_channels": 128, "multi_query_attention": True, "multi_query_group_num": 2,
    "padded_vocab_size": 65024, "rmsnorm": True, "add_qkv_bias": True, "add_bias_linear": False, "seq_length": 32768,
    "layernorm_epsilon": 1e-5, "tie_word_embeddings": False, "quantization_bit": 0,
}  # fmt: skip
QWEN = {
    "model_type": "qwen", "architectures": ["QWenLMHeadModel"], "hidden_size": 4096, "intermediate_size": 22016,
    "kv_channels": 128, "layer_norm_epsilon": 1e-6, "max_position_embeddings": 8192, "no_bias": True, "num_attention_heads": 32,
    "num_hidden_layers": 32, "vocab_size": 151936, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.mark.parametrize(("content", "parameters"), [
    # Layers: queries, keys and values 4096·(4096+2·256) and their biases, output 4096², MLP 4096·2·13696 + 13696·4096, two norms.
    (CHATGLM, 2 * 65024 * 4096 + 4096 + 28 * (4096 * 4608 + 4608 + 4096**2 + 3 * 4096 * 13696 + 2 * 4096)),
    (QWEN, 2 * 151936 * 4096 + 4096 + 32 * (3 * 4096**2 + 3 * 4096 + 4096**2 + 3 * 4096 * 11008 + 2 * 4096)),
])  # fmt: skip
def test_families_whose_code_says_what_their_keys_do_not(content, parameters):
    """modeling_chatglm.py of chatglm3-6b (6,243,584,000 parameters as published): dense_h_to_4h has twice ffn_hidden_size, for
    its swiglu; modeling_qwen.py of Qwen-7B: w1 and w2 of intermediate_size / 2, c_attn with biases, RMSNorm.
    """
    model = approximate(content, "config.json", "x")
    norms = sum(t.numel for t in model.tensors if "q_norm" in t.name or "k_norm" in t.name)
    assert model.parameters - norms == parameters


@pytest.mark.parametrize("more", [{"quantization_bit": 4}, {"visual": {"layers": 48}}])
def test_weights_in_4_bits_and_towers_are_refused(more):
    with pytest.raises(SpecError):
        approximate({**QWEN, **more}, "config.json", "x")
