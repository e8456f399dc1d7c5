"""adapter_config.json as peft writes it: what of it changes a number, and what is not planned."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from zeroplan.catalog.files import place_of, read_object
from zeroplan.catalog.other_files import ADAPTER, ADAPTER_FILE
from zeroplan.errors import SpecError, shown
from zeroplan.specs.adapter import ALL_LINEAR, BIASES, CAUSAL_LM, LARGEST_RANK, SEQ_CLS, TOKEN_CLS, Adapter

EXPECTED = "peft's adapter_config.json"
NO_EFFECT = frozenset({
    "peft_type", "peft_version", "base_model_name_or_path", "auto_mapping", "revision", "inference_mode",
    "init_lora_weights", "fan_in_fan_out", "loftq_config", "megatron_core", "qalora_group_size",
    "corda_config", "eva_config", "lora_ga_config", "runtime_config",
})  # fmt: skip
"""Keys that change no number of a step: names, versions, and how the matrices begin."""


def read_adapter_file(path: str) -> Adapter:
    """The adapter of an adapter_config.json, or of the folder that holds it. Raises `SpecError`."""
    content, place = _content(path)
    if ADAPTER not in content:
        raise SpecError(place, f"no {ADAPTER}", EXPECTED, f'{{"{ADAPTER}": "LORA", "r": 16, ...}}')
    return read_adapter(content, place)


def base_of(path: str) -> str | None:
    """The model that an adapter_config.json was trained on, as it names it; None where it names none."""
    content, _place = _content(path)
    base = content.get("base_model_name_or_path")
    return base if isinstance(base, str) and base else None


def _content(path: str) -> tuple[dict[str, Any], str]:
    file = Path(path, ADAPTER_FILE) if Path(path).is_dir() else Path(path)
    return read_object(file, EXPECTED), place_of(file)


def read_adapter(content: Mapping[str, Any], place: str) -> Adapter:
    """The adapter of a LoraConfig's fields; what is left out is as in peft. Raises `SpecError`."""
    kind = content.get("peft_type")
    if kind is not None and str(kind).rpartition(".")[2] != "LORA":
        raise SpecError(f"{place}: peft_type", shown(kind), "LORA: other methods of peft are not planned")
    for key, value in content.items():
        if value in (None, False, [], {}) or key in NO_EFFECT or key in Adapter._fields:
            continue
        known = "not planned" if key in UNPLANNED else "no field of peft.LoraConfig"
        raise SpecError(f"{place}: {key}", shown(value), f"it left out ({known})")
    stated = {name: read for name, read in READERS.items() if content.get(name) is not None}
    fields = {name: read(content[name], f"{place}: {name}") for name, read in stated.items()}
    if fields.get("target_parameters"):
        fields.setdefault("target_modules", ())
    return Adapter(**fields)


UNPLANNED = frozenset({
    "trainable_token_indices", "layer_replication", "megatron_config", "ensure_weight_tying", "use_qalora",
    "use_bdlora", "alora_invocation_tokens", "arrow_config", "kasa_config", "monteclora_config", "velora_config",
})  # fmt: skip
"""Fields of LoraConfig that change numbers, or the tree, in ways that no plan has."""


def _rank(value: Any, place: str) -> int:
    if type(value) is not int or not 1 <= value <= LARGEST_RANK:
        raise SpecError(place, shown(value), "a whole number from 1 up", "16")
    return value


def _number(value: Any, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise SpecError(place, shown(value), "a number", "16")
    return value


def _probability(value: Any, place: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise SpecError(place, shown(value), "a probability under 1", "0.05")
    return float(value)


def _names(value: Any, place: str) -> tuple[str, ...]:
    listed = [value] if isinstance(value, str) else value
    if not isinstance(listed, list | tuple | set) or not all(isinstance(each, str) and each for each in listed):
        raise SpecError(place, shown(value), "a list of names", '["q_proj", "v_proj"]')
    for name in listed:
        _check_expression(name, place)
    return tuple(sorted(listed) if isinstance(listed, set) else listed)


def _targets(value: Any, place: str) -> tuple[str, ...] | str:
    if isinstance(value, str) and value:
        _check_expression(value, place)
        return ALL_LINEAR if value.lower() == ALL_LINEAR else value
    return _names(value, place)


def _check_expression(text: str, place: str) -> None:
    """Raise `SpecError` for what is no regular expression: peft compares names by these."""
    try:
        re.compile(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise SpecError(place, shown(text), f"a name or a regular expression ({error})") from error


def _layers(value: Any, place: str) -> tuple[int, ...]:
    listed = [value] if type(value) is int else value
    if not isinstance(listed, list | tuple) or not all(type(each) is int and each >= 0 for each in listed):
        raise SpecError(place, shown(value), "numbers of layers", "[0, 1]")
    return tuple(listed)


def _ranks(value: Any, place: str) -> tuple[tuple[str, int], ...]:
    if not isinstance(value, Mapping):
        raise SpecError(place, shown(value), "a rank for each pattern of names", '{"q_proj": 8}')
    for key in value:
        _check_expression(str(key), place)
    return tuple((str(key), _rank(rank, f"{place}.{key}")) for key, rank in value.items())


def _alphas(value: Any, place: str) -> tuple[tuple[str, float], ...]:
    if not isinstance(value, Mapping):
        raise SpecError(place, shown(value), "a lora_alpha for each pattern of names", '{"q_proj": 16}')
    return tuple((str(key), _number(alpha, f"{place}.{key}")) for key, alpha in value.items())


def _flag(value: Any, place: str) -> bool:
    if not isinstance(value, bool):
        raise SpecError(place, shown(value), "true or false")
    return value


def _bias(value: Any, place: str) -> str:
    if value not in BIASES:
        raise SpecError(place, shown(value), " or ".join(BIASES), BIASES[0])
    return str(value)


def _task(value: Any, place: str) -> str:
    name = str(value).rpartition(".")[2]
    if name not in (CAUSAL_LM, SEQ_CLS, TOKEN_CLS):
        raise SpecError(place, shown(value), f"{CAUSAL_LM}, {SEQ_CLS} or {TOKEN_CLS}", CAUSAL_LM)
    return name


READERS: dict[str, Callable[[Any, str], Any]] = {
    "r": _rank, "lora_alpha": _number, "target_modules": _targets, "exclude_modules": _targets,
    "target_parameters": _names, "layers_to_transform": _layers, "layers_pattern": _names, "rank_pattern": _ranks,
    "alpha_pattern": _alphas, "lora_dropout": _probability, "bias": _bias, "lora_bias": _flag, "use_rslora": _flag,
    "use_dora": _flag, "modules_to_save": _names, "task_type": _task,
}  # fmt: skip
"""How the value of each field is read."""


def settings(adapter: Adapter) -> dict[str, Any]:
    """The adapter as fields of peft.LoraConfig, those that are as in peft anyway left out."""
    usual = Adapter()
    fields = {name: value for name, value in adapter._asdict().items() if name in READERS}
    stated = {name: value for name, value in fields.items() if value != getattr(usual, name)}
    listed = {name: list(value) if isinstance(value, tuple) else value for name, value in stated.items()}
    listed |= {name: dict(value) for name, value in stated.items() if name in ("rank_pattern", "alpha_pattern")}
    return {"r": adapter.r, "target_modules": adapter.target_modules, **listed}
