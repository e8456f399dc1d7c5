"""Parameters, defaults and totals against what transformers 5.23.0 was found to build (tests/references)."""

from __future__ import annotations

import ast
import contextlib
import csv
import json
import math
import random
import re
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from zeroplan.architectures.config import Config
from zeroplan.architectures.module import Module
from zeroplan.architectures.read import (
    accepted_architectures,
    build_module,
    config_class,
    known_fields,
    read_config,
)
from zeroplan.architectures.registry import FAMILIES
from zeroplan.errors import SpecError, ZeroplanError

ROOT = Path(__file__).parents[2]
REFERENCES = ROOT / "tests" / "references"
DEFAULTS = json.loads((REFERENCES / "config_defaults.json").read_text())["families"]
MODELS = json.loads((REFERENCES / "default_models.json").read_text())["models"]
ROWS = list(csv.DictReader((REFERENCES / "models.csv").read_text().splitlines()))
Shapes = list[tuple[str, tuple[int, ...]]]


def build(config: dict[str, Any]) -> Module:
    return build_module(*read_config(config, "config.json"))


def shapes(module: Module) -> Shapes:
    return [(name, parameter.shape) for name, parameter in module.named_parameters()]


@cache
def preset(name: str) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((ROOT / "presets" / "models" / f"{name}.json").read_text())["config"]
    return config


@pytest.mark.parametrize("index", range(len(MODELS)), ids=lambda i: f"{MODELS[i]['model_type']}-{i}")
def test_parameters_of_a_built_model(index: int) -> None:
    model = MODELS[index]
    built = shapes(build(model["config"]))
    assert built == [(name, tuple(shape)) for name, shape in model["parameters"]]
    assert sum(math.prod(shape) for _name, shape in built) == model["total"]
    assert model["class"] in accepted_architectures(model["model_type"])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["preset"])
def test_totals_of_a_published_model(row: dict[str, str]) -> None:
    built = shapes(build(preset(row["preset"])))
    sizes = {name: math.prod(shape) for name, shape in built}
    assert sum(sizes.values()) == int(row["total_params"])
    assert len(built) == int(row["n_tensors"])
    assert max(sizes.values()) == sizes[row["largest_tensor_name"]] == int(row["largest_tensor"])


def sections() -> dict[str, str]:
    parts = re.split(r"^## ", (REFERENCES / "families.txt").read_text(), flags=re.M)[1:]
    return {re.search(r"\((\S+),", part).group(1): part for part in parts}  # type: ignore[union-attr]


@pytest.mark.parametrize("model", sections())
def test_every_tensor_of_one_model_a_family(model: str) -> None:
    name = next(row["preset"] for row in ROWS if row["model"] == model)
    module = build(preset(name))
    found = shapes(module)
    outside, layer = True, ""
    expected: dict[str, Shapes] = {"": []}
    for line in sections()[model].splitlines()[1:]:
        if match := re.match(r"  layer\[(\d+)\]", line):
            layer, outside = match.group(1), False
            expected[layer] = []
        elif match := re.match(r"\s+(\S+)\s+(\(.*\))$", line):
            expected["" if outside else layer].append((match.group(1), ast.literal_eval(match.group(2))))
    in_layer = re.compile(r"^.*?\.(?:layers|h|layer)\.(\d+)\.")
    assert [pair for pair in found if not in_layer.match(pair[0])] == expected.pop("")
    for index, tensors in expected.items():
        mine = [(m.string[m.end() :], shape) for name, shape in found if (m := in_layer.match(name)) and m[1] == index]
        assert mine == tensors
    buffers = {name: buffer.shape for name, buffer in module.named_buffers()}
    listed = re.search(r"buffers \(not parameters\): (\[.*?\])", sections()[model])
    assert listed
    for name, shape in ast.literal_eval(listed.group(1)):
        assert buffers[name] == shape


# What transformers' config leaves null and its model fills in; and what changes nothing that we count.
FILLED = {"n_inner", "num_ln_in_parallel_attn"}
UNREAD = {
    "deepseek_v2": {"qk_head_dim"},
    "deepseek_v3": {"qk_head_dim", "num_nextn_predict_layers"},
    "gemma3_text": {"_sliding_window_pattern"},
    "gpt_bigcode": {"num_key_value_heads"},
    "gpt_neox": {"is_decoder"},
    "gpt_oss": {"hidden_act"},
}


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_defaults(family: str) -> None:
    expected = DEFAULTS[family]["defaults"]
    config = read_config({"model_type": family}, "config.json")[1]
    found = {name: getattr(config, field) for field in config.readable() for name in config.names(field)}
    assert set(expected) - set(found) == UNREAD.get(family, set())
    for name in (set(expected) & set(found)) - FILLED:
        assert found[name] == expected[name], name


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_null_where_transformers_reads_null(family: str) -> None:
    for name, what in DEFAULTS[family]["null"].items():
        config = {"model_type": family, name: None}
        if what["model"] == "builds":
            assert shapes(build(config))
        elif name in config_class(family, "test").not_null:
            with pytest.raises(SpecError):
                build(config)


def typed(config: dict[str, Any]) -> Config:
    """As a file is read: its types checked by pydantic first."""
    cls = config_class(config["model_type"], "config.json")
    read: Config = TypeAdapter(cls).validate_json(json.dumps(known_fields(config)), strict=True)
    read.validate("config.json")
    return read


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["preset"])
def test_presets_have_the_declared_types(row: dict[str, str]) -> None:
    checked, read = typed(preset(row["preset"])), read_config(preset(row["preset"]), "config.json")[1]
    assert (type(checked), vars(checked)) == (type(read), vars(read))


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_null_where_transformers_refuses_null(family: str) -> None:
    cls = config_class(family, "test")
    nullable = {name for name, what in DEFAULTS[family]["null"].items() if what["model"] == "builds"}
    nullable |= {name for name, what in DEFAULTS[family]["undeclared"].items() if what.get("null") == "builds"}
    for name in {name for field in cls.readable() for name in cls.names(field)} & set(DEFAULTS[family]["defaults"]):
        if name in nullable:
            typed({"model_type": family, name: None})
            continue
        with pytest.raises((ValidationError, SpecError)):
            typed({"model_type": family, name: None})


BAD: list[dict[str, Any]] = [
    {"model_type": "llama", "hidden_size": 100, "num_attention_heads": 3},
    {"model_type": "llama", "hidden_size": 0},
    {"model_type": "llama", "num_attention_heads": 0},
    {"model_type": "llama", "num_hidden_layers": -1},
    {"model_type": "llama", "num_hidden_layers": 10**12},
    {"model_type": "llama", "hidden_act": "prelu"},
    {"model_type": "llama", "attention_dropout": 1.5},
    {"model_type": "llama", "head_dim": 7},
    {"model_type": "llama", "layer_types": ["full_attention"]},
    {"model_type": "llama", "num_hidden_layers": 1, "layer_types": ["round"]},
    {"model_type": "llama", "rope_scaling": {"rope_type": "mrope"}},
    {"model_type": "llama", "rope_scaling": {"rope_type": ["yarn"]}},
    {"model_type": "llama", "rope_scaling": {"rope_type": "linear"}},
    {"model_type": "llama", "rope_scaling": {"rope_type": "llama3", "factor": 8.0}},
    {"model_type": "llama", "rope_scaling": {"rope_type": "longrope", "short_factor": [1], "long_factor": 2}},
    {"model_type": "llama", "per_layer_config": {"0": {"intermediate_size": 8}}},
    {"model_type": "llama", "pad_token_id": 32000},
    {"model_type": "mistral", "num_attention_heads": 6},
    {"model_type": "mixtral", "rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
    {"model_type": "mixtral", "num_experts": 0},
    {"model_type": "qwen2", "head_dim": None},
    {"model_type": "qwen2_moe", "decoder_sparse_step": 0},
    {"model_type": "falcon", "head_dim": 64},
    {"model_type": "gpt_bigcode", "add_cross_attention": True},
    {"model_type": "bert", "add_cross_attention": True},
    {"model_type": "phi3", "vocab_size": 1000},
    {"model_type": "phi3", "rope_scaling": {"type": "linear", "factor": 2.0}},
    {"model_type": "gemma3_text", "sliding_window_pattern": 0},
    {"model_type": 3},
    {},
]  # fmt: skip


@pytest.mark.parametrize("config", BAD, ids=lambda config: json.dumps(config)[:70])
def test_refused(config: dict[str, Any]) -> None:
    with pytest.raises(SpecError, match=r"^some/config\.json: found .*, expected "):
        read_config(config, "some/config.json")


def test_an_unknown_family_names_all_that_are_described() -> None:
    """None stands for another by its letters, as OPT did for T5."""
    with pytest.raises(SpecError) as refused:
        read_config({"model_type": "mistrall"}, "config.json")
    assert f"a family that is described: {', '.join(sorted(FAMILIES))}" in str(refused.value)
    assert "--params" not in str(refused.value)


NASTY: dict[str, list[Any]] = {
    "int": [-1, 0, 1, 3, 10**15],
    "float": [-1.0, 0.0, 0.5, 7.0, 1e308, float("inf"), float("nan")],
    "bool": [True, False],
    "str": ["", "silu", "\n"],
    "list[str]": [[], ["full_attention"], ["x"] * 3],
    "list[int]": [[], [-1, 0, 10**9]],
    "dict[str, Any]": [
        {}, {"rope_type": None}, {"type": 3}, {"rope_type": "yarn"}, {"rope_type": "yarn", "factor": None},
        {"rope_type": "longrope", "short_factor": [], "long_factor": []}, {"full_attention": 3},
        {"rope_type": "linear", "factor": "2"}, {"rope_theta": None}, {"partial_rotary_factor": "x"},
        {"rope_type": "default", "short_factor": 3},
        {"full_attention": {"rope_type": "dynamic", "factor": 2}},
    ],
}  # fmt: skip


def nasty(cls: type[Config], rng: random.Random) -> dict[str, Any]:
    """Values of the declared types, none of them sensible."""
    types = {
        name: kind for base in reversed(cls.__mro__) for name, kind in getattr(base, "__annotations__", {}).items()
    }
    fields = {}
    for name in rng.sample(sorted(cls.readable()), 4):
        options = [value for part in types[name].split(" | ") for value in NASTY.get(part, [None])]
        fields[name] = rng.choice(options)
    return fields


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_values_of_the_right_type_never_break_it(family: str) -> None:
    cls = config_class(family, "test")
    for seed in range(300):
        fields = nasty(cls, random.Random(f"{family} {seed}"))
        with contextlib.suppress(ZeroplanError):
            cls(**fields).validate("config.json")


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_fields_that_no_family_reads_are_ignored(family: str) -> None:
    noise = {
        "torch_dtype": "bfloat16",
        "id2label": {"0": "x"},
        "quantization_config": {},
        "_name_or_path": "a/b",
    }
    config = {"model_type": family}
    assert shapes(build(config)) == shapes(build(config | noise))
