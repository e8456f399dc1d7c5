"""No key of a config.json is passed over, and no size is transformers' default without a word.

Walked are the attributes of each family's own config class and what transformers writes of each preset
(tests/references/saved_configs.json), and where transformers is installed its count of parameters.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.conftest import REFERENCES
from zeroplan.architectures.defaults import SIZES, assumed
from zeroplan.architectures.keys import NO_EFFECT, NO_EFFECT_AS, unread, without_effect
from zeroplan.architectures.registry import FAMILIES, family

RECORDED: dict[str, Any] = json.loads((REFERENCES / "saved_configs.json").read_text())
CLASSES: dict[str, dict[str, Any]] = RECORDED["classes"]


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_each_attribute_of_the_class_is_read_or_known_to_change_nothing(name):
    assert unread(CLASSES[name], family(name)[0], name) == ()


@pytest.mark.parametrize("name", RECORDED["presets"])
def test_each_key_of_a_saved_config_is_read_or_known_to_change_nothing(name):
    config = RECORDED["presets"][name]
    assert unread(config, family(config["model_type"])[0], config["model_type"]) == ()


def test_other_values_and_other_keys_are_named():
    llama = family("llama")[0]
    said = {"output_hidden_states": True, "use_qk_norm": True, "sparse_attention": None, "hidden_size": 8, "rope_theta": 1.0}
    assert unread(said, llama, "llama") == ("output_hidden_states", "use_qk_norm")
    assert unread({"hidden_act": "gelu"}, family("gpt_oss")[0], "gpt_oss") == ("hidden_act",)


def test_reasons_are_given_once():
    every = [key for keys in NO_EFFECT.values() for key in keys]
    assert len(every) == len(set(every))
    assert not without_effect() & NO_EFFECT_AS.keys()
    assert all(reason.strip() for reason in NO_EFFECT)


DECIDED_BY = {
    "head_dim": "hidden_size and num_attention_heads", "add_cross_attention": "an encoder beside it: off unless asked for",
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_a_file_without_sizes_has_all_of_them_named(name):
    kind = family(name)[0]
    named = [each.split()[0] for each in assumed({"model_type": name}, kind(), name)]
    ours = {field: kind.names(field)[0] for field in kind.readable() & SIZES if kind.names(field)}
    words = {"vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads", "tie_word_embeddings"}
    assert {ours[field] for field in words} <= set(named)
    assert all(f"{each.split()[0]} " in each and f"default for {name})" in each for each in assumed({}, kind(), name))
    assert assumed(CLASSES[name], kind(), name) == ()


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_what_changes_the_count_by_a_hundredth_is_named(name):
    """transformers' own count, each attribute changed by itself in a model of 4 layers."""
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    kind = family(name)[0]
    keys = kind.keys()
    aliases = {alias: kind.names(field)[0] for field in kind.readable() for alias in kind.names(field)}
    small = {"num_hidden_layers": 4, "n_layer": 4}

    def counted(**changes: Any) -> int | None:
        base = {k: v for k, v in small.items() if k in keys}
        auto = transformers.AutoModelForMaskedLM if name == "bert" else transformers.AutoModelForCausalLM
        try:
            with torch.device("meta"):
                model = auto.from_config(transformers.CONFIG_MAPPING[name](**{**base, **changes}))
            return sum(p.numel() for p in model.parameters())
        except Exception:
            return None

    whole = counted()
    named = {each.split()[0] for each in assumed({}, kind(), name)}
    passed = []
    for key, value in CLASSES[name].items():
        if type(value) is bool:
            changed: Any = not value
        elif type(value) is int and value > 0:
            changed = 2 * value
        else:
            continue
        found = counted(**{key: changed})
        if found is not None and abs(found / whole - 1) > 0.01 and aliases.get(key, key) not in named:
            passed.append((key, found / whole - 1))
    assert [each for each in passed if each[0] not in DECIDED_BY] == []
