"""One released DeepSpeed from its unpacked sdist, asked what its config reader knows and says.

    python tests/references/deepspeed_at.py FOLDER facts            the keys of its models and those that it reads by hand
    python tests/references/deepspeed_at.py FOLDER says < CONFIGS   one config a line; what DeepSpeedConfig says of each

FOLDER is deepspeed-VERSION. An sdist that is not installed lacks what its build writes, and the oldest want functions that
torch and numpy have dropped since: both are given stand-ins, none of which the reading of a config calls. Nothing of the
project is imported, since a process has one DeepSpeed.
"""

from __future__ import annotations

import contextlib
import enum
import importlib
import importlib.machinery
import json
import logging
import os
import pathlib
import sys
import types
import typing
import warnings

MODELS = {
    "fp16": ("runtime.precision_config:DeepSpeedFP16Config",),
    "bf16": ("runtime.precision_config:DeepSpeedBF16Config",),
    "zero_optimization": ("runtime.zero.config:DeepSpeedZeroConfig",),
    "zero_optimization.offload_param": ("runtime.zero.offload_config:DeepSpeedZeroOffloadParamConfig",),
    "zero_optimization.offload_optimizer": ("runtime.zero.offload_config:DeepSpeedZeroOffloadOptimizerConfig",),
    "zero_optimization.zenflow": ("runtime.zenflow.zenflow_config:ZenFlowConfig",),
    "zero_optimization.leaf_module": ("runtime.zero.leaf_module_config:DeepSpeedZeroLeafModuleConfig",),
    "tensorboard": ("monitor.config:TensorBoardConfig",),
    "wandb": ("monitor.config:WandbConfig",),
    "csv_monitor": ("monitor.config:CSVConfig",),
    "comet": ("monitor.config:CometConfig",),
    "comms_logger": ("comm.config:CommsLoggerConfig",),
    "timers.throughput": ("utils.config:DeepSpeedThroughputTimerConfig",),
    "tensor_parallel": ("runtime.tensor_parallel.config:TPTrainingConfig",),
    "tensor_parallel.tp": ("runtime.tensor_parallel.config:TPConfig",),
    "hybrid_engine": ("runtime.config:HybridEngineConfig",),
    "compile": ("compile.config:CompileConfig", "runtime.compiler:CompileConfig"),
    "weight_quantization": ("inference.config:WeightQuantConfig",),
}
"""The model of each section that has one, by its places through the versions."""

BY_HAND: dict[str, dict[str, object]] = {
    "": {"train_batch_size": 8},
    "optimizer": {"type": "AdamW"},
    "scheduler": {"type": "WarmupLR"},
    "torch_autocast": {"dtype": "bf16", "lower_precision_safe_modules": []},
    "expert_parallel": {"enabled": False, "expert_w3": None, "load_balance_coeff": None},
    **{section: {} for section in (
        "fp16", "bf16", "zero_optimization", "aio", "activation_checkpointing", "flops_profiler", "data_types", "timers",
        "autotuning", "autotuning.model_info", "checkpoint", "checkpoint.parallel_write", "checkpoint.writer",
        "data_efficiency", "data_efficiency.data_sampling", "data_efficiency.data_sampling.curriculum_learning",
        "data_efficiency.data_sampling.dynamic_batching", "data_efficiency.data_routing",
        "data_efficiency.data_routing.random_ltd",
    )},
    "amp": {"enabled": False}, "elasticity": {"enabled": False}, "eigenvalue": {"enabled": False},
    "curriculum_learning": {"enabled": False}, "progressive_layer_drop": {"enabled": False}, "sparse_attention": {},
    "compression_training": {}, "nebula": {}, "quantize_training": {"enabled": False},
}  # fmt: skip
"""Sections that are read key by key, with what has to stand in them for a reader to come to its end."""


class _Absent(dict):
    def __missing__(self, name):
        return False


def prepare(folder: str) -> None:
    """Stand-ins for what the build of a wheel writes, and for what newer packages lack."""
    version = pathlib.Path(folder).resolve().name.removeprefix("deepspeed-")
    os.environ["DS_ACCELERATOR"] = "cpu"
    sys.path.insert(0, str(pathlib.Path(folder).resolve()))
    built = types.ModuleType("deepspeed.git_version_info_installed")
    torch_info = {"version": "0.0", "bf16_support": False, **dict.fromkeys(("cuda_version", "nccl_version", "hip_version"), "0.0")}
    vars(built).update(version=version, git_hash="", git_branch="", accelerator_name="cpu", torch_info=torch_info,
                       installed_ops=_Absent(), compatible_ops=_Absent())  # fmt: skip
    sys.modules[built.__name__] = built
    if version.startswith("0.14."):
        import numpy
        import torch.distributed.elastic.agent.server.api as agent

        for name in ("intel_extension_for_pytorch", "oneccl_bindings_for_pytorch"):
            missing = types.ModuleType(name)
            missing.__spec__ = importlib.machinery.ModuleSpec(name, None)
            sys.modules[name] = missing
        agent.log, agent._get_socket_with_port, numpy.BUFSIZE = logging.getLogger("agent"), None, 8192
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)


class Recorder(dict):
    """A section that notes what is asked of it, with the value that stands in for an absent one."""

    def __init__(self, values, section, asked):
        super().__init__(values)
        self.section, self.asked = section, asked

    def note(self, name, *default):
        self.asked.setdefault(f"{self.section}.{name}" if self.section else name, []).extend(default)

    def get(self, name, default=None):
        self.note(name, default)
        return super().get(name, default)

    def __contains__(self, name):
        self.note(name)
        return super().__contains__(name)

    def __getitem__(self, name):
        self.note(name)
        return super().__getitem__(name)

    def keys(self):
        recorder = self

        class View:
            def __contains__(self, name):
                return name in recorder

            def __iter__(self):
                return iter(dict.keys(recorder))

        return View()

    def __copy__(self):
        return Recorder(self, self.section, self.asked)


def read_by_hand(config_class, removed, enabled) -> dict[str, list[object]]:
    """The keys that the reader asks its sections for, and its defaults, where one of them is `enabled`."""
    sections = {name: values for name, values in BY_HAND.items() if name not in removed}
    sections[enabled] = {"enabled": True, **({"initial_scale_power": 16} if enabled == "fp16" else {})}
    while True:
        asked: dict[str, list[object]] = {}
        tree = {name: Recorder(values, name, asked) for name, values in sections.items()}
        for name in sorted(filter(None, sections), key=lambda path: path.count(".")):
            parent, _, last = name.rpartition(".")
            dict.__setitem__(tree[parent], last, tree[name])
        try:
            config_class(tree[""])
            return {path: [plain(default) for default in defaults] for path, defaults in asked.items()}
        except Exception as error:
            wrong = next((name for name in sections if name and name in str(error)), None)
            if wrong is None:
                raise
            del sections[wrong]


def plain(value):
    """A value as JSON holds it."""
    if hasattr(value, "model_dump") or hasattr(value, "__fields__"):
        return {}
    if isinstance(value, enum.Enum):
        return value.value
    try:
        json.dumps(value)
    except TypeError:
        return str(value)
    return value


def kinds_of(annotation) -> list[str]:
    """JSON kinds that a field takes."""
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array", tuple: "array", dict: "object",
             pathlib.Path: "string", type(None): "null", object: "object"}  # fmt: skip
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (typing.Union, types.UnionType):
        several = [kind for one in arguments for kind in kinds_of(one)]
    elif origin is typing.Literal:
        several = [names[type(one)] for one in arguments]
    else:
        kind = origin or annotation
        if issubclass(kind, enum.Enum):
            several = ["integer" if issubclass(kind, int) else "string"]
        else:
            several = [next((name for known, name in names.items() if issubclass(kind, known) and known is not object), "object")]
    return sorted(set(several), key=lambda kind: (kind == "null", several.index(kind)))


def choices_of(annotation) -> list[object]:
    inner = [one for one in typing.get_args(annotation) if one is not type(None)]
    if typing.get_origin(annotation) is typing.Literal:
        return inner
    if len(inner) == 1:
        return choices_of(inner[0])
    if isinstance(annotation, type) and issubclass(annotation, enum.Enum) and issubclass(annotation, str):
        return [member.value for member in annotation]
    return []


def fields_of(model) -> dict[str, dict[str, object]]:
    """The fields of a model of either pydantic, as `zeroplan.deepspeed.keys.key.Key` has them."""
    fields = {}
    if hasattr(model, "model_fields"):
        for name, field in model.model_fields.items():
            bounds = {side: value for mark in field.metadata for side in ("ge", "gt", "le", "lt")
                      if (value := getattr(mark, side, None)) is not None}  # fmt: skip
            fields[field.alias or name] = _field(
                name, field.alias, kinds_of(field.annotation), choices_of(field.annotation), bounds,
                plain(field.get_default(call_default_factory=True)), field.json_schema_extra or {},
            )  # fmt: skip
    else:
        for name, field in model.__fields__.items():
            bounds = {side: value for side in ("ge", "gt", "le", "lt") if (value := getattr(field.field_info, side)) is not None}
            kinds = [*kinds_of(field.outer_type_), *(["null"] if field.allow_none else [])]
            alias = field.alias if field.alias != name else None
            fields[field.alias] = _field(name, alias, list(dict.fromkeys(kinds)), choices_of(field.outer_type_), bounds,
                                         plain(field.get_default()), field.field_info.extra)  # fmt: skip
    return fields


def _field(name, alias, kinds, choices, bounds, default, extra):
    return {
        "kind": "|".join(kinds), "default": default, "choices": choices, "aliases": [name] if alias else [],
        "minimum": bounds.get("ge"), "exclusive_minimum": bounds.get("gt"), "maximum": bounds.get("le"),
        "exclusive_maximum": bounds.get("lt"), "deprecated": extra.get("new_param", ""),
    }  # fmt: skip


def facts() -> dict[str, object]:
    from deepspeed.runtime import config
    from deepspeed.runtime.config_utils import DeepSpeedConfigModel

    models, keeps_auto = {}, []
    for section, places in MODELS.items():
        for place in places:
            module, _, name = place.partition(":")
            try:
                model = getattr(importlib.import_module(f"deepspeed.{module}"), name)
            except (ImportError, AttributeError):
                continue
            if not hasattr(model, "parse_obj"):
                continue
            models[section] = fields_of(model)
            if not issubclass(model, DeepSpeedConfigModel):
                keeps_auto.append(section)
            break
    removed = [*getattr(config, "_REMOVED_TOP_LEVEL_CONFIG_KEYS", ()),
               *(f"zero_optimization.{name}" for name in getattr(config, "_REMOVED_ZERO_CONFIG_KEYS", ()))]  # fmt: skip
    by_hand: dict[str, list[object]] = {}
    for enabled in ("fp16", "bf16"):
        for path, defaults in read_by_hand(config.DeepSpeedConfig, removed, enabled).items():
            by_hand[path] = [*by_hand.get(path, ()), *defaults]
    return {"models": models, "keeps_auto": keeps_auto, "by_hand": by_hand, "removed": removed}


def says(lines, out) -> None:
    from deepspeed.runtime.config import DeepSpeedConfig

    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        for line in lines:
            answer = ""
            with contextlib.redirect_stdout(nowhere), contextlib.redirect_stderr(nowhere):
                try:
                    DeepSpeedConfig(json.loads(line))
                except Exception as error:
                    answer = f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
            out.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    prepare(sys.argv[1])
    answers, sys.stdout = sys.stdout, sys.stderr
    import deepspeed

    assert pathlib.Path(deepspeed.__file__).is_relative_to(pathlib.Path(sys.argv[1]).resolve())
    if sys.argv[2] == "facts":
        json.dump(facts(), answers)
    else:
        says(sys.stdin, answers)
