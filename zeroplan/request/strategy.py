"""What of a strategy is fixed: by options, and by what follows from them, the model and the card; and what is assumed.

Each step takes the fields that are fixed so far, and gives a `Reading`: those that it fixes, and what it assumes.

Who makes the optimizer: DeepSpeed, as an optimizer section says, or the Trainer, as --optim says. Under the Trainer a
section wins, and TrainingArguments' `optim` then does nothing; without a section the Trainer makes its optimizer with
two parameter groups, decay and no decay (transformers 5.24 integrations/deepspeed.py, deepspeed_optim_sched;
trainer.py, create_optimizer).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from zeroplan.architectures.registry import LIGER_FAMILIES
from zeroplan.errors import ContradictionError
from zeroplan.request.options import Options
from zeroplan.sources import TRANSFORMERS
from zeroplan.specs.cluster import Cluster, Gpu
from zeroplan.specs.model import Model
from zeroplan.specs.optimizer import ASSUMED_OPTIM, OFFLOADABLE, OPTIMS, SINGLE_TENSOR, Optim
from zeroplan.specs.strategy import Offload

if TYPE_CHECKING:
    from zeroplan.check.config_file import ConfigFile

DEFAULTS: dict[str, Any] = {
    "precision": "bf16", "optimizer": "adamw", "checkpointing": "none", "attention": "sdpa",
}  # fmt: skip
OFFLOADS = ("offload_optimizer", "offload_param")
FIELDS = (
    "stage", "precision", "optimizer", "checkpointing", "attention", "kernels", *OFFLOADS, "zero_init", "built_in",
    "built_on", "backend", "micro_batch", "grad_accum",
)  # fmt: skip
"""Options that are fields of `Strategy`."""
FLASH_CARDS = {"flash_attention_2": (8.0, 99.0), "flash_attention_3": (8.0, 10.0)}
"""Compute capabilities from and below which the package has kernels. Either stops under 8.0, "only supports Ampere GPUs
or newer" (csrc/flash_attn/flash_api.cpp, hopper/flash_api.cpp). Those of version 3 are compiled for 8.0 and 9.0a
(hopper/setup.py): Ampere and Ada run them (Dao-AILab/flash-attention#1049, and transformers 5.23.0 asks for 8 in
modeling_flash_attention_utils.py), and Blackwell finds "no kernel image" (#2593)."""


class Reading(NamedTuple):
    """What is fixed of a strategy, and what was assumed of the job."""

    fixed: Mapping[str, Any] = {}
    """Fields of `Strategy`."""
    assumed: tuple[str, ...] = ()

    def then(self, step: Reading) -> Reading:
        """Join what a further step fixes and assumes."""
        return Reading({**self.fixed, **step.fixed}, (*self.assumed, *step.assumed))


def stated_fields(options: Options) -> dict[str, Any]:
    """The fields that options state."""
    fixed = {name: value for name in FIELDS if (value := getattr(options, name)) is not None}
    for name in OFFLOADS:
        if name in fixed:
            fixed[name] = None if fixed[name] == "none" else Offload(device=fixed[name])
    return fixed


def precision_of_card(fixed: Mapping[str, Any], cluster: Cluster) -> Reading:
    """fp16 on a card of before Ampere: DeepSpeed asks the accelerator and refuses bf16 there, or torch emulates it."""
    card = cluster.gpu
    if "precision" in fixed or card is None or "fp16" not in card.peak or "bf16" in card.peak:
        return Reading()
    return Reading({"precision": "fp16"}, (f"precision fp16 (--precision): {card.title} has no bf16",))


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


def check_offload(fixed: Mapping[str, Any]) -> None:
    """Raises `ContradictionError` for an offload that does nothing, or cannot be."""
    stage, optimizer, parameters = (fixed.get(k) for k in ("stage", "offload_optimizer", "offload_param"))
    if optimizer and fixed.get("optimizer") == "lamb":
        raise ContradictionError("--optimizer lamb runs on the GPU only; write --offload-optimizer none, or adamw")
    if stage is None:
        return
    if parameters and stage < 3:
        raise ContradictionError(f"--offload-param does nothing at stage {stage}; write --stage 3")
    if optimizer and stage == 0:
        raise ContradictionError("--offload-optimizer does nothing at stage 0; write --stage 1, 2 or 3")
    if optimizer and optimizer.device == "nvme" and stage < 3:
        raise ContradictionError(
            f"--offload-optimizer nvme stays in host memory at stage {stage}; write --stage 3, or cpu"
        )


def read_batch(
    fixed: Mapping[str, Any], total: int | None, gpus: int, said_by: str, *, total_alone: bool
) -> tuple[dict[str, int], dict[str, int]]:  # fmt: skip
    """train_batch_size = micro-batch × accumulation × GPUs, as DeepSpeed solves it (runtime/config.py).

    The field that follows from the other two; and with neither stated, which leaves both open, what an estimate takes.
    A config that states the total alone means one micro-step to DeepSpeed; any other total is accumulated over
    micro-batches of one.
    """
    if total is None:
        return {}, {}
    micro, accum = fixed.get("micro_batch"), fixed.get("grad_accum")
    divisor = gpus * (micro or 1) * (accum or 1)
    if total % divisor or (micro and accum and total != divisor):
        known = {"micro-batch": micro, "accumulation": accum}
        parts = " × ".join([f"{gpus} GPUs", *(f"{name} {count}" for name, count in known.items() if count)])
        possible = divisor if micro and accum else max(divisor, round(total / divisor) * divisor)
        expected = f"{divisor}" if micro and accum else f"a multiple of {divisor}"
        raise ContradictionError(f"{said_by}: found {total}, expected {expected} ({parts}); write {said_by} {possible}")
    if micro and accum:
        return {}, {}
    if micro or accum:
        return {"grad_accum" if micro else "micro_batch": total // divisor}, {}
    return {}, {"micro_batch" if total_alone else "grad_accum": total // divisor}


def read_attention(fixed: Mapping[str, Any], model: Model) -> Reading:
    """Where transformers has no sdpa attention for a family, it runs eager, and refuses sdpa when asked for it."""
    if model.has_sdpa:
        return Reading()
    if "attention" not in fixed:
        return Reading({"attention": "eager"}, (f"attention eager, {_no_sdpa(model)} (--attention)",))
    if fixed["attention"] == "sdpa":
        raise ContradictionError(
            f"--attention: found sdpa, but {_no_sdpa(model)} (ValueError), "
            f"expected eager{'' if model.no_flash else ' or flash_attention_2'}; write --attention eager"
        )
    return Reading()


def _no_sdpa(model: Model) -> str:
    """That the version that is planned has none."""
    return f"transformers {TRANSFORMERS} has no sdpa for {model.family}"


def check_operators(fixed: Mapping[str, Any], model: Model, card: Gpu | None) -> None:
    """Refuse what does not run. Of a card that only stands for a memory size nothing is known."""
    named = card if card and not card.stands_for_class else None
    _check_flash(fixed, model, named)
    _check_kernels(fixed, model)
    if named and fixed.get("precision") == "fp8" and "fp8" not in named.peak:
        raise ContradictionError(
            f"--precision: found fp8 on {named.title}, which does not compute in it, expected a card of Ada, Hopper, "
            f"Blackwell or MI300; write --precision {'bf16' if 'bf16' in named.peak else 'fp16'}"
        )


def _check_flash(fixed: Mapping[str, Any], model: Model, card: Gpu | None) -> None:
    """The flash-attention package computes in 16 bit on some GPUs, heads of up to 256 elements, of some families."""
    attention = fixed.get("attention", "")
    if not attention.startswith("flash"):
        return
    instead = f"write --attention {'sdpa' if model.has_sdpa else 'eager'}"
    if model.no_flash:
        raise ContradictionError(f"--attention: found {attention} for {model.family}, {model.no_flash}; {instead}")
    if fixed.get("precision") == "fp32" and not fixed.get("autocast"):
        raise ContradictionError(
            f"--attention: found {attention} with fp32 weights, which flash-attn does not compute in, expected bf16 or "
            f"fp16; write --precision bf16"
        )
    if fixed.get("backend") == "cpu":
        raise ContradictionError(
            f"--attention: found {attention} with --backend cpu, expected a GPU, which its kernels need; "
            "write --backend cuda"
        )
    lowest, beyond = FLASH_CARDS[attention]
    capability = card and card.compute_capability
    if card and capability and not lowest <= capability.value < beyond:
        generations = "Ampere, Ada or Hopper (8.0 to 9.0)" if beyond == 10.0 else "Ampere or newer (8.0)"
        raise ContradictionError(
            f"--attention: found {attention} on {card.title} of compute capability {capability.value:.1f}, expected a "
            f"card of {generations}; {instead}"
        )
    from zeroplan.autograd.flash import HEAD_ROW, WIDEST_HEAD

    width, value = model.shape.head_width, model.shape.value_width
    if width > WIDEST_HEAD or (attention == "flash_attention_3" and width % HEAD_ROW) or value > width:
        limit = f"a multiple of {HEAD_ROW} " if attention == "flash_attention_3" else ""
        raise ContradictionError(
            f"--attention: found {attention} with heads of {width} elements (values {value}), expected {limit}at most "
            f"{WIDEST_HEAD}; {instead}"
        )


def _check_kernels(fixed: Mapping[str, Any], model: Model) -> None:
    """Liger patches some families, on a GPU; the others it passes over with a line in the log."""
    kernels = fixed.get("kernels", "transformers")
    if kernels == "transformers":
        return
    if model.is_recorded:
        raise ContradictionError(
            f"--kernels: found {kernels} for {model.name}, whose recording has transformers' own operators; "
            "write --kernels transformers"
        )
    if model.family not in LIGER_FAMILIES:
        raise ContradictionError(
            f"--kernels: found {kernels} for {model.family}, which liger-kernel does not patch, expected one of "
            f"{', '.join(sorted(LIGER_FAMILIES))}; write --kernels transformers"
        )
    if fixed.get("backend") == "cpu":
        raise ContradictionError(
            f"--kernels: found {kernels} with --backend cpu, expected a GPU, which Triton needs; write --backend cuda"
        )


def read_build(fixed: Mapping[str, Any]) -> Reading:
    """In which dtype the model is built before DeepSpeed takes it. What is assumed, or does nothing.

    Raises `ContradictionError` for a build that trains in another precision than the stated one.
    """
    built, precision = fixed.get("built_in"), fixed.get("precision", "bf16")
    if built in ("fp16", "bf16") and precision == "fp32":
        raise ContradictionError(
            f"--built-in {built} with fp32 training: DeepSpeed casts no model there, so that its weights would stay "
            f"{built}; write --precision {built}, or --built-in fp32"
        )
    stage, zero_init = fixed.get("stage"), fixed.get("zero_init")
    partitioned = zero_init if zero_init is not None else stage == 3
    if partitioned and built not in (None, precision):
        nothing = f"--built-in {built} changes nothing under deepspeed.zero.Init, which builds in {precision}"
        return Reading(assumed=(nothing,))
    if built is None and precision in ("fp16", "bf16") and not partitioned:
        return Reading(assumed=(f"model built in {precision} (--built-in)",))
    return Reading()


def default_fields(fixed: Mapping[str, Any]) -> Reading:
    """What `Request.job` takes where nobody said; the optimizer has its own step."""
    assumed = [f"{name} {value} (--{name})" for name, value in DEFAULTS.items()
               if name not in fixed and name != "optimizer"]  # fmt: skip
    if fixed.get("precision") == "fp8":
        assumed.append(
            "fp8 runs inside matmuls; weights, gradients and states keep their 16- and 32-bit bytes; the config says "
            "bf16, the model's own layers turn fp8 on (Transformer Engine, torchao)"
        )
    return Reading(assumed=tuple(assumed))
