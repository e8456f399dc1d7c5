"""Layers are identical where the same of them trains: the trace expanded from one equals that in which each runs."""

from __future__ import annotations

import random

import pytest

from zeroplan.architectures.gradient_flow import layers_that_train
from zeroplan.architectures.identical_layers import representatives
from zeroplan.architectures.model import model_of
from zeroplan.architectures.read import read_config
from zeroplan.architectures.structure import Structure
from zeroplan.architectures.timeline import ExpandedTrace
from zeroplan.architectures.trace import run_of, run_trace
from zeroplan.specs.checkpointing import recomputing
from zeroplan.specs.model import TimelineRequest, with_frozen

LAYERS = 11
LLAMA = {"model_type": "llama", "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2,
         "num_hidden_layers": LAYERS, "vocab_size": 300}  # fmt: skip
GPT2 = {"model_type": "gpt2", "n_embd": 64, "n_layer": LAYERS, "n_head": 4, "n_positions": 32, "vocab_size": 300}
NEOX = {"model_type": "gpt_neox", "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
        "num_hidden_layers": LAYERS, "vocab_size": 300}  # fmt: skip
TRAINED = {
    "head": ["*lm_head*", "*embed_out*", "*wte*"], "norms": ["*norm*", "*ln_*"], "biases": ["*bias"],
    "queries": ["*q_proj*", "*c_attn*", "*query_key_value*"],
    "last layers": [f"*.{number}.*" for number in range(6, LAYERS)], "every other": [f"*.{number}.*" for number in range(1, LAYERS, 2)],
    "first layers": ["*.0.*", "*.1.*"], "middle": ["*.2.*", "*.4.mlp.*"],
}  # fmt: skip


def expanded(model, request, trains):
    timelines = model.profile
    root = timelines.root
    order = model.profile.execution(eager=request.eager, recomputing=request.recomputing, frozen=request.frozen)
    layers = representatives(root, request.recomputing, trains=trains)
    return ExpandedTrace(Structure(root, order, layers), run_trace(root, run_of(request, root), layers)), layers


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("checkpointing", ["none", "full", "full-reentrant"])
@pytest.mark.parametrize("config", [LLAMA, GPT2, NEOX], ids=lambda config: config["model_type"])
@pytest.mark.parametrize("trained", TRAINED)
def test_one_layer_stands_for_all_like_it(config, trained, checkpointing, attention):
    whole = model_of(*read_config(dict(config), "case"), name="case", source="case")
    if not any(tensor.name.endswith("bias") for tensor in whole.tensors) and trained == "biases":
        pytest.skip("it has none")
    model = with_frozen(whole, ["*"], TRAINED[trained])
    request = TimelineRequest(
        2, 8, 2, False, attention, "cuda", recomputing(checkpointing), random.Random(trained).random() < 0.5,
        frozen=model.frozen,
    )  # fmt: skip
    found, layers = expanded(model, request, layers_that_train(model.profile.root, request))
    each, _all = expanded(model, request, tuple(range(LAYERS)))
    assert len({chosen for _layer, chosen in layers}) < LAYERS
    assert found.saved == each.saved
    assert found.forward.levels == each.forward.levels
    assert found.backward.levels == each.backward.levels
    assert found.backward.ready() == each.backward.ready()
    assert {*found.backward.ready()} == {*model.trainable}
