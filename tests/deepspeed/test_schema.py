"""The JSON Schema of ds_config.json: a schema itself, and its verdicts beside DeepSpeed's own."""

from __future__ import annotations

import json
from functools import cache

import jsonschema
import pytest

from tests.check.test_corpus import refused
from tests.conftest import REFERENCES
from tests.corpus import each_file, needs_corpus
from zeroplan.check.json_reader import read_json
from zeroplan.deepspeed.keys import KEYS
from zeroplan.deepspeed.schema import schema

BEYOND = {
    "cpu_offload false + offload_optimizer": "two spellings beside each other",
    "cpu_offload true + offload_optimizer": "two spellings beside each other",
    "both gather keys": "two spellings beside each other",
    "both prefixed and unprefixed": "two spellings beside each other",
    "offload_optimizer ratio 0.5 z2": "refused at this stage",
    "bf16_master_weights z0": "refused at this stage",
    "legacy_stage1": "false is taken",
    "gradient_allreduce_op sum z3": "refused at this stage",
    "prescale_gradients z2": "refused at this stage",
    "prescale_gradients z3": "refused at this stage",
    "gradient_predivide_factor z3": "refused at this stage",
    "offload_optimizer nvme no path z3": "needed beside another value",
    "offload_param nvme no path z3": "needed beside another value",
    "bf16_master_weights z2 no offload no bf16 states": "needed beside another value",
    "qgz z3 reduce_scatter false": "needed beside another value",
    "zenflow z2 no offload": "needed beside another value",
    "only gas": "a batch size may come from the Trainer or Accelerate",
    "no optimizer z2": "an optimizer may come from the script",
    "fp16 min_loss_scale 0": "taken with a static loss scale",
    "fp16 loss_scale_window 0": "taken with a static loss scale",
    "Lamb static loss scale": "taken by other optimizers",
    "param_dtype conflict": "taken beside another precision",
    "auto train_batch_size": "taken where the Trainer fills it",
    "scheduler auto raw": "taken where the Trainer fills it",
    "batch triple mismatch": "arithmetic",
    "tensor_parallel autotp 2 on 1 gpu": "depends on the number of GPUs",
    "qwz z3": "depends on the accelerator",
    "scheduler WarmupDecayLR without total": "parameters by type",
    "scheduler WarmupCosineLR with warmup_max_lr": "parameters by type",
    "scheduler no params": "needed beside a type",
    "scheduler WarmupLR float warmup": "JSON Schema takes 10.0 for a whole number",
}
"""One-change configs that DeepSpeed refuses and the schema takes."""
STRICTER = {
    "stage string \"2\"": "a number in quotes, which pydantic reads",
    "scheduler warmup_type typo": "a misspelled word, in whose place DeepSpeed takes the default",
    "steps_per_print inf": "Infinity is no JSON",
}
"""And the other way round."""


@cache
def validator():
    return jsonschema.Draft7Validator(schema())


def errors(config):
    return [f"{'.'.join(map(str, error.absolute_path))}: {error.message}" for error in validator().iter_errors(config)]


def one_change():
    return json.loads((REFERENCES / "check" / "one_change.json").read_text(encoding="utf-8"))["rows"]


def test_it_is_a_schema():
    jsonschema.Draft7Validator.check_schema(schema())


@pytest.mark.parametrize("row", one_change(), ids=lambda row: row["case"])
def test_one_change(row):
    found = errors(row["config"])
    if row["said"]:
        assert bool(found) != (row["case"] in BEYOND)
    else:
        assert bool(found) == (row["case"] in STRICTER), found


@needs_corpus
@each_file
def test_what_deepspeed_accepts_is_valid(path):
    config = read_json(path.name, path.read_text(encoding="utf-8")).config
    if not (refused(path, "raw") and refused(path, "hf")):
        assert errors(config) == []


def _at(path):
    """The place of a key in the schema."""
    found = validator().schema
    for part in path.split("."):
        found = next((one for one in (found, *found.get("anyOf", ())) if "properties" in one), found)["properties"][part]
    return found


def test_each_key_is_there_with_its_default():
    for path, known in KEYS.items():
        found = _at(path)
        assert found["description"].startswith(known.meaning)
        if known.default not in (None, {}):
            assert found["default"] == known.default
        takes_none = known.default is None or not known.settable
        assert takes_none or list(jsonschema.Draft7Validator(found).iter_errors(known.default)) == []


@pytest.mark.parametrize(
    ("config", "taken"),
    [
        ({"zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"}}, True),  # the Trainer fills it
        ({"zero_optimization": {"sub_group_size": "auto"}}, True),  # DeepSpeed drops it
        ({"wall_clock_breakdown": "auto"}, False),  # a text that counts as true
        ({"bfloat16": {"enabled": True}, "zero_optimization": {"max_live_parameters": 5e8}}, True),
        ({"optimizer": {"type": "adamw"}, "communication_data_type": "BF16"}, True),
        ({"optimizer": {"type": "sgd"}}, False),  # torch's name is SGD
        ({"zero_optimization": {"sub_group_size": -1}}, False),
        ({"zero_optimization": {"leaf_module": {"classes": "Block"}}}, True),
        ({"zero_optimization": {"zenflow": {"update_interval": "auto"}}}, True),
        ({"zero_optimization": {"zenflow": {"update_interval": "often"}}}, False),
        ({"zero_optimization": True, "bf16": None}, True),  # runtime/precision_config.py:33
        ({"optimizer": None}, False),  # runtime/config.py asks it for its type
        ({"gradient_cliping": 1.0, "_note": "", "//": ""}, True),  # passed over
    ],
)  # fmt: skip
def test_values(config, taken):
    assert (errors(config) == []) is taken


def test_what_is_passed_over_is_a_warning_in_an_editor():
    found = schema()
    assert found["additionalProperties"]["deprecationMessage"]
    assert found["properties"]["aio"]["additionalProperties"]["deprecationMessage"]
    zero = _at("zero_optimization")
    assert zero["additionalProperties"] is False
    assert zero["properties"]["cpu_offload"]["deprecated"] is True


def test_command(zeroplan, tmp_path):
    file = tmp_path / "ds_config.schema.json"
    assert zeroplan("schema", "--output", str(file)) == (0, "", "")
    assert json.loads(file.read_text(encoding="utf-8")) == schema()
    ran = zeroplan("schema", "-o", str(file))
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    assert "--force" in ran.err
    assert zeroplan("schema", "-o", str(file), "--force").code == 0
    assert zeroplan("schema").json == schema()
