"""Every way to name a model: preset, config.json, folder, Hugging Face cache, bare count."""

from __future__ import annotations

import json

import pytest

from zeroplan.catalog.models import model
from zeroplan.errors import SpecError, UnknownNameError, ZeroplanError

LLAMA_2_7B = 6_738_415_616  # transformers' own count of LlamaConfig()'s defaults


@pytest.fixture
def config(tmp_path):
    def write(content: dict[str, object], folder: str = "my-model") -> str:
        target = tmp_path / folder
        target.mkdir(parents=True, exist_ok=True)
        (target / "config.json").write_text(json.dumps(content))
        return str(target)

    return write


def test_a_config_with_nothing_but_its_type_has_transformers_defaults(config):
    folder = config({"model_type": "llama"})
    for name in (folder, f"{folder}/config.json"):
        found = model(name)
        assert (found.parameters, found.name) == (LLAMA_2_7B, "my-model")


def test_a_config_named_otherwise(config, tmp_path):
    folder = config({"model_type": "llama"})
    (tmp_path / "seven.json").write_text((tmp_path / folder / "config.json").read_text())
    assert model(str(tmp_path / "seven.json")).name == "seven"


def test_fields_that_decide_nothing_are_ignored(config):
    extra = {"model_type": "llama", "torch_dtype": "bfloat16", "rope_scaling": None, "_name_or_path": "x"}
    assert model(config(extra)).parameters == LLAMA_2_7B


def test_the_local_cache_serves_a_repository(config, monkeypatch, tmp_path):
    config({"model_type": "llama", "num_hidden_layers": 2}, "hub/models--some--one/snapshots/abc")
    refs = tmp_path / "hub/models--some--one/refs"
    refs.mkdir(parents=True)
    (refs / "main").write_text("abc")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    found = model("some/one")
    assert found.name == "some/one"
    assert sum(".layers.1." in tensor.name for tensor in found.tensors) == 9


def test_a_repository_nobody_has_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(SpecError, match=r"config\.json"):
        model("some/one")


@pytest.mark.parametrize(
    ("content", "fragment"),
    [
        ({"model_type": "lama"}, "llama"),
        ({"model_type": "rwkv"}, "a family that is described: bert, bloom"),
        ({}, "model_type"),
        ({"model_type": "llama", "hidden_size": "4096"}, "hidden_size"),
        ({"model_type": "llama", "hidden_size": 0}, "hidden_size"),
        ({"model_type": "llama", "num_attention_heads": 3}, "heads"),
        ({"model_type": "llama", "architectures": ["LlamaForQuestionAnswering"]}, "LlamaForCausalLM"),
    ],
    ids=str,
)
def test_what_cannot_be_counted_gives_no_number(config, content, fragment):
    with pytest.raises(ZeroplanError, match=fragment):
        model(config(content))


def test_a_preset_with_a_typo_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match=r"nearest: .*mistral-7b-v0\.1"):
        model("mistral-7b")
