"""The order of execution against what transformers 5.23.0 was found to run (execution_reference.json)."""

from __future__ import annotations

import json
import math
import time
from typing import Any

import pytest

from tests.architectures import execution_reference
from tests.architectures.test_families import preset
from zeroplan.architectures.execution import Visit, backward_visits, execution, gradient_order, visits
from zeroplan.architectures.module import Module
from zeroplan.architectures.read import build_module, read_config
from zeroplan.architectures.registry import FAMILIES

ROWS = execution_reference.read()
LAYER = [
    "input_layernorm", "q_proj", "k_proj", "v_proj", "o_proj",
    "post_attention_layernorm", "gate_proj", "up_proj", "down_proj",
]  # fmt: skip
TINY = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 6, "vocab_size": 10, "num_hidden_layers": 1}


def build(config: dict[str, Any]) -> Module:
    return build_module(*read_config(config, "config.json"))


def short(found: list[Visit]) -> list[str]:
    return [f"{'+' if visit.event == 'enter' else '-'}{visit.path.split('.')[-1]}" for visit in found]


def in_and_out(names: list[str]) -> list[str]:
    return [sign + name for name in names for sign in "+-"]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0]["model_type"])
def test_as_transformers_ran(row: Any) -> None:
    config, expected = row
    assert execution(build(config)) == expected


def test_every_family_is_in_the_reference() -> None:
    assert {config["model_type"] for config, _found in ROWS} == set(FAMILIES)


def test_llama() -> None:
    root = build({"model_type": "llama", **TINY, "tie_word_embeddings": True})
    assert short(visits(root)) == in_and_out(["embed_tokens", *LAYER, "norm", "lm_head"])
    assert visits(root)[-1] == Visit("exit", "lm_head", ("model.embed_tokens.weight",))
    back = in_and_out(["lm_head", "norm", *LAYER[::-1]])
    assert short(backward_visits(root)) == [*back, "+embed_tokens"]
    assert gradient_order(root)[0] == "model.norm.weight"
    assert gradient_order(root)[-1] == "model.embed_tokens.weight"


def test_a_layer_is_recomputed_up_to_its_last_saved_tensor() -> None:
    found = short(backward_visits(build({"model_type": "llama", **TINY}), checkpointing=True))
    again = ["+down_proj", *in_and_out(LAYER[:-1]), "+down_proj", "-down_proj"]
    start = found.index("+down_proj")
    assert found[start : start + len(again)] == again
    assert found[start + len(again) :] == [*in_and_out(LAYER[-2::-1]), "+embed_tokens"]


def test_a_dropout_after_the_last_module_saves_last() -> None:
    config = {"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1, "vocab_size": 10}
    names = ["ln_1", "c_attn", "c_proj", "ln_2", "c_fc", "c_proj"]
    dropped = short(backward_visits(build(config), checkpointing=True))
    assert dropped[4:-2] == in_and_out(names) + in_and_out(names[::-1])
    plain = short(backward_visits(build(config | {"resid_pdrop": 0.0}), checkpointing=True))
    assert plain[4:-2] == ["+c_proj", *in_and_out(names)[:-1], "-c_proj", *in_and_out(names[-2::-1])]


def test_biases_come_first_but_at_stage_3() -> None:
    root = build({"model_type": "qwen2", **TINY, "num_key_value_heads": 2})
    at = "model.layers.0.self_attn.v_proj"
    for stage3, expected in [(False, [f"{at}.bias", f"{at}.weight"]), (True, [f"{at}.weight", f"{at}.bias"])]:
        assert [name for name in gradient_order(root, stage3=stage3) if name.startswith(at)] == expected


def test_a_load_balancing_loss_fetches_the_router_twice() -> None:
    config = {"model_type": "mixtral", **TINY, "num_key_value_heads": 2}
    for balanced, times in [(False, 1), (True, 2)]:
        root = build(config | {"output_router_logits": balanced})
        assert short(backward_visits(root)).count("+gate") == times
        assert short(visits(root)).count("+gate") == 1


def test_attention_across_never_runs() -> None:
    root = build({"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1, "add_cross_attention": True})
    idle = {name for name, _parameter in root.named_parameters() if "cross" in name}
    assert idle
    assert not idle & set(gradient_order(root))
    assert not idle & {name for visit in visits(root) for name in visit.parameters}


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_steps_pair_and_every_gradient_belongs_to_a_module_that_ran(family: str) -> None:
    config = next(config for config, _found in ROWS if config["model_type"] == family)
    found = execution(build(config))
    entered = [module for enters, module in found.forward if enters]
    assert entered == list(range(len(found.modules)))
    assert sorted(module for enters, module in found.forward if not enters) == entered
    ran = {index for indices in found.owned for index in indices}
    assert set(found.gradients) <= ran
    assert sorted(found.gradients) == sorted(found.gradients_stage3)


def test_the_reference_is_small() -> None:
    assert execution_reference.REFERENCE.stat().st_size <= 150_000
    assert json.loads(execution_reference.REFERENCE.read_text())


@pytest.mark.parametrize("name", ["llama-3.1-405b", "deepseek-v3"])
def test_it_is_fast(name: str) -> None:
    root = build_module(*read_config(preset(name), name))
    best = math.inf
    for _attempt in range(9):
        start = time.perf_counter()
        execution(root)
        best = min(best, time.perf_counter() - start)
    assert best < 0.015
