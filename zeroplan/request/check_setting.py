"""What is stated beside the files of `zeroplan check`: who reads them, model, card and host, TrainingArguments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from zeroplan.check.arguments import Arguments
from zeroplan.check.document import Document
from zeroplan.check.finding import number
from zeroplan.check.launch import AccelerateConfig
from zeroplan.check.planned import Planned
from zeroplan.check.setting import READERS, Setting, guessed
from zeroplan.check.subject import Subject
from zeroplan.deepspeed.facts import Facts
from zeroplan.deepspeed.parallelism import grouped_ranks
from zeroplan.errors import ContradictionError, QuantityError, SpecError, ZeroplanError, shown
from zeroplan.request.options import OPTIONS, Options
from zeroplan.specs.optimizer import OFFLOADABLE, OPTIMS

if TYPE_CHECKING:  # what reads a model takes longer to import than a file to check
    from zeroplan.request.request import Request
    from zeroplan.specs.cluster import Cluster
    from zeroplan.specs.model import Model

ACCELERATORS = ("cuda", "cpu")
SWITCH = {"yes": True, "no": False}
CLUSTER = ("gpus", "gpu", "gpu_mem", "host_mem", "nvme", "cluster", "hostfile")


class CheckInputs(NamedTuple):
    """What is the same for all files, read and checked once."""

    options: Options
    reader: str | None
    setting: Setting
    cluster: Cluster | None
    """None where nothing was said of one."""
    model: Model | None


def read_inputs(
    options: Options, *, reader: str | None = None, accelerator: str = "cuda", version: str | None = None,
    client_optimizer: str | None = None, arguments: Arguments | None = None,
) -> CheckInputs:  # fmt: skip
    """Raises `ZeroplanError` for what cannot be meant."""
    for option, value, known in (("--for", reader, READERS), ("--accelerator", accelerator, ACCELERATORS),
                                 ("--client-optimizer", client_optimizer, tuple(SWITCH))):  # fmt: skip
        if value is not None and value not in known:
            raise QuantityError(f"{option}: found {shown(value)}, expected {' or '.join(known)}")
    if version is not None and not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,4}){0,3}", version):
        raise QuantityError(f"--deepspeed: found {shown(version)}, expected a version; write --deepspeed 0.19.8")
    setting = Setting(
        reader or READERS[0], None, accelerator, None if client_optimizer is None else SWITCH[client_optimizer],
        arguments=arguments, precision=options.precision, optimizer=options.optimizer,
    )  # fmt: skip
    if version is not None:
        setting = replace(setting, version=version)
    if all(getattr(options, name) in (None, "") for name in OPTIONS):
        return CheckInputs(options, reader, setting, None, None)
    from zeroplan.request.cluster import read_cluster, read_headroom
    from zeroplan.request.request import read_model

    said = any(getattr(options, name) is not None for name in CLUSTER)
    cluster = read_cluster(options, 1)[0] if said else None
    if cluster is not None and (options.gpus or options.hostfile):
        setting = replace(setting, gpus=cluster.gpus)
    if cluster is not None:
        read_headroom(options.headroom, cluster)
    elif options.headroom is not None:
        raise ContradictionError("--headroom keeps a part of each card free, and no card is named; write --gpu-mem 80")
    modelled = options.model is not None or options.params is not None
    return CheckInputs(options, reader, setting, cluster, read_model(options, None)[0] if modelled else None)


def refuse_several(stated: Mapping[str, Any]) -> None:
    """Raises `QuantityError` for a list where one value is taken."""
    if any("," in str(stated.get(name, "")) for name in ("gpus", "model", "gpu", "gpu_mem")):
        raise QuantityError("check: found several values in one option, expected one; ask for each by itself")


def setting_of(
    inputs: CheckInputs, document: Document, setting: Setting, launch: AccelerateConfig | None = None
) -> Setting:
    """The setting of one config: its reader, guessed where nothing says it, and its job with model and cluster."""
    if inputs.reader is None and launch is None and setting.arguments is None:
        setting = replace(setting, reader=guessed(document.config))
    elif inputs.reader is not None:
        setting = replace(setting, reader=inputs.reader)
    elif launch is None:
        setting = replace(setting, reader="hf")
    if inputs.cluster is None and inputs.model is None:
        return setting
    return replace(setting, planned=_planned(inputs, document, setting, launch))


def _planned(inputs: CheckInputs, document: Document, setting: Setting, launch: AccelerateConfig | None) -> Planned:
    from zeroplan.fit import TIGHT
    from zeroplan.request.cluster import read_cluster, read_headroom
    from zeroplan.specs.cluster import Cluster

    cluster = inputs.cluster or Cluster()
    options, stated = inputs.options, _of_arguments(inputs.options, setting.arguments)
    if inputs.cluster is None and (ranks := grouped_ranks(document.config)) > 1:
        options = options.replace(gpus=f"1x{ranks}")
    if launch is not None and launch.processes and options.gpus is None and options.hostfile is None:
        per_node = launch.processes // launch.machines or 1
        options = options.replace(gpus=f"{launch.machines}x{per_node}")
        cluster = read_cluster(options, 1)[0]
    without_init = launch is not None and str(launch.fields.get("zero3_init_flag")).lower() == "false"
    if without_init and options.zero_init is None:
        options = options.replace(zero_init=False)
    headroom = read_headroom(options.headroom, cluster)
    reserve = headroom.reserve(cluster.capacity) if headroom and cluster.capacity else 0.0
    if inputs.model is None:
        return Planned(cluster, reserve=reserve)
    request = _request(options, stated, inputs.model, document, setting)
    if isinstance(request, ZeroplanError):
        return Planned(cluster, inputs.model, reserve=reserve, hindrance=str(request))
    silent = options.checkpointing is None and "checkpointing" not in stated and setting.arguments is None
    return Planned(
        request.cluster, inputs.model, request.jobs()[0], reserve, accepts_tight=options.accept == TIGHT,
        assumes_no_checkpointing=silent,
    )  # fmt: skip


def _request(
    options: Options, stated: Mapping[str, Any], model: Model, document: Document, setting: Setting
) -> Request | ZeroplanError:  # fmt: skip
    """As `zeroplan estimate --config` reads it; or why it cannot."""
    from zeroplan.check.config_file import ConfigFile
    from zeroplan.request.request import read_request

    try:
        given = Subject(document, setting).given
        options = _with_optim(options.replace(**stated), Facts(given, document.name), setting.arguments)
        return read_request(options, config=ConfigFile(given, document.name), known=model)
    except ZeroplanError as error:
        return error
    except (TypeError, AttributeError, ValueError) as error:  # of a config that rules refuse
        return SpecError(document.name, f"what cannot be read ({error})", "a ds_config.json")


def _of_arguments(options: Options, arguments: Arguments | None) -> dict[str, Any]:
    """TrainingArguments say what "auto" becomes, where no option does."""
    if arguments is None:
        return {}
    micro, steps = arguments("per_device_train_batch_size"), arguments("gradient_accumulation_steps")
    stated = {
        "micro_batch": number(micro) if isinstance(micro, int | float) else None,
        "grad_accum": number(steps) if isinstance(steps, int | float) else None,
        "precision": next((half for half in ("fp16", "bf16") if arguments(half) is True), None),
        "checkpointing": _checkpointing(arguments),
    }
    return {name: value for name, value in stated.items() if value is not None and getattr(options, name) is None}


def _checkpointing(arguments: Arguments) -> str | None:
    """Which layers the Trainer checkpoints (transformers 5.23, trainer.py:train)."""
    if arguments("gradient_checkpointing") is not True:
        return None
    more = arguments.stated("gradient_checkpointing_kwargs")
    options = more if isinstance(more, dict) else {}
    every = options.get("every_n_layers", 1)
    which = f"every-{every}" if isinstance(every, int) and every > 1 else "full"
    return which + "-reentrant" * (options.get("use_reentrant") is True)


def _with_optim(options: Options, facts: Facts, arguments: Arguments | None) -> Options:
    """TrainingArguments' `optim`, where it decides: without a section, and not replaced by DeepSpeed's CPU Adam."""
    name = "" if arguments is None else str(arguments("optim"))
    if name not in OPTIMS or options.optim or options.optimizer or facts.stated("optimizer.type") is not None:
        return options
    replaced = facts.offloads_optimizer and OPTIMS[name].optimizer not in OFFLOADABLE
    return options if replaced else options.replace(optim=name)
