"""The table of keys against the installed DeepSpeed: its pydantic models, and what its parser asks for."""

from __future__ import annotations

import ast
import enum
import inspect
import os
import pathlib
import re
import sys
import types
import typing

import pytest

from tests.references.deepspeed_at import MODELS, Recorder
from zeroplan.deepspeed.keys import KEYS, OPEN_SECTIONS, STRICT_SECTIONS, children, key
from zeroplan.deepspeed.keys.optimizer import DEEPSPEED_OPTIMIZERS, OPTIMIZER_PARAMS
from zeroplan.deepspeed.keys.removed import (
    IGNORED_KEYS,
    NOT_OPTIMIZERS,
    REFUSED_PARAMS,
    REMOVED_KEYS,
    REMOVED_OPTIMIZERS,
)
from zeroplan.deepspeed.keys.scheduler import REQUIRED_SCHEDULER_PARAMS, SCHEDULER_PARAMS
from zeroplan.sources import DEEPSPEED

os.environ.setdefault("DS_ACCELERATOR", "cpu")
deepspeed = pytest.importorskip("deepspeed")
pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(deepspeed.__version__ != DEEPSPEED, reason=f"table is of {DEEPSPEED}"),
]

# Bounds that validators, not fields, put on: model_fields does not show them.
BOUNDS_IN_VALIDATORS = {
    "fp16.loss_scale",
    "zero_optimization.stage",
    "zero_optimization.zenflow.update_interval",
}
ODD_DEFAULTS = {"tensor_parallel.dtype"}  # JSON cannot hold it
ODD_KINDS = {
    "tensor_parallel.dtype",  # torch.dtype
    "tensor_parallel.tp.mpu",  # object
    "tensor_parallel.tp.tp_group",
    "zero_optimization.leaf_module",  # a validator takes null
    "zero_optimization.leaf_module.classes",  # a validator takes one text for a list of one
    "zero_optimization.leaf_module.names",
    "zero_optimization.leaf_module.name_suffixes",
}


def model_of(section):
    import importlib

    module, _, name = MODELS[section][0].partition(":")
    return getattr(importlib.import_module(f"deepspeed.{module}"), name)


FIELDS = [(section, name, field) for section in MODELS for name, field in model_of(section).model_fields.items()]


def path_of(section, name, field):
    return f"{section}.{field.alias or name}"


def kinds_of(annotation):
    """JSON kinds that a field's annotation takes."""
    plain = {
        bool: "boolean",
        int: "integer",
        float: "number",
        str: "string",
        list: "array",
        tuple: "array",
        dict: "object",
        pathlib.Path: "string",
        type(None): "null",
        object: "object",
    }
    origin, args = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        return set().union(*(kinds_of(arg) for arg in args))
    if origin is typing.Literal:
        return {plain[type(arg)] for arg in args}
    kind = origin or annotation
    if issubclass(kind, enum.Enum):
        return {"integer" if issubclass(kind, int) else "string"}
    return {plain[kind]} if kind in plain else {"object"}


def choices_of(annotation):
    if typing.get_origin(annotation) is typing.Literal:
        return set(typing.get_args(annotation))
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum) and issubclass(annotation, str):
        return {member.value for member in annotation}
    return set()


def plain(value):
    """A default as JSON holds it."""
    if hasattr(value, "model_dump"):
        return {}
    if isinstance(value, enum.Enum):
        return value.value
    return list(value) if isinstance(value, tuple) else value


@pytest.mark.parametrize(("section", "name", "field"), FIELDS, ids=lambda v: v if isinstance(v, str) else "")
def test_field_is_in_the_table(section, name, field):
    known = KEYS[path_of(section, name, field)]
    assert set(known.aliases) == ({name} if field.alias else set())
    if known.path not in ODD_DEFAULTS:
        default = plain(field.get_default(call_default_factory=True))
        assert known.default == default
        assert isinstance(known.default, bool) == isinstance(default, bool)
    if known.path not in ODD_KINDS:
        assert set(known.kind.split("|")) == kinds_of(field.annotation)
    if choices_of(field.annotation):
        assert set(known.choices) == choices_of(field.annotation)
    if known.path not in BOUNDS_IN_VALIDATORS:
        sides = ("ge", "gt", "le", "lt")
        bounds = {
            side: next((getattr(mark, side) for mark in field.metadata if hasattr(mark, side)), None) for side in sides
        }
        table = (known.minimum, known.exclusive_minimum, known.maximum, known.exclusive_maximum)
        assert dict(zip(sides, table, strict=True)) == bounds
    said = (field.json_schema_extra or {}).get("new_param", "")
    assert bool(known.deprecated) == bool(said)


@pytest.mark.parametrize("section", MODELS)
def test_table_has_no_other_fields(section):
    paths = {path_of(section, name, field) for name, field in model_of(section).model_fields.items()}
    assert {known.path for known in children(section)} == paths


def test_strict_sections_are_the_models():
    assert set(MODELS) == STRICT_SECTIONS
    for section in MODELS:
        with pytest.raises(ValueError, match="Extra inputs are not permitted"):
            model_of(section)(surely_unknown=1)


IN_MODELS = [known for known in KEYS.values() if known.section in MODELS]


@pytest.mark.parametrize("known", IN_MODELS, ids=lambda known: known.path)
def test_spellings_and_bounds_as_the_model_takes_them(known):
    """Feeds each spelling, the default, and a value beyond each bound to the real model."""
    model = model_of(known.section)
    if known.path in ODD_KINDS - {"zero_optimization.leaf_module.classes"} or known.deprecated:
        return
    around = {"stage": 2} if known.path == "zero_optimization.compute_grad_norm" else {}
    value = known.default
    if value is None:
        if "null" not in known.kind.split("|"):
            return
        model(**around, **{known.name: None})
    else:
        for spelling in (known.name, *known.aliases):
            model(**around, **{spelling: value})
    tried = {known.minimum: -1, known.maximum: 1, known.exclusive_minimum: 0, known.exclusive_maximum: 0}
    for bound, beyond in tried.items():
        if bound is not None:
            with pytest.raises(ValueError, match="validation error"):
                model(**{known.name: bound + beyond})


# Parsed by hand, so only what the parser asks for shows its keys.
PARSED = {
    "": {"train_batch_size": 8},
    "optimizer": {"type": "AdamW"},
    "scheduler": {"type": "WarmupLR"},
    "aio": {},
    "activation_checkpointing": {},
    "flops_profiler": {},
    "data_types": {},
    "torch_autocast": {"dtype": "bf16", "lower_precision_safe_modules": []},
    "timers": {},
    "expert_parallel": {"enabled": False, "expert_w3": None, "load_balance_coeff": None},
    "autotuning": {},
    "autotuning.model_info": {},
    "checkpoint": {},
    "checkpoint.parallel_write": {},
    "checkpoint.writer": {},
    "data_efficiency": {},
    "data_efficiency.data_sampling": {},
    "data_efficiency.data_sampling.curriculum_learning": {},
    "data_efficiency.data_sampling.dynamic_batching": {},
    "data_efficiency.data_routing": {},
    "data_efficiency.data_routing.random_ltd": {},
    "zero_optimization": {},
}
# Read later than the parser, or only under another setting.
READ_ELSEWHERE = {
    "data_parallel_size",
    "sequence_parallel_size",
    "allgather_size",
    "data_efficiency.data_sampling.curriculum_learning.data_cluster_path",
    "data_efficiency.data_sampling.curriculum_learning.curriculum_metrics",
    "data_efficiency.data_sampling.dynamic_batching.metrics_path",
    "data_efficiency.data_sampling.dynamic_batching.max_tokens",
}
# .get(name, {}) or a neutral value where the table says what an absent key means.
OTHER_ABSENCE = {
    "checkpoint.writer",
    "datastates_ckpt",
    "sequence_parallel_size",
    "bf16",
    "autotuning.model_info",
    "data_efficiency.data_sampling.dynamic_batching.max_batch_size",
}


@pytest.fixture(scope="module")
def asked():
    from deepspeed.runtime.config import DeepSpeedConfig

    found = {}
    tree = {section: Recorder(values, section, found) for section, values in PARSED.items()}
    for section in sorted(PARSED, key=lambda path: path.count(".")):
        if section:
            parent, _, name = section.rpartition(".")
            dict.__setitem__(tree[parent], name, tree[section])
    DeepSpeedConfig(tree[""])
    return {path: defaults for path, defaults in found.items() if path not in ("expert_parallel._", "")}


def test_parser_asks_for_nothing_the_table_lacks(asked):
    unknown = {path for path in asked if key(path) is None and path not in REMOVED_KEYS}
    assert unknown == set()


def test_table_has_nothing_the_parser_leaves(asked):
    hand_parsed = {known.path for section in PARSED if section not in MODELS for known in children(section)}
    late = "data_efficiency.data_routing.random_ltd."  # copied whole, read by the scheduler
    hand_parsed = {path for path in hand_parsed if not path.startswith(late)}
    assert hand_parsed - set(asked) - READ_ELSEWHERE == set()


def test_parser_falls_back_to_the_defaults_of_the_table(asked):
    for path, defaults in asked.items():
        known = key(path)
        if known is None or path in OTHER_ABSENCE or path in OPEN_SECTIONS:
            continue
        for default in defaults:
            if not (default in ({}, None) and known.default in ({}, None)):
                assert (path, known.default) == (path, default)


def test_removed_keys_are_the_refused_ones():
    from deepspeed.runtime import config

    top = config._REMOVED_TOP_LEVEL_CONFIG_KEYS
    zero = {f"zero_optimization.{name}" for name in config._REMOVED_ZERO_CONFIG_KEYS}
    assert set(REMOVED_KEYS) == set(top) | zero
    assert not set(REMOVED_KEYS) & set(KEYS)


def test_optimizer_types():
    import torch
    from deepspeed.runtime.config import DEEPSPEED_OPTIMIZERS as REAL

    assert set(DEEPSPEED_OPTIMIZERS) == set(REAL)
    assert set(OPTIMIZER_PARAMS) <= set(REAL)
    for name in (*REMOVED_OPTIMIZERS, *NOT_OPTIMIZERS):
        assert name.lower() not in REAL
        assert not hasattr(torch.optim, name)
    for instead in (*REMOVED_OPTIMIZERS.values(), *NOT_OPTIMIZERS.values()):
        assert instead.lower() in REAL


def test_ignored_keys_are_unknown():
    instead = {**IGNORED_KEYS, **REFUSED_PARAMS}
    assert all(key(path) is None and key(better) is not None for path, better in instead.items())


@pytest.mark.parametrize("name", SCHEDULER_PARAMS)
def test_scheduler_params_are_the_constructor_s(name):
    from deepspeed.runtime import lr_schedules

    assert set(SCHEDULER_PARAMS) == set(lr_schedules.VALID_LR_SCHEDULES)
    taken = dict(inspect.signature(getattr(lr_schedules, name).__init__).parameters)
    del taken["self"], taken["optimizer"]
    assert set(SCHEDULER_PARAMS[name]) == set(taken)
    required = {each for each, parameter in taken.items() if parameter.default is inspect.Parameter.empty}
    assert set(REQUIRED_SCHEDULER_PARAMS.get(name, ())) == required
    for each, parameter in taken.items():
        if each not in required and (name, each) != ("WarmupDecayLR", "warmup_max_lr"):
            assert KEYS[f"scheduler.params.{each}"].default == parameter.default


def constructor(path, name):
    """Arguments with a default, of a class whose module compiles an operator: so read, not imported."""
    tree = ast.parse((pathlib.Path(deepspeed.__file__).parent / path).read_text())
    cls = next(n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == name)
    init = next(n for n in cls.body if isinstance(n, ast.FunctionDef) and n.name == "__init__")
    named = [argument.arg for argument in init.args.args][-len(init.args.defaults) :]
    return {arg: ast.literal_eval(default) for arg, default in zip(named, init.args.defaults, strict=True)}


BEHIND = [
    ("adam", "ops/adam/fused_adam.py", "FusedAdam"),
    ("adam", "ops/adam/cpu_adam.py", "DeepSpeedCPUAdam"),
    ("adamw", "ops/adam/fused_adam.py", "FusedAdam"),
    ("lamb", "ops/lamb/fused_lamb.py", "FusedLamb"),
    ("lion", "ops/lion/fused_lion.py", "FusedLion"),
    ("lion", "ops/lion/cpu_lion.py", "DeepSpeedCPULion"),
    ("adagrad", "ops/adagrad/cpu_adagrad.py", "DeepSpeedCPUAdagrad"),
    ("muon", "runtime/zero/muon/original_muon.py", "SingleDeviceMuon"),
]


@pytest.mark.parametrize(("kind", "path", "name"), BEHIND)
def test_optimizer_params_are_the_constructor_s(kind, path, name):
    taken = constructor(path, name)
    for refused in ("max_grad_norm", "adamw_mode"):  # refused by the engine; given by the engine
        taken.pop(refused, None)
    assert set(taken) <= set(OPTIMIZER_PARAMS[kind])
    for each, default in taken.items():
        if kind in ("adam", "lamb") or each in ("momentum", "ns_method"):
            assert KEYS[f"optimizer.params.{each}"].default == plain(default)


def test_defaults_that_no_model_and_no_get_shows():
    from deepspeed.runtime import config

    assert KEYS["optimizer.params.adam_w_mode"].default == config.ADAM_W_MODE_DEFAULT
    assert KEYS["optimizer.legacy_fusion"].default == config.get_optimizer_legacy_fusion({})
    pipeline = {**config.get_pipeline_config({}), "use_reentrant": True}
    assert {known.name: known.default for known in children("pipeline")} == pipeline
    assert config.get_gradient_clipping({}) == KEYS["gradient_clipping"].default == 1.0


def test_expert_parallel_defaults():
    from deepspeed.module_inject.auto_ep_config import PRESET_MODELS, AutoEPConfig
    from deepspeed.moe.ep_experts import EXPERT_ACTIVATIONS

    config = AutoEPConfig()
    for known in children("expert_parallel"):
        if known.name != "expert_w3":
            assert (known.name, getattr(config, known.name)) == (known.name, known.default)
    assert set(KEYS["expert_parallel.preset_model"].choices) == set(PRESET_MODELS)
    assert set(KEYS["expert_parallel.expert_activation"].choices) == set(EXPERT_ACTIVATIONS)


def test_choices_of_dtypes_are_understood():
    from deepspeed.runtime.config import DtypeEnum

    for known in KEYS.values():
        if known.section == "data_types" or known.path == "torch_autocast.dtype":
            for choice in known.choices:
                DtypeEnum(choice)


@pytest.mark.parametrize("known", KEYS.values(), ids=lambda known: known.path)
def test_place_names_the_key(known):
    file, _, line = known.place.partition(":")
    source = (pathlib.Path(deepspeed.__file__).parent / file).read_text().splitlines()
    text = source[int(line) - 1]
    assert any(spelling in text for spelling in (known.name, *known.aliases))


def test_auto_is_what_the_trainer_fills():
    pytest.importorskip("transformers")
    module = pathlib.Path(sys.modules["transformers"].__file__).parent / "integrations" / "deepspeed.py"
    filled = set(re.findall(r'fill_(?:match|only)\(\s*"([^"]+)"', module.read_text()))
    assert {known.path for known in KEYS.values() if known.auto} == filled
