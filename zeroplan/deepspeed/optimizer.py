"""The section optimizer of a ds_config.json, as DeepSpeed 0.19.8 resolves it."""

from __future__ import annotations

from typing import Any

from zeroplan.deepspeed.keys.removed import NOT_OPTIMIZERS, REMOVED_OPTIMIZERS
from zeroplan.errors import ContradictionError, SpecError, shown
from zeroplan.specs.optimizer import OPTIMIZERS


def optimizer(config: dict[str, Any], place: str) -> dict[str, Any]:
    """Fields of `Strategy`. Raises `ZeroplanError` for a type that DeepSpeed does not know."""
    section = config.get("optimizer") or {}
    named = section.get("type")
    if named is None:
        return {}
    if not isinstance(named, str):
        raise SpecError(f"{place}: optimizer.type", shown(named), "a name", '"type": "AdamW"')
    for name, known in OPTIMIZERS.items():
        if known.config_type and known.config_type.lower() == named.lower():
            return _parameters(name, section.get("params") or {})
    for gone, instead in (REMOVED_OPTIMIZERS | NOT_OPTIMIZERS).items():
        if gone.lower() == named.lower():
            why = "was removed from DeepSpeed" if gone in REMOVED_OPTIMIZERS else "never was one of its types"
            raise ContradictionError(
                f'{place}: optimizer.type {named} {why}, which refuses it; write "type": "{instead}"'
            )
    raise SpecError(
        f"{place}: optimizer.type", shown(named), "an optimizer zeroplan knows",
        ", ".join(sorted({o.config_type for o in OPTIMIZERS.values() if o.config_type})),
    )  # fmt: skip


def _parameters(name: str, params: dict[str, Any]) -> dict[str, Any]:
    """An optimizer by name, and those of its parameters that change what it holds or copies."""
    momentum = name == "sgd" and params.get("momentum")
    fields: dict[str, Any] = {"optimizer": "sgd-momentum" if momentum else name}
    decay = params.get("weight_decay")
    if isinstance(decay, int | float) and decay > 0:
        fields["weight_decay"] = float(decay)
    if params.get("ns_method") == "standard":
        fields["ns_method"] = "standard"
    if name == "sgd" or params.get("torch_adam") is True:
        fields |= _update(name, params)
    if name == "adam" and params.get("adam_w_mode") is False:
        fields["decoupled_decay"] = False
    return fields | {switch: True for switch in ("torch_adam", "amsgrad") if params.get(switch) is True}


def _update(name: str, params: dict[str, Any]) -> dict[str, str]:
    """How torch's class goes through its tensors, where the parameters say so; Muon hands foreach alone to its Adam
    (runtime/engine.py:get_optimizer_configuration).
    """
    if params.get("fused") is True and name != "muon":
        return {"update": "fused"}
    return {"update": "single-tensor"} if params.get("foreach") is False else {}
