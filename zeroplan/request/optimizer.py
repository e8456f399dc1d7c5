"""Which class steps, and who makes it: DeepSpeed, as an optimizer section says, or the Trainer, as --optim says.

Under the Trainer a section wins, and TrainingArguments' `optim` then does nothing; without a section the Trainer makes
its optimizer with two parameter groups, decay and no decay (transformers 5.24 integrations/deepspeed.py,
deepspeed_optim_sched; trainer.py, create_optimizer).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from zeroplan.errors import ContradictionError
from zeroplan.request.strategy import Reading
from zeroplan.specs.optimizer import ASSUMED_OPTIM, OFFLOADABLE, OPTIMS, SINGLE_TENSOR, Optim

if TYPE_CHECKING:
    from zeroplan.check.config_file import ConfigFile


class Named(NamedTuple):
    """What --optim says."""

    text: str
    optim: Optim


def _named(text: str | None) -> Named | None:
    if text is None:
        return None
    name = text.removesuffix(SINGLE_TENSOR)
    return Named(text, OPTIMS[name] if name == text else OPTIMS[name]._replace(update="single-tensor"))


def read_optimizer(fixed: Mapping[str, Any], optim: str | None, config: ConfigFile | None) -> Reading:
    """The optimizer and its class. `optim`: as --optim has it."""
    section = config is not None and bool((config.content.get("optimizer") or {}).get("type"))
    named = _named(optim)
    if named is not None:
        _check(fixed, named, config, has_section=section)
        return Reading(_by_trainer(fixed, named.optim))
    if config is None or section or fixed.get("zenflow"):
        stated = "optimizer" in fixed
        return Reading(assumed=() if stated else (f"optimizer adamw, {_own(fixed)} (--optimizer, --optim)",))
    if fixed.get("optimizer", "adamw") != "adamw":
        return Reading()
    if fixed.get("offload_optimizer"):
        made = "DeepSpeedCPUAdam, which Accelerate puts in the place of the Trainer's AdamW"
    else:
        made = f"{ASSUMED_OPTIM}, as the Trainer makes it from torch 2.8 on"
    assumed = f"optimizer adamw, {made}: the config has no optimizer section (--optim)"
    return Reading(_by_trainer(fixed, OPTIMS[ASSUMED_OPTIM]), (assumed,))


def _own(fixed: Mapping[str, Any]) -> str:
    return "DeepSpeedCPUAdam" if fixed.get("offload_optimizer") else "DeepSpeed's FusedAdam"


def _by_trainer(fixed: Mapping[str, Any], optim: Optim) -> dict[str, Any]:
    """Fields of `Strategy`; a momentum that --optimizer names is the Trainer's optim_args."""
    momentum = optim.optimizer == "sgd" and fixed.get("optimizer") == "sgd-momentum"
    return {
        "optimizer": "sgd-momentum" if momentum else optim.optimizer, "client_optimizer": True,
        "torch_adam": optim.optimizer == "adamw", "update": optim.update, "parameter_groups": 2,
    }  # fmt: skip


def _check(fixed: Mapping[str, Any], named: Named, config: ConfigFile | None, *, has_section: bool) -> None:
    """Raises `ContradictionError` where something else decides or another optimizer is named."""
    if has_section and config is not None:
        raise ContradictionError(
            f"--optim {named.text} does nothing beside {config.place}, whose optimizer section decides, under the "
            "Trainer too; leave --optim out"
        )
    typed = fixed.get("optimizer")
    if typed not in (None, named.optim.optimizer) and (typed, named.optim.optimizer) != ("sgd-momentum", "sgd"):
        raise ContradictionError(f"--optimizer {typed} contradicts --optim {named.text}, {_says(named)}; keep one")
    forced = config is not None and config.content.get("zero_force_ds_cpu_optimizer", True) is not False
    if forced and fixed.get("offload_optimizer") and named.optim.optimizer not in OFFLOADABLE:
        raise ContradictionError(
            f"--optim {named.text} beside an offloaded optimizer becomes DeepSpeedCPUAdam (Accelerate); write --optim "
            'adamw_torch, or "zero_force_ds_cpu_optimizer": false in the config'
        )


def _says(named: Named) -> str:
    return f"which is {named.optim.optimizer}"
