"""Other spellings, deprecated names and dropped values of ds_config.json, made into the table's own names."""

from __future__ import annotations

from typing import Any

from zeroplan.deepspeed.keys import CURRENT
from zeroplan.deepspeed.keys.table import KeyTable
from zeroplan.deepspeed.values import AUTO, checked
from zeroplan.errors import ContradictionError

ZERO = "zero_optimization"
OLD_OFFLOADS = {"cpu_offload": "offload_optimizer", "cpu_offload_param": "offload_param"}
OLD_NAMES = {"stage3_gather_fp16_weights_on_model_save": "stage3_gather_16bit_weights_on_model_save"}
STAGE = f"{ZERO}.stage"
"""Its "auto" stays, for `checked` to refuse: DeepSpeed drops it as well, and then trains without any ZeRO."""
WITHOUT_EFFECT = "cpu_offload_use_pin_memory"
ACCELERATE_FILLS: dict[str, Any] = {
    STAGE: 2, f"{ZERO}.stage3_gather_16bit_weights_on_model_save": False,
    **{f"{ZERO}.{section}.{name}": "none" for section in ("offload_optimizer", "offload_param")
       for name in ("device", "nvme_path")},
}  # fmt: skip
"""What Accelerate writes for "auto" where neither its file nor its environment says more, under the Trainer as well
(accelerate: utils/dataclasses.py:DeepSpeedPlugin)."""
COMMENTS = ("_", "#", "//", "$")
"""How keys begin that people write for themselves."""


def canonical(
    document: dict[str, Any], place: str = "ds_config.json", table: KeyTable = CURRENT
) -> dict[str, Any]:  # fmt: skip
    """The same settings under DeepSpeed's own names; `document` stays as it is.

    An alias gets the table's name (bfloat16 is bf16, max_live_parameters is stage3_max_live_parameters), a deprecated
    name the setting that replaces it, and an "auto" that DeepSpeed drops goes. Raises `ContradictionError` for two
    spellings of one key, which DeepSpeed refuses.
    """
    config = _without_old_bf16(document)
    if isinstance(config.get(ZERO), bool):
        config = _without_old_zero(config)
    config = _renamed(config, "", place, table)
    if isinstance(config.get(ZERO), dict):
        config[ZERO] = _without_deprecated(config[ZERO], place, table)
    return config


def refuse_removed(document: dict[str, Any], place: str) -> None:
    """A removed key stops DeepSpeed whatever its value is (runtime/config.py:_reject_removed_config_keys)."""
    zero = document.get(ZERO)
    inside = {f"{ZERO}.{name}" for name in zero} if isinstance(zero, dict) else set()
    for path, instead in CURRENT.removed.items():
        if path in document or path in inside:
            raise ContradictionError(f"{place}: {path} was removed from DeepSpeed, which refuses it; {instead}")


def _without_old_bf16(document: dict[str, Any]) -> dict[str, Any]:
    """`bfloat16` counts only where bf16 is absent or null (runtime/precision_config.py:33-37)."""
    config = {name: value for name, value in document.items() if not (name == "bf16" and value is None)}
    if "bf16" in config:
        config.pop("bfloat16", None)
    return config


def _without_old_zero(document: dict[str, Any]) -> dict[str, Any]:
    """`"zero_optimization": true` is stage 1 (runtime/zero/config.py:read_zero_config_deprecated)."""
    config = dict(document)
    config[ZERO] = {"stage": int(config[ZERO])}
    size = config.pop("allgather_size", AUTO)
    if config[ZERO]["stage"] and size != AUTO:
        config[ZERO]["allgather_bucket_size"] = size
    return config


def _renamed(
    section: dict[str, Any], path: str, place: str, table: KeyTable, *, own_name: bool = True
) -> dict[str, Any]:  # fmt: skip
    """The section by the table's names. The Trainer fills "auto" only under these; DeepSpeed drops it elsewhere."""
    names: dict[str, Any] = {}
    spelled: dict[str, str] = {}
    for spelling, value in section.items():
        known = table.inside(path, spelling)
        is_own = own_name and known is not None and known.name == spelling
        is_filled = is_own and known is not None and (bool(known.auto) or known.path == STAGE)
        if value == AUTO and path in table.strict and not is_filled:
            continue
        name = known.name if known else spelling
        if name in names:
            raise ContradictionError(f"{place}: {spelled[name]} and {spelling} are one key; DeepSpeed refuses both, "
                                     f"keep {name}")  # fmt: skip
        spelled[name] = spelling
        if known is not None and isinstance(value, dict):
            value = _renamed(value, known.path, place, table, own_name=is_own)  # noqa: PLW2901
        names[name] = value
    return names


def _without_deprecated(section: dict[str, Any], place: str, table: KeyTable) -> dict[str, Any]:
    """Old names replaced as runtime/config_utils.py:_process_deprecated_field does, which refuses old beside new."""
    zero = {}
    for name, value in section.items():
        new = OLD_OFFLOADS.get(name) or OLD_NAMES.get(name)
        if new is not None and new in section:
            raise ContradictionError(f"{place}: {ZERO} has {name} and {new}; DeepSpeed refuses both, keep {new}")
        if name == WITHOUT_EFFECT:
            continue
        if new is None:
            zero[name] = value
        elif name in OLD_NAMES:
            zero[new] = value
        elif checked(section, ZERO, name, place, table=table):
            zero[new] = {"device": "cpu"}
    return zero
