"""What was typed beside the files to `zeroplan check`: who reads them, model, card and host, TrainingArguments."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from zeroplan.check.arguments import Arguments
from zeroplan.check.document import Document
from zeroplan.check.finding import number
from zeroplan.check.launch import AccelerateConfig
from zeroplan.check.planned import Planned
from zeroplan.check.setting import READERS, Setting, guessed
from zeroplan.check.subject import Subject
from zeroplan.cli.options import Options
from zeroplan.deepspeed.facts import Facts
from zeroplan.deepspeed.parallelism import grouped_ranks
from zeroplan.errors import QuantityError, SpecError, ZeroplanError, shown
from zeroplan.specs.optimizer import OFFLOADABLE, OPTIMS

if TYPE_CHECKING:  # what reads a model takes longer to import than a file to check
    from zeroplan.cli.request import Request
    from zeroplan.specs.cluster import Cluster
    from zeroplan.specs.model import Model

ACCELERATORS = ("cuda", "cpu")
SWITCH = {"yes": True, "no": False}
CLUSTER = ("gpus", "gpu", "gpu_mem", "host_mem", "nvme", "cluster", "hostfile")


class Known(NamedTuple):
    """What is the same for all files, read and checked once."""

    options: Options
    reader: str | None
    setting: Setting
    cluster: Cluster | None
    """None where nothing was said of one."""
    model: Model | None


def read_known(
    options: Options, *, reader: str | None = None, accelerator: str = "cuda", version: str | None = None,
    client_optimizer: str | None = None, arguments: Arguments | None = None,
) -> Known:  # fmt: skip
    """Raises `ZeroplanError` for what cannot be meant."""
    for option, value, known in (("--for", reader, READERS), ("--accelerator", accelerator, ACCELERATORS),
                                 ("--client-optimizer", client_optimizer, tuple(SWITCH))):  # fmt: skip
        if value is not None and value not in known:
            raise QuantityError(f"{option}: found {shown(value)}, expected {' or '.join(known)}")
    if version is not None and not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,4}){0,3}", version):
        raise QuantityError(f"--deepspeed: found {shown(version)}, expected a version; write --deepspeed 0.19.8")
    if any("," in (getattr(options, name) or "") for name in ("gpus", "model", "gpu", "gpu_mem")):
        raise QuantityError("check: found several values in one option, expected one; ask for each by itself")
    setting = Setting(
        reader or READERS[0], None, accelerator, None if client_optimizer is None else SWITCH[client_optimizer],
        arguments=arguments, precision=options.precision, optimizer=options.optimizer and options.optimizer.lower(),
    )  # fmt: skip
    if version is not None:
        setting = replace(setting, version=version)
    if not any(getattr(options, name) for name in Options.__annotations__):
        return Known(options, reader, setting, None, None)
    from zeroplan.cli.headroom import read_headroom
    from zeroplan.cli.request import check_accept, read_flags, read_model
    from zeroplan.cli.request_cluster import read_cluster

    said = any(getattr(options, name) is not None for name in CLUSTER)
    cluster = read_cluster(options, [], 1) if said else None
    if cluster is not None and (options.gpus or options.hostfile):
        setting = replace(setting, gpus=cluster.gpus)
    read_flags(options)
    check_accept(options.accept)
    if cluster is not None:
        read_headroom(options.headroom, cluster)
    modelled = options.model is not None or options.params is not None
    return Known(options, reader, setting, cluster, read_model(options, [], None) if modelled else None)


def setting_of(known: Known, document: Document, setting: Setting, launch: AccelerateConfig | None = None) -> Setting:
    """Of one config: for whom is guessed from it where nothing says, and its job joins model and cluster."""
    if known.reader is None and launch is None and setting.arguments is None:
        setting = replace(setting, reader=guessed(document.config))
    elif known.reader is not None:
        setting = replace(setting, reader=known.reader)
    elif launch is None:
        setting = replace(setting, reader="hf")
    if known.cluster is None and known.model is None:
        return setting
    return replace(setting, planned=_planned(known, document, setting, launch))


def _planned(known: Known, document: Document, setting: Setting, launch: AccelerateConfig | None) -> Planned:
    from zeroplan.cli.headroom import read_headroom
    from zeroplan.cli.request_cluster import read_cluster
    from zeroplan.fit import TIGHT
    from zeroplan.specs.cluster import Cluster

    cluster = known.cluster or Cluster()
    options = _with_arguments(known.options, setting.arguments)
    if known.cluster is None and (ranks := grouped_ranks(document.config)) > 1:
        options = _copied(options, gpus=f"1x{ranks}")
    if launch is not None and launch.processes and options.gpus is None and options.hostfile is None:
        options = _copied(options, gpus=f"{launch.machines}x{launch.processes // launch.machines or 1}")
        cluster = read_cluster(options, [], 1)
    if launch is not None and str(launch.fields.get("zero3_init_flag")).lower() == "false" and not options.zero_init:
        options = _copied(options, zero_init="no")
    headroom = read_headroom(options.headroom, cluster)
    reserve = headroom.reserve(cluster.capacity) if headroom and cluster.capacity else 0.0
    if known.model is None:
        return Planned(cluster, reserve=reserve)
    found = _request(options, known.model, document, setting)
    if isinstance(found, ZeroplanError):
        return Planned(cluster, known.model, reserve=reserve, hindrance=str(found))
    silent = options.checkpointing is None and setting.arguments is None
    return Planned(
        found.cluster, known.model, found.jobs()[0], reserve, accepts_tight=options.accept == TIGHT,
        assumes_no_checkpointing=silent,
    )  # fmt: skip


def _request(options: Options, model: Model, document: Document, setting: Setting) -> Request | ZeroplanError:
    """As `zeroplan estimate --config` reads it; or why it cannot."""
    from zeroplan.check.config_file import ConfigFile
    from zeroplan.cli.request import read_request

    try:
        given = Subject(document, setting).given
        options = _with_optim(options, Facts(given, document.name), setting.arguments)
        return read_request(options, config=ConfigFile(given, document.name), known=model)
    except ZeroplanError as error:
        return error
    except (TypeError, AttributeError, ValueError) as error:  # of a config that rules refuse
        return SpecError(document.name, f"what cannot be read ({error})", "a ds_config.json")


def _with_arguments(options: Options, arguments: Arguments | None) -> Options:
    """TrainingArguments say what "auto" becomes, where no option does."""
    if arguments is None:
        return options
    micro, steps = arguments("per_device_train_batch_size"), arguments("gradient_accumulation_steps")
    stated: dict[str, str | None] = {
        "micro_batch": number(micro) if isinstance(micro, int | float) else None,
        "grad_accum": number(steps) if isinstance(steps, int | float) else None,
        "precision": next((half for half in ("fp16", "bf16") if arguments(half) is True), None),
        "checkpointing": _checkpointing(arguments),
    }
    return _copied(options, **{name: value for name, value in stated.items() if getattr(options, name) is None})


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
    return options if replaced else _copied(options, optim=name)


def _copied(options: Options, **changes: str | None) -> Options:
    return Options(**{name: getattr(options, name) for name in Options.__annotations__} | changes)
