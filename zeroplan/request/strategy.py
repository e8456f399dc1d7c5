"""What of a strategy is fixed: by options, by a ds_config.json, and by what follows from both; and what is assumed.

Each step takes the fields that are fixed so far, and gives a `Reading`: those that it fixes, and what it assumes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from zeroplan.errors import ContradictionError
from zeroplan.request.options import Options
from zeroplan.request.values import flag
from zeroplan.specs.checkpointing import DEEPSPEED
from zeroplan.specs.cluster import Cluster
from zeroplan.specs.model import Model
from zeroplan.specs.strategy import Offload

if TYPE_CHECKING:
    from zeroplan.check.config_file import ConfigFile
    from zeroplan.deepspeed.read import Stated

DEFAULTS: dict[str, Any] = {
    "precision": "bf16", "optimizer": "adamw", "checkpointing": "none", "attention": "sdpa",
}  # fmt: skip
OFFLOADS = ("offload_optimizer", "offload_param")
FIELDS = (
    "stage", "precision", "optimizer", "checkpointing", "attention", "kernels", *OFFLOADS, "zero_init", "built_in",
    "built_on", "backend", "micro_batch", "grad_accum",
)  # fmt: skip
"""Options that are fields of `Strategy`."""
TRAINER_FILLS = {
    "zero_optimization.reduce_bucket_size": "reduce_bucket_size",
    "zero_optimization.stage3_prefetch_bucket_size": "prefetch_bucket_size",
    "zero_optimization.stage3_param_persistence_threshold": "param_persistence_threshold",
}
"""Keys that the Trainer fills in for "auto", with the fields that they are."""


class Reading(NamedTuple):
    """What is fixed of a strategy, and what was assumed of the job."""

    fixed: Mapping[str, Any] = {}
    """Fields of `Strategy`."""
    assumed: tuple[str, ...] = ()

    def then(self, step: Reading) -> Reading:
        """With what a further step fixes and assumes."""
        return Reading({**self.fixed, **step.fixed}, (*self.assumed, *step.assumed))


def stated_fields(options: Options) -> dict[str, Any]:
    """The fields that options state."""
    fixed = {name: value for name in FIELDS if (value := getattr(options, name)) is not None}
    for name in OFFLOADS:
        if name in fixed:
            fixed[name] = None if fixed[name] == "none" else Offload(device=fixed[name])
    return fixed


def config_precision(config: ConfigFile, precision: str | None) -> tuple[ConfigFile, Reading]:
    """The config with the section that Accelerate adds for --precision, where it has none."""
    from zeroplan.deepspeed.precision import filled, says_nothing

    content = filled(config.content, precision)
    assumed: tuple[str, ...] = ()
    if content is not config.content:
        assumed = (
            f"precision {precision} (--precision): {config.place} has no section of it, as the Trainer or Accelerate "
            "fills it in; DeepSpeed alone runs fp32",
        )
    elif precision is None and says_nothing(content):
        assumed = (
            "no precision section: fp32, as DeepSpeed alone runs it; under the Trainer with bf16=True write "
            "--precision bf16",
        )
    return config._replace(content=content), Reading(assumed=(*assumed, *config.notes))


def config_fields(
    config: ConfigFile, options: Options, fixed: Mapping[str, Any], model: Model
) -> tuple[Stated, Reading]:  # fmt: skip
    """What the ds_config.json states, and the fields that it fixes; an option that says otherwise is an error."""
    from zeroplan.deepspeed.read import read_config, trainer_fills
    from zeroplan.deepspeed.uncounted import IDLE

    stated = read_config(config.content, config.place)
    fields = {
        name: value for name, value in stated.fields.items()
        if not (name == "precision" and (fixed.get(name), value) == ("fp8", "bf16"))  # what fp8 training writes there
    }  # fmt: skip
    _check_agreement(config.place, options, fixed, stated.fields, fields)
    assumed: list[str] = []
    fills = trainer_fills(model.shape.hidden, {**fixed, **fields}["stage"])
    for path in stated.auto:
        if path in fills:
            fields[TRAINER_FILLS[path]] = fills[path]
            assumed.append(f"{path.rsplit('.', 1)[1]} auto: {fills[path]:,} as the Trainer fills it")
    if stated.auto:
        assumed.append('"auto" filled as Hugging Face\'s Trainer does')
    called = {**fixed, **fields}.get("checkpointing") == DEEPSPEED
    assumed.extend(note for note in stated.notes if not (called and note == IDLE))
    return stated, Reading(fields, tuple(assumed))


def _check_agreement(
    place: str, options: Options, fixed: Mapping[str, Any], stated: Mapping[str, Any], fields: Mapping[str, Any]
) -> None:
    """Raises `ContradictionError` for an option that says something else than the config."""
    for name, value in fields.items():
        if name in fixed and fixed[name] != value and not _same_device(fixed[name], value):
            raise ContradictionError(
                f"{flag(name)} {_text(fixed[name])} contradicts {place}, which says {_text(value)}; keep one"
            )
    for name in OFFLOADS:
        if getattr(options, name) not in (None, "none") and name not in stated:
            raise ContradictionError(
                f"{flag(name)} {fixed[name].device} contradicts {place}, which offloads nothing there; "
                "leave the option out, or --config"
            )


def _same_device(left: Any, right: Any) -> bool:
    return isinstance(left, Offload) and isinstance(right, Offload) and left.device == right.device


def _text(value: Any) -> str:
    return value.device if isinstance(value, Offload) else "none" if value is None else str(value)


def precision_of_card(fixed: Mapping[str, Any], cluster: Cluster) -> Reading:
    """fp16 on a card of before Ampere: DeepSpeed asks the accelerator and refuses bf16 there, or torch emulates it."""
    card = cluster.gpu
    if "precision" in fixed or card is None or "fp16" not in card.peak or "bf16" in card.peak:
        return Reading()
    return Reading({"precision": "fp16"}, (f"precision fp16 (--precision): {card.title} has no bf16",))


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
