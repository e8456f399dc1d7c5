"""An existing ds_config.json as a strategy, as DeepSpeed 0.19.8 resolves it.

`"auto"` has a meaning only under Hugging Face's Trainer; it is filled here as the Trainer would
(transformers 5.23 integrations/deepspeed.py), with the options of the command line in place of TrainingArguments.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from zeroplan.deepspeed.activation_checkpointing import activation_checkpointing
from zeroplan.deepspeed.defaults import AIO_NUMBERS, AIO_SWITCHES, BF16_FIELDS, TOP_FIELDS, ZERO_FIELDS
from zeroplan.deepspeed.facts import Facts
from zeroplan.deepspeed.keys import KEYS, STRICT_SECTIONS, children, key
from zeroplan.deepspeed.keys.key import Key
from zeroplan.deepspeed.names import canonical, refuse_removed
from zeroplan.deepspeed.optimizer import optimizer
from zeroplan.deepspeed.refusals import REFUSALS, refuse
from zeroplan.deepspeed.refusals_optimizer import REFUSALS as OPTIMIZER_REFUSALS
from zeroplan.deepspeed.refusals_optimizer import check_params
from zeroplan.deepspeed.refusals_precision import REFUSALS as PRECISION_REFUSALS
from zeroplan.deepspeed.refusals_zenflow import REFUSALS as ZENFLOW_REFUSALS
from zeroplan.deepspeed.roles import passed_over
from zeroplan.deepspeed.uncounted import idle, uncounted
from zeroplan.deepspeed.unplanned import communication_dtype, refuse_unplanned, unplanned
from zeroplan.deepspeed.unplanned import notes as unplanned_notes
from zeroplan.deepspeed.values import ANY_CASE, AUTO, DTYPES, checked
from zeroplan.deepspeed.zenflow import notes as zenflow_notes
from zeroplan.deepspeed.zenflow import zenflow
from zeroplan.errors import ContradictionError, SpecError, UnknownNameError, shown
from zeroplan.specs.model import DEFAULT_LEAVES, LeafModules, Unplanned
from zeroplan.specs.strategy import Offload

__all__ = ["AUTO", "Stated", "autos", "canonical", "read_config", "trainer_fills"]

# ds_config key -> field of Strategy
BATCH_FIELDS = {
    "train_batch_size": "",
    "train_micro_batch_size_per_gpu": "micro_batch",
    "gradient_accumulation_steps": "grad_accum",
}
LARGEST_BATCH = 1_000_000_000
OFFLOAD_FIELDS = ("pin_memory", "buffer_count", "buffer_size", "max_in_cpu", "ratio", "nvme_path", "pipeline_read",
                  "pipeline_write")  # fmt: skip


class Stated(NamedTuple):
    """What a ds_config.json says: fields of `Strategy`, and what it leaves to the Trainer."""

    fields: dict[str, Any]
    auto: tuple[str, ...] = ()
    """Keys that are `"auto"`, by dotted path."""
    train_batch_size: int | None = None
    notes: tuple[str, ...] = ()
    total_alone: bool = False
    """Whether train_batch_size alone of the three batch keys is there: DeepSpeed then takes an accumulation of 1 and a
    micro-batch of the total over the ranks (runtime/config.py:_set_batch_related_parameters)."""
    unplanned: tuple[Unplanned, ...] = ()
    """What it switches on that is not planned."""


def refuse_models(config: dict[str, Any], place: str) -> None:
    """A model's config.json has none of DeepSpeed's sections, at most a switch of such a name. Raises `SpecError`."""
    stated = {name for name, value in config.items() if not isinstance(value, bool)}
    if not isinstance(config.get("model_type"), str) or "output_dir" in config:  # ms-swift 2 has a model_type, too
        return
    if not any(key.partition(".")[0] in stated for key in KEYS):
        raise SpecError(place, "a model's config.json", "a ds_config.json", f"--model {place}")


def read_config(config: dict[str, Any], place: str, *, planned: bool = True) -> Stated:
    """The strategy that a ds_config.json states. Raises `ZeroplanError` for what DeepSpeed would refuse, and, where the
    job is `planned`, for what changes what GPUs hold without being counted.
    """
    notes: list[str] = []
    refuse_models(config, place)
    refuse_removed(config, place)
    config = canonical(config, place)
    _check_keys(config, place)
    zero = _zero_section(config, place)
    fields: dict[str, Any] = {"stage": checked(zero, "zero_optimization", "stage", place, 0)}
    facts = Facts(config, place)
    _refuse_what_deepspeed_refuses(facts)
    if planned:
        refuse_unplanned(facts)
    notes += passed_over(config) + zenflow_notes(facts) + idle(facts) + unplanned_notes(facts)
    if left_out := uncounted(facts):
        fields["uncounted"] = left_out
    fields |= _stated(zero, "zero_optimization", ZERO_FIELDS, place)
    fields |= _offloads(zero, fields["stage"], place, notes)
    fields |= _leaves(zero, place)
    fields |= _precision(config, place)
    fields |= optimizer(config, place)
    fields |= _master(config, place)
    fields |= _stated(config, "", TOP_FIELDS, place)
    if (dtype := communication_dtype(facts)) is not None:
        fields["communication_dtype"] = dtype
    fields |= _accumulation(config, place)
    fields |= _aio(config, place)
    fields |= _autocast(facts) | zenflow(facts) | activation_checkpointing(facts)
    fields |= _stated(config.get("bf16") or {}, "bf16", {name: name for name in BF16_FIELDS}, place)
    batch = {key: _batch(config, key, place) for key in BATCH_FIELDS if config.get(key, AUTO) not in (AUTO, None)}
    fields |= {BATCH_FIELDS[key]: size for key, size in batch.items() if key != "train_batch_size"}
    alone = [key for key in BATCH_FIELDS if config.get(key) is not None] == list(batch) == ["train_batch_size"]
    return Stated(
        fields, tuple(autos(config)), batch.get("train_batch_size"), tuple(notes), alone, unplanned(facts)
    )


def _refuse_what_deepspeed_refuses(facts: Facts) -> None:
    refuse(facts, REFUSALS)
    refuse(facts, PRECISION_REFUSALS)
    refuse(facts, OPTIMIZER_REFUSALS)
    refuse(facts, ZENFLOW_REFUSALS)
    check_params(facts)


def _zero_section(config: dict[str, Any], place: str) -> dict[str, Any]:
    section = config.get("zero_optimization", {})
    if not isinstance(section, dict):
        raise SpecError(
            f"{place}: zero_optimization", shown(section), "an object in {}", '"zero_optimization": {"stage": 2}'
        )
    return section


def _stated(section: dict[str, Any], path: str, names: dict[str, str], place: str) -> dict[str, Any]:
    """The fields of `Strategy` that a section states, "auto" and null aside."""
    present = {key: name for key, name in names.items() if section.get(key, AUTO) != AUTO}
    values = {name: checked(section, path, key, place) for key, name in present.items()}
    return {name: value for name, value in values.items() if value is not None}


def _accumulation(config: dict[str, Any], place: str) -> dict[str, str]:
    """data_types.grad_accum_dtype and buffer_dtype in their short spelling."""
    names = {"grad_accum_dtype": "grad_accum_dtype", "buffer_dtype": "buffer_dtype"}
    stated = _stated(config.get("data_types") or {}, "data_types", names, place)
    return {name: DTYPES[dtype] for name, dtype in stated.items()}


def _autocast(facts: Facts) -> dict[str, str]:
    """torch_autocast over fp32 weights; over 16-bit ones linear layers travel in the weights' own dtype."""
    dtype = facts.stated_dtype("torch_autocast.dtype")
    on = facts.stated("torch_autocast.enabled") is True and facts.dtype == "fp32"
    return {"autocast": dtype} if dtype in ("bf16", "fp16") and on else {}


def trainer_fills(hidden: int, stage: int) -> dict[str, int]:
    """What the Trainer puts for `"auto"` bucket sizes (elements), by the key's dotted path."""
    fills = {"zero_optimization.reduce_bucket_size": hidden * hidden}
    if stage == 3:
        fills["zero_optimization.stage3_prefetch_bucket_size"] = int(0.9 * hidden * hidden)
        fills["zero_optimization.stage3_param_persistence_threshold"] = 10 * hidden
    return fills


def _check_keys(section: dict[str, Any], place: str, path: str = "") -> None:
    """DeepSpeed stops on unknown keys and values of another kind in its strict sections, on a section that is none."""
    for name, value in section.items():
        full = f"{path}.{name}" if path else name
        entry = key(full)
        if path in STRICT_SECTIONS and entry is None:
            known = [known.name for known in children(path)]
            raise UnknownNameError(f"key in {place}: {path}", name, known, "DeepSpeed refuses it")
        if entry is None:
            continue
        nullable = "null" in entry.kind.split("|")
        if entry.kind in ("object", "object|null") and not isinstance(value, dict) and not (value is None and nullable):
            raise SpecError(f"{place}: {full}", shown(value), "an object in {}", f'"{name}": {{}}, or leave it out')
        if isinstance(value, dict):
            _check_keys(value, place, entry.path)
        elif _has_one_value(entry) and (path in STRICT_SECTIONS or full in ANY_CASE) and not _is_filled(entry, value):
            checked(section, path, name, place)


def _is_filled(known: Key, value: Any) -> bool:
    return value == AUTO and bool(known.auto)


def _has_one_value(known: Key) -> bool:
    """Whether its value is a number, a text or a switch, null aside."""
    return known.kind.removesuffix("|null") in ("integer", "number", "boolean", "string")


def _batch(config: dict[str, Any], key: str, place: str) -> int:
    value = config[key]
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= LARGEST_BATCH:
        raise SpecError(f"{place}: {key}", shown(value), f"a whole number from 1 to {LARGEST_BATCH:,}", f'"{key}": 1')
    return value


def _offloads(zero: dict[str, Any], stage: int, place: str, notes: list[str]) -> dict[str, Offload]:
    offloads = {}
    for name in ("offload_optimizer", "offload_param"):
        section = zero.get(name) or {}
        path = f"zero_optimization.{name}"
        device = checked(section, path, "device", place, "none")
        if device == "none":
            continue
        if stage == 0 and name == "offload_optimizer":
            notes.append(
                "offload_optimizer at stage 0 moves nothing; DeepSpeed's CPU Adam then stops in its first step"
            )
            continue
        if stage < 3 and name == "offload_param":
            notes.append(f"{name} has no effect at stage {stage}")
            continue
        if device == "nvme" and stage < 3:
            notes.append(f"{name}: nvme at stage {stage} stays in host memory, as cpu")
            device = "cpu"
        values = {key: checked(section, path, key, place) for key in OFFLOAD_FIELDS if f"{path}.{key}" in KEYS}
        offloads[name] = Offload(device=device, **{key: value for key, value in values.items() if value is not None})
    return offloads


def _precision(config: dict[str, Any], place: str) -> dict[str, str]:
    sections = {name: config.get(name) or {} for name in ("fp16", "bf16")}
    enabled = {
        name: AUTO if part.get("enabled") == AUTO else checked(part, name, "enabled", place, False)
        for name, part in sections.items()
    }
    if enabled["fp16"] is True and enabled["bf16"] is True:
        raise ContradictionError(f"{place}: fp16 and bf16 are both enabled; DeepSpeed refuses that, keep one")
    for name, value in enabled.items():
        if value is True:
            return {"precision": name}
    return {} if AUTO in enabled.values() else {"precision": "fp32"}


def _master(config: dict[str, Any], place: str) -> dict[str, Any]:
    """16-bit master weights of the precision that is enabled, and states like them (runtime/base_optimizer.py)."""
    fields: dict[str, Any] = {}
    for name in ("fp16", "bf16"):
        part = config.get(name) or {}
        if checked(part, name, f"{name}_master_weights_and_grads", place, False):
            fields["master_dtype"] = name
    if checked(config.get("bf16") or {}, "bf16", "bf16_optimizer_states", place, False):
        fields["states_as_master"] = True
    if ((config.get("optimizer") or {}).get("params") or {}).get("fp32_optimizer_states") is False:
        fields["states_as_master"] = True
    return fields


def _aio(config: dict[str, Any], place: str) -> dict[str, int]:
    """How files are requested; DeepSpeed divides by block size and threads, and needs a place in the queue."""
    numbers = _stated(config.get("aio") or {}, "aio", AIO_NUMBERS | AIO_SWITCHES, place)
    for stated, name in AIO_NUMBERS.items():
        if numbers.get(name, 1) < 1:
            raise SpecError(f"{place}: aio.{stated}", str(numbers[name]), "a whole number from 1", f'"{stated}": 1')
    return numbers


def _leaves(zero: dict[str, Any], place: str) -> dict[str, LeafModules]:
    """Modules that stage 3 gathers whole (runtime/zero/leaf_module_config.py): what a key says replaces its default."""
    section = zero.get("leaf_module") or {}
    stated = {name: (value,) if isinstance(value, str) else tuple(map(str, value)) for name, value in section.items()}
    threshold = checked(zero, "zero_optimization", "stage3_module_granularity_threshold", place, 0)
    leaves = DEFAULT_LEAVES._replace(**stated, granularity_threshold=threshold)
    return {} if leaves == DEFAULT_LEAVES else {"leaves": leaves}


def autos(section: dict[str, Any], prefix: str = "") -> list[str]:
    """Dotted paths of the values that are "auto", those aside where DeepSpeed itself means something by it."""
    paths = []
    for name, value in section.items():
        known = KEYS.get(prefix + name)
        if value == AUTO and (known is None or known.default != AUTO):
            paths.append(prefix + name)
        elif isinstance(value, dict):
            paths += autos(value, f"{prefix}{name}.")
    return paths
