"""What a training file of another tool says, as options that nobody has typed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from zeroplan.catalog.trainers.words import Said
from zeroplan.deepspeed.facts import Facts
from zeroplan.errors import QuantityError, SpecError, shown
from zeroplan.request.options import Options
from zeroplan.request.strategy import precision_of_card
from zeroplan.request.values import flag
from zeroplan.specs.optimizer import OFFLOADABLE, OPTIMS, PAGED, UNPLANNED_OPTIMS

if TYPE_CHECKING:
    from zeroplan.catalog.trainers.file import TrainerFile
    from zeroplan.check.config_file import ConfigFile
    from zeroplan.specs.cluster import Cluster

AUTO, REENTRANT = "auto", "-reentrant"
BATCH = ("micro_batch", "grad_accum")
CHECKED = ("micro_batch", "grad_accum", "seq", "precision", "checkpointing", "attention", "kernels")
"""Options that a file fills in; the model and the optimizer have rules of their own."""


class Filled(NamedTuple):
    """Options with what a file says where they say nothing."""

    options: Options
    assumed: tuple[str, ...] = ()
    sources: Mapping[str, str] = {}
    """What errors call an option that the file has filled in."""


def filled(options: Options, config: ConfigFile, file: TrainerFile, cluster: Cluster) -> Filled:
    """Options beside a file that is given as --config. Raises `ZeroplanError`."""
    stage = options.stage if options.stage is not None else stage_of(config.content)
    taken = settings(options, file, stage, cluster)
    settled = file.stated.settings
    if "model" in settled and options.model is None and options.params is None and options.adapter is None:
        taken["model"] = settled["model"]
    chosen = options
    for name, said in taken.items():
        try:
            chosen = chosen.replace(**{name: said.value})
        except QuantityError as error:
            place, why = f"{file.place}: {said.key}", f"a value that {flag(name)} takes"
            raise SpecError(place, shown(str(said.value)), why) from error
    if "optim" in settled and (named := with_optim(chosen, settled["optim"].value, config.content, file)) is not chosen:
        taken["optim"], chosen = settled["optim"], named
    assumed = [_taken(file, taken)] if taken or file.stated.trains else []
    if (optim := taken.get("optim")) and (twin := PAGED.get(optim.value)):
        assumed.append(
            f"{file.place}: {optim.value} is not planned: its states are counted as those of {twin}, on the GPU, from "
            "where paging may move them to the host"
        )
    if not config.is_stated:
        assumed.append(f"{file.place} names no DeepSpeed config: ZeRO is as options say, or as DeepSpeed has it")
    sources = {name: f"{file.place}: {said.key}" for name, said in taken.items()}
    return Filled(chosen, (*assumed, *file.assumed), sources)


def settings(options: Options, file: TrainerFile, stage: int | None, cluster: Cluster | None) -> dict[str, Said]:
    """What the file fills in of options; of a batch that is stated as a whole its tool's defaults are left out."""
    settled = file.stated.settings
    taken = {name: settled[name] for name in CHECKED if name in settled and getattr(options, name) is None}
    for name in BATCH:
        if name in taken and not taken[name].stated and options.global_batch is not None:
            del taken[name]
    micro_batch = taken["micro_batch"].value if "micro_batch" in taken else options.micro_batch
    if file.stated.usual_batch and isinstance(micro_batch, int) and options.grad_accum is options.global_batch is None:
        together = micro_batch * (cluster.gpus if cluster else 1)
        steps = math.ceil(file.stated.usual_batch / together)
        taken["grad_accum"] = Said(steps, "gradient_accumulation_steps", stated=False)
    if (precision := taken.get("precision")) and precision.value == AUTO:
        card = precision_of_card({}, cluster).fixed if cluster else {}
        taken["precision"] = precision._replace(value=card.get("precision", "bf16"))
    kind = taken.get("checkpointing")
    forced = file.stated.reentrant_at_stage_3 and stage == 3
    if kind and forced and kind.value != "none" and not kind.value.endswith(REENTRANT):
        taken["checkpointing"] = kind._replace(value=kind.value + REENTRANT)
    return taken


def with_optim(options: Options, name: str, config: Mapping[str, Any], file: TrainerFile | None) -> Options:
    """The Trainer's optimizer, where it decides: without a section, and not replaced by DeepSpeed's CPU Adam. In place
    of a paged one that with the same states.

    Raises `SpecError` for one that is not planned, where a `file` names it.
    """
    facts = Facts(dict(config), "")
    if options.optim or options.optimizer or facts.stated("optimizer.type") is not None:
        return options
    name = PAGED.get(name, name)
    offloads = facts.offloads_optimizer or options.offload_optimizer not in (None, "none")
    if name not in OPTIMS:
        if file is None or (offloads and config.get("zero_force_ds_cpu_optimizer", True) is not False):
            return options
        known = "one that is planned" if name in UNPLANNED_OPTIMS else "an optimizer of transformers"
        key = file.stated.settings["optim"].key
        raise SpecError(f"{file.place}: {key}", shown(name), f"{known}: {', '.join(OPTIMS)}",
                        "--optim adamw_torch, whose memory may be another")  # fmt: skip
    replaced = offloads and OPTIMS[name].optimizer not in OFFLOADABLE
    return options if replaced else options.replace(optim=name)


def stage_of(content: Mapping[str, Any]) -> int | None:
    """The ZeRO stage that a config states."""
    section = content.get("zero_optimization")
    stage = section.get("stage") if isinstance(section, dict) else None
    return stage if isinstance(stage, int) else None


def _taken(file: TrainerFile, taken: Mapping[str, Said]) -> str:
    """What of a job is as the file says it, and as its tool has it anyway."""
    stated = [file.stated.trains] if file.stated.trains else []
    stated += [_words(name, said) for name, said in taken.items() if said.stated]
    usual = [_words(name, said) for name, said in taken.items() if not said.stated]
    text = f"from {file.place}, a training file of {file.tool}: {', '.join(stated) or 'nothing'}"
    return text + (f"; its defaults: {', '.join(usual)}" if usual else "")


def _words(name: str, said: Said) -> str:
    return f"{flag(name)[2:]} {said.value} ({said.key})"
