"""The ds_config.json of `--config`: what it fixes of the strategy, and what of it contradicts the options."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zeroplan.check.config_file import ConfigFile
from zeroplan.deepspeed.parallelism import data_parallel_size
from zeroplan.deepspeed.precision import filled, says_nothing
from zeroplan.deepspeed.read import Stated, read_config, trainer_fills
from zeroplan.deepspeed.uncounted import IDLE
from zeroplan.errors import ContradictionError
from zeroplan.request.options import Options
from zeroplan.request.strategy import OFFLOADS, Reading
from zeroplan.request.values import flag
from zeroplan.specs.checkpointing import DEEPSPEED
from zeroplan.specs.cluster import Cluster
from zeroplan.specs.model import Model
from zeroplan.specs.strategy import Offload

TRAINER_FILLS = {
    "zero_optimization.reduce_bucket_size": "reduce_bucket_size",
    "zero_optimization.stage3_prefetch_bucket_size": "prefetch_bucket_size",
    "zero_optimization.stage3_param_persistence_threshold": "param_persistence_threshold",
}
"""Keys that the Trainer fills in for "auto", with the fields that they are."""


def config_precision(config: ConfigFile, precision: str | None) -> tuple[ConfigFile, Reading]:
    """The config with the section that Accelerate adds for --precision, where it has none."""
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
    config: ConfigFile, options: Options, fixed: Mapping[str, Any], model: Model, sources: Mapping[str, str] = {}
) -> tuple[Stated, Reading]:  # fmt: skip
    """What the ds_config.json states, and the fields that it fixes; an option that says otherwise is an error.

    `sources`: what errors call options that another file has filled in.
    """
    stated = read_config(config.content, config.place)
    fields = {
        name: value for name, value in stated.fields.items()
        if not (name == "precision" and (fixed.get(name), value) == ("fp8", "bf16"))  # what fp8 training writes there
    }  # fmt: skip
    _check_agreement(config.place, options, fixed, stated.fields, fields, sources)
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
    place: str, options: Options, fixed: Mapping[str, Any], stated: Mapping[str, Any], fields: Mapping[str, Any],
    sources: Mapping[str, str],
) -> None:  # fmt: skip
    """Raises `ContradictionError` for an option that says something else than the config."""
    for name, value in fields.items():
        if name in fixed and fixed[name] != value and not _same_device(fixed[name], value):
            said = f"{sources.get(name) or flag(name)} {_text(fixed[name])}"
            raise ContradictionError(f"{said} contradicts {place}, which says {_text(value)}; keep one")
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


def sharing_gpus(config: ConfigFile, cluster: Cluster) -> int:
    """GPUs that share a batch, by the parallel sizes of the file."""
    return data_parallel_size(config.content, cluster.gpus, config.place)
