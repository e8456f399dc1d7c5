"""A file of `accelerate launch --config_file`, and the ds_config that Accelerate makes of it.

accelerate 1.15: commands/launch.py hands the fields on as environment variables (utils/launch.py:
prepare_deepspeed_cmd_env), and utils/dataclasses.py:DeepSpeedPlugin makes them a config.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from zeroplan.check.document import Document, Member, ValueNode
from zeroplan.releases import number

DEEPSPEED, KIND = "DEEPSPEED", "distributed_type"
SECTION, FILE = "deepspeed_config", "deepspeed_config_file"
NAMES = {
    "zero_optimization.stage": "zero_stage",
    "zero_optimization.offload_optimizer": "offload_optimizer_device",
    "zero_optimization.offload_optimizer.device": "offload_optimizer_device",
    "zero_optimization.offload_param": "offload_param_device",
    "zero_optimization.offload_param.device": "offload_param_device",
    "zero_optimization.stage3_gather_16bit_weights_on_model_save": "zero3_save_16bit_model",
    "gradient_accumulation_steps": "gradient_accumulation_steps",
    "gradient_clipping": "gradient_clipping",
}  # fmt: skip
"""Fields of Accelerate that stand for keys of ds_config.json."""
SHORT = {path.rpartition(".")[2]: name for path, name in NAMES.items() if not path.endswith(".device")}
KEYS = re.compile(r"\b(?:stage3_gather_16bit_weights_on_model_save|offload_(?:param|optimizer))\b")
DEFAULT_STAGE = 2
PRECISION = "mixed_precision"
HALVES = {"fp16": "fp16", "bf16": "bf16", "fp8": "bf16"}
"""Values of it, and the section that each turns on (utils/dataclasses.py:set_mixed_precision)."""
ALONE = ("standard", "nossh")
"""Launchers that are started on each machine by itself."""
OFFLOADS = ("offload_optimizer", "offload_param")
USES = "use_deepspeed"
PROCESSES = "num_processes"
AROUND = (PRECISION, USES, KIND, PROCESSES)
"""What options replace of a file beside its deepspeed_config."""
OPTIONS = frozenset({*NAMES.values(), "zero3_init_flag", PRECISION, USES})
"""Fields that `accelerate launch` takes as options too; since 1.5 these win (commands/launch.py)."""
REPLACED = re.compile(r'"(\w+)": (?:\{"device": )?("?)([\w.-]+)\2\}?')


TOP = (
    "compute_environment", "distributed_type", "mixed_precision", "use_cpu", "debug", "num_processes", "machine_rank",
    "num_machines", "gpu_ids", "main_process_ip", "main_process_port", "rdzv_backend", "same_network",
    "main_training_function", "enable_cpu_affinity", "fp8_config", SECTION, "fsdp_config", "parallelism_config",
    "megatron_lm_config", "mpirun_config", "downcast_bf16", "tpu_name", "tpu_zone", "tpu_use_cluster", "tpu_use_sudo",
    "command_file", "commands", "tpu_vm", "tpu_env", "dynamo_config", "fp16", "dynamo_backend",
)  # fmt: skip
"""Fields of commands/config/config_args.py:ClusterConfig, and two older names that it converts."""


@dataclass(frozen=True)
class AccelerateConfig:
    document: Document
    overrides: Mapping[str, Any] = field(default_factory=dict)
    """Fields that options of `accelerate launch` replace."""

    @cached_property
    def fields(self) -> dict[str, Any]:
        """The fields of deepspeed_config that are not null, or replaced."""
        section = self.document.config.get(SECTION)
        stated = section if isinstance(section, dict) else {}
        fields = {name: value for name, value in stated.items() if value is not None}
        if FILE in fields:
            return fields
        return fields | {name: value for name, value in self.overrides.items() if name not in AROUND}

    @property
    def precision(self) -> Any:
        return self.overrides.get(PRECISION, self.document.config.get(PRECISION))

    @property
    def kind(self) -> Any:
        """Its distributed_type; a bare NO is false to YAML, and goes on as that word would (run: accelerate 1.15)."""
        stated = self.overrides.get(KIND, self.document.config.get(KIND, DEEPSPEED))
        return "NO" if stated is False else stated

    @property
    def is_deepspeed(self) -> bool:
        """Whether deepspeed_config is read; so it is taken for, where distributed_type is missing."""
        return bool((self.overrides.get(USES) and KIND not in self.overrides) or self.kind == DEEPSPEED)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of all fields, null or not: beside deepspeed_config_file Accelerate looks at names alone."""
        section = self.document.config.get(SECTION)
        return tuple(section) if isinstance(section, dict) else ()

    @property
    def config_file(self) -> str | None:
        file = self.fields.get(FILE)
        return None if file is None else str(file)

    @property
    def stated_processes(self) -> int | None:
        """Ranks of all machines together, as they are stated."""
        number = self.overrides.get(PROCESSES, self.document.config.get(PROCESSES))
        return number if isinstance(number, int) and not isinstance(number, bool) and number > 0 else None

    @property
    def processes(self) -> int | None:
        """Ranks; this machine's alone where the others are not reached."""
        every = self.stated_processes
        return every // self.machines if every and not self.reaches_others else every

    @property
    def reaches_others(self) -> bool:
        """Whether several machines train together: `deepspeed` finds the others in a hostfile, which is searched for
        under the name None where there is none (utils/launch.py:prepare_deepspeed_cmd_env).
        """
        launcher, hosts = (self.fields.get(f"deepspeed_{name}") for name in ("multinode_launcher", "hostfile"))
        return self.machines == 1 or not self.is_deepspeed or launcher in ALONE or hosts is not None

    @property
    def machines(self) -> int:
        number = self.document.config.get("num_machines")
        return number if isinstance(number, int) and not isinstance(number, bool) and number > 0 else 1


def minds_init_flag(release: str | None) -> bool:
    """Whether zero3_init_flag decides if from_pretrained divides a model at stage 3; None: the newest Accelerate."""
    return release is not None and number(release) < number("1.0.0")


def takes_fp8(release: str | None, *, by_script: bool) -> bool:
    """Whether Accelerate trains in fp8 under DeepSpeed (state.py:mixed_precision): since 1.11, and since 1.4 where the
    script's own Accelerator asks for it; None: the newest.
    """
    return release is None or number(release) >= number("1.4.0" if by_script else "1.11.0")


def leaves_auto(release: str) -> bool:
    """Whether "auto" of the batch is left for from_pretrained where zero3_init_flag is off."""
    return number(release) == number("1.0.0")


def is_accelerate_config(document: Document) -> bool:
    """By keys of its own; other tools have a deepspeed_config too, beside keys that Accelerate does not know."""
    names, section = document.config.keys(), document.config.get(SECTION)
    known = sum(name in TOP for name in names)
    is_its = SECTION in names and not (isinstance(section, dict) and "zero_optimization" in section)
    return bool({KIND, "compute_environment"} & names) or (is_its and 2 * known > len(names))


def inline(accelerate: AccelerateConfig) -> Document:
    """The ds_config that the fields become, each key where its field stands."""
    document, fields = accelerate.document, accelerate.fields
    devices = {name: str(fields.get(f"{name}_device", "none")).lower() for name in OFFLOADS}
    zero: dict[str, tuple[Any, str]] = {
        "stage": (_converted(fields.get("zero_stage", DEFAULT_STAGE), int), "zero_stage"),
        **{name: (device, f"{name}_device") for name, device in devices.items()},
        "stage3_gather_16bit_weights_on_model_save": (
            str(fields.get("zero3_save_16bit_model", False)).lower() == "true", "zero3_save_16bit_model"
        ),
    }  # fmt: skip
    place = _Places(document)
    section = [place.member(name, _scalar_or_device(name, value), field) for name, (value, field) in zero.items()]
    members = [
        place.member("train_batch_size", ValueNode(0, scalar="auto"), ""),
        place.member("train_micro_batch_size_per_gpu", ValueNode(0, scalar="auto"), ""),
        place.member("gradient_accumulation_steps", ValueNode(0, scalar=_steps(fields)), "gradient_accumulation_steps"),
        place.member("zero_optimization", ValueNode(0, members=section), ""),
    ]
    clipping = _converted(fields.get("gradient_clipping", "auto"), float)
    if clipping:
        members.append(place.member("gradient_clipping", ValueNode(0, scalar=clipping), "gradient_clipping"))
    if (name := HALVES.get(str(accelerate.precision))) is not None:
        enabled = place.member("enabled", ValueNode(0, scalar=True), "")
        members.append(place.member(name, ValueNode(0, members=[enabled]), ""))
    return Document(document.name, document.text, ValueNode(0, end=len(document.text), members=members))


def _scalar_or_device(name: str, value: Any) -> ValueNode:
    """An offload section has the device in it, and a path that `accelerate launch` does not hand on."""
    if not name.startswith("offload"):
        return ValueNode(0, scalar=value)
    path = [Member("nvme_path", 0, 0, ValueNode(0, scalar="none"))] if value == "nvme" else []
    return ValueNode(0, members=[Member("device", 0, 0, ValueNode(0, scalar=value)), *path])


def _steps(fields: dict[str, Any]) -> Any:
    text = str(fields.get("gradient_accumulation_steps", "auto"))
    return _converted(text, int) if text.isdigit() else text


def _converted(value: Any, kind: Callable[[str], Any]) -> Any:
    """As the environment hands it on; what cannot be converted stays, for a rule to refuse."""
    try:
        return kind(str(value))
    except ValueError:
        return value


class _Places:
    """Where the fields stand; what none states stands at deepspeed_config, or at the first key."""

    def __init__(self, document: Document) -> None:
        self.members = document.members
        self.default = self.members.get((SECTION,)) or next(iter(self.members.values()))

    def member(self, name: str, node: ValueNode, field: str) -> Member:
        at = self.members.get((SECTION, field), self.default)
        for inner in node.members or ():
            if inner.start == inner.end == 0:
                inner.start, inner.end = at.start, at.end
        return Member(name, at.start, at.end, node)


def field_of(path: str) -> str:
    """The field that a key of the made ds_config comes from, with its section; the section for all that has none."""
    if path.endswith("16.enabled"):
        return "mixed_precision"
    return f"{SECTION}.{NAMES[path]}" if path in NAMES else SECTION


def in_fields(message: str) -> str:
    """A message about a ds_config with Accelerate's names for its keys."""
    return KEYS.sub(lambda match: SHORT[match[0]], message)


def as_yaml(write: str) -> str:
    """A replacement line for a ds_config.json in the words of deepspeed_config, as far as it has any."""
    if write.startswith('"bf16": {"enabled": true}'):
        return "mixed_precision: bf16"
    if write == '"enabled": "auto"':
        return "one precision, there and in mixed_precision"
    matches = REPLACED.findall(write)
    if not matches:
        return write
    if all(name in SHORT for name, _quote, _value in matches):
        return REPLACED.sub(lambda match: f"{SHORT[match[1]]}: {match[3]}", write)
    return f"{write} in a {FILE}"
