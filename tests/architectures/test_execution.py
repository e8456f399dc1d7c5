"""The order of execution against what transformers 5.23.0 was found to run (execution_reference.json)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from tests.architectures import execution_reference
from zeroplan.architectures.execution import execution
from zeroplan.architectures.leaves import leaf_paths
from zeroplan.architectures.model import model_of
from zeroplan.architectures.module import Module
from zeroplan.architectures.read import build_module, read_config
from zeroplan.architectures.registry import FAMILIES
from zeroplan.specs.execution import Execution, ModuleHook
from zeroplan.specs.model import LeafModules

ROWS = execution_reference.read()
TINY = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 6, "vocab_size": 10, "num_hidden_layers": 1}
GPT2 = {"model_type": "gpt2", "n_embd": 8, "n_head": 2, "n_layer": 1, "vocab_size": 10}
NO_LEAVES = LeafModules(classes=())


def build(config: dict[str, Any]) -> Module:
    return build_module(*read_config(config, "config.json"))


def order(config: dict[str, Any], leaves: LeafModules = NO_LEAVES, *, eager: bool = False) -> Execution:
    root = build(config)
    return without_layers(execution(root, leaf_paths(root, config["model_type"], leaves), eager=eager))


def without_layers(found: Execution) -> Execution:
    """Which layers are alike is told by the tree, not by a run."""
    return found._replace(layers=())


def short(found: Execution, hooks: Sequence[ModuleHook]) -> list[str]:
    """+ entered, - left, by the last part of the path; the root is `root`."""
    names = [path.split(".")[-1] or "root" for path in found.modules]
    return [f"{'+' if hook.enters else '-'}{names[hook.module]}" for hook in hooks]


def called(text: str) -> list[str]:
    """`a b( c )`: a entered and left, b entered, c entered and left, b left."""
    free_ones: list[str] = []
    found = []
    for word in text.split():
        if word == ")":
            found.append(f"-{free_ones.pop()}")
        elif word.endswith("("):
            free_ones.append(word[:-1])
            found.append(f"+{word[:-1]}")
        else:
            found += [f"+{word}", f"-{word}"]
    return found


def around(module: str, hooks: list[str]) -> list[str]:
    """From where a module is first entered to where it is last left."""
    last = len(hooks) - 1 - hooks[::-1].index(f"-{module}")
    return hooks[hooks.index(f"+{module}") : last + 1]


def names_of(root: Module, tensors: Sequence[int]) -> list[str]:
    names = [name for name, _parameter in root.named_parameters()]
    return [names[index] for index in tensors]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.config['model_type']}-{len(row.execution.leaves)}")
def test_as_transformers_ran(row: Any) -> None:
    assert order(row.config, row.leaves) == row.execution


def test_every_family_is_in_the_reference() -> None:
    assert {row.config["model_type"] for row in ROWS} == set(FAMILIES)


LLAMA = """
root( model( embed_tokens rotary_emb
  0( input_layernorm self_attn( q_proj k_proj v_proj o_proj )
     post_attention_layernorm mlp( gate_proj act_fn up_proj down_proj ) )
  norm ) lm_head )
"""
LLAMA_BACKWARD = """
+root +lm_head -lm_head +model +norm -norm
+0 +mlp +down_proj -down_proj +up_proj -up_proj +act_fn -act_fn +gate_proj -gate_proj -mlp
+post_attention_layernorm -post_attention_layernorm
+self_attn +o_proj -o_proj +v_proj -v_proj +k_proj -k_proj +q_proj -q_proj
+input_layernorm -input_layernorm -0 +embed_tokens
"""


def test_llama() -> None:
    """The root and the model get integers, the attention its input under a name: no hook tells their end."""
    config = {"model_type": "llama", **TINY, "tie_word_embeddings": True}
    root, found = build(config), order(config)
    assert short(found, found.forward) == called(LLAMA)
    assert short(found, found.backward) == LLAMA_BACKWARD.split()
    head = found.forward[-2]
    assert (found.modules[head.module], names_of(root, head.tensors)) == ("lm_head", ["model.embed_tokens.weight"])
    assert not any(hook.backward for hook in found.forward)
    assert all(hook.backward for hook in found.backward)
    gradients = names_of(root, found.gradients)
    assert (gradients[0], gradients[-1]) == ("model.norm.weight", "model.embed_tokens.weight")


def test_a_module_without_parameters_is_visited() -> None:
    found = order({"model_type": "llama", **TINY})
    bare = [hook for hook in found.forward if hook.enters and not hook.tensors]
    assert [found.modules[hook.module] for hook in bare] == [
        "", "model", "model.rotary_emb", "model.layers.0", "model.layers.0.self_attn", "model.layers.0.mlp",
        "model.layers.0.mlp.act_fn",
    ]  # fmt: skip


def test_a_layer_is_recomputed_up_to_its_last_saved_tensor() -> None:
    """Its own hooks stand outside; what runs again is forward, down to the product that saves last."""
    found = order({"model_type": "llama", **TINY})
    hooks = short(found, found.recomputing)
    again = called("input_layernorm self_attn( q_proj k_proj v_proj o_proj ) post_attention_layernorm")
    again += ["+mlp", *called("gate_proj act_fn up_proj"), "+down_proj"]
    start = hooks.index("+down_proj") + 1
    assert hooks[:start] == LLAMA_BACKWARD.split()[:start]
    assert hooks[start : start + len(again)] == again
    assert hooks[start + len(again) :] == LLAMA_BACKWARD.split()[start:]
    assert [hook.backward for hook in found.recomputing] == [
        not start <= index < start + len(again) for index in range(len(hooks))
    ]


def test_a_dropout_after_the_last_module_saves_last() -> None:
    mlp = ["+mlp", *called("c_fc act c_proj"), "+dropout"]
    for probability, ending in [(0.1, mlp), (0.0, mlp[:-2])]:
        found = order(GPT2 | {"resid_pdrop": probability})
        again = [hook for hook in found.recomputing if not hook.backward]
        assert short(found, again)[-len(ending) :] == ending


def test_a_module_called_twice_is_left_once_in_backward() -> None:
    """Each call sets anew the number of gradients that are waited for."""
    found = order({"model_type": "phi", **TINY, "resid_pdrop": 0.1})
    assert short(found, found.forward).count("+resid_dropout") == 2
    for hooks in (found.backward, [hook for hook in found.recomputing if hook.backward]):
        ours = [word for word in short(found, hooks) if word.endswith("resid_dropout")]
        assert ours == ["+resid_dropout", "-resid_dropout", "+resid_dropout"]


def test_biases_come_first_but_at_stage_3() -> None:
    config = {"model_type": "qwen2", **TINY, "num_key_value_heads": 2}
    root, found = build(config), order(config)
    at = "model.layers.0.self_attn.v_proj"
    for gradients, expected in [
        (found.gradients, [f"{at}.bias", f"{at}.weight"]),
        (found.gradients_stage_3, [f"{at}.weight", f"{at}.bias"]),
    ]:
        assert [name for name in names_of(root, gradients) if name.startswith(at)] == expected


@pytest.mark.parametrize("layers", [1, 3])
def test_a_load_balancing_loss_fetches_the_router_twice_and_the_model_once_for_each(layers: int) -> None:
    config = {"model_type": "mixtral", **TINY, "num_hidden_layers": layers, "num_key_value_heads": 2}
    for balanced, router, model in [(False, 1, 1), (True, 2, 1 + layers)]:
        found = order(config | {"output_router_logits": balanced})
        backward = short(found, found.backward)
        assert (backward.count("+gate"), backward.count("+model")) == (router * layers, model)
        assert short(found, found.forward).count("+gate") == layers


def test_attention_across_never_runs() -> None:
    config = GPT2 | {"add_cross_attention": True}
    root, found = build(config), order(config)
    names = [name for name, _parameter in root.named_parameters()]
    idle = {name for name in names if "cross" in name}
    assert idle
    assert not idle & set(names_of(root, found.gradients))
    assert not any("cross" in path for path in found.modules)


@pytest.mark.parametrize(
    "config",
    [
        GPT2 | {"reorder_and_upcast_attn": True},
        {"model_type": "falcon", **TINY, "alibi": True},
    ],
    ids=lambda config: str(config["model_type"]),
)
def test_eager_attention_may_call_its_dropout(config: dict[str, Any]) -> None:
    for eager, times in [(False, 0), (True, 1)]:
        found = order(config, eager=eager)
        assert sum(path.endswith(("attn_dropout", "attention_dropout")) for path in found.modules) == times


def test_leaves_are_fetched_as_a_whole() -> None:
    config = {"model_type": "mixtral", **TINY, "num_key_value_heads": 2}
    root, found = build(config), order(config, LeafModules())
    assert around("mlp", short(found, found.forward)) == ["+mlp", "-mlp"]
    assert around("mlp", short(found, found.backward)) == ["+mlp", "-mlp"]
    (leaf,) = found.leaves
    assert found.modules[leaf] == "model.layers.0.mlp"
    (tensors,) = {hook.tensors for hook in found.forward if hook.module == leaf}
    assert names_of(root, tensors) == [
        f"model.layers.0.mlp.{name}" for name in ("gate.weight", "experts.gate_up_proj", "experts.down_proj")
    ]
    assert found.subtrees[leaf] == tensors
    assert found.subtrees[0] == tuple(range(len(names_of(root, found.gradients))))
    assert order(config).gradients == found.gradients


def test_a_layer_as_a_leaf_is_recomputed_unseen() -> None:
    layers = LeafModules(classes=("transformers.models.llama.modeling_llama.LlamaDecoderLayer",))
    found = order({"model_type": "llama", **TINY}, layers)
    assert short(found, found.backward) == short(found, found.recomputing)
    around = ["+root", "+lm_head", "-lm_head", "+model", "+norm", "-norm", "+0", "-0", "+embed_tokens"]
    assert short(found, found.backward) == around


def test_all_tensors_that_a_leaf_returns_get_a_gradient() -> None:
    """BLOOM's layer returns the weights of its attention too; Llama's attention does when it is eager."""
    bloom = {"model_type": "bloom", "hidden_size": 8, "n_head": 2, "n_layer": 1, "vocab_size": 10}
    for leaves, times in [(NO_LEAVES, 1), (LeafModules(classes=("BloomBlock",)), 2)]:
        found = order(bloom, leaves)
        assert short(found, found.backward).count("+0") == times
    for eager, times in [(False, 1), (True, 2)]:
        found = order({"model_type": "llama", **TINY}, LeafModules(classes=("LlamaAttention",)), eager=eager)
        assert short(found, found.backward).count("+self_attn") == times


def test_a_model_takes_deepspeeds_default_leaves() -> None:
    for family, leaves in [("mixtral", 2), ("llama", 0)]:
        config = {"model_type": family, **TINY, "num_hidden_layers": 2, "num_key_value_heads": 2}
        model = model_of(*read_config(config, "config.json"), name=family, source="test")
        assert len(model.profile.execution().leaves) == leaves
        assert model.profile.execution() is model.profile.execution(LeafModules())
        assert without_layers(model.profile.execution(NO_LEAVES)) == order(config)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_steps_pair_and_every_gradient_belongs_to_a_module_that_ran(family: str) -> None:
    found = order(next(row.config for row in ROWS if row.config["model_type"] == family))
    entered = [hook.module for hook in found.forward if hook.enters]
    assert list(dict.fromkeys(entered)) == list(range(len(found.modules)))
    assert sorted(hook.module for hook in found.forward if not hook.enters) == sorted(entered)
    ran = {index for hook in found.forward for index in hook.tensors}
    assert set(found.gradients) <= ran
    assert sorted(found.gradients) == sorted(found.gradients_stage_3)


def test_the_reference_is_small() -> None:
    assert execution_reference.REFERENCE.stat().st_size <= 200_000
    assert json.loads(execution_reference.REFERENCE.read_text())


def test_layers_have_a_place_and_a_first_tensor() -> None:
    """GPT-2's have 12 tensors each, after two embeddings."""
    gpt2 = model_of(*read_config({**GPT2, "n_layer": 3}, ""), name="", source="").profile.execution()
    assert [(layer.tensor, layer.tensors) for layer in gpt2.layers] == [(2, 12), (14, 12), (26, 12)]
    assert [gpt2.modules[layer.module] for layer in gpt2.layers] == ["transformer.h.0", "transformer.h.1", "transformer.h.2"]
