"""What is stated beside the files of `zeroplan check`: who reads them, model, card and host, TrainingArguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple

from zeroplan.check.accelerate_config import AccelerateConfig, minds_init_flag
from zeroplan.check.arguments import Arguments
from zeroplan.check.document import Document
from zeroplan.check.planned import Planned
from zeroplan.check.setting import READERS, Setting, guessed
from zeroplan.check.subject import Subject
from zeroplan.deepspeed.facts import Facts
from zeroplan.deepspeed.parallelism import grouped_ranks
from zeroplan.deepspeed.versions import key_table
from zeroplan.errors import ContradictionError, QuantityError, SpecError, ZeroplanError, shown
from zeroplan.request.options import OPTIONS, TRAINED, Options
from zeroplan.specs.input_sizes import UNSTATED, InputSizes

if TYPE_CHECKING:  # what reads a model takes longer to import than a file to check
    from zeroplan.check.script_job import ScriptJob, Taken
    from zeroplan.request.request import Request
    from zeroplan.specs.cluster import Cluster
    from zeroplan.specs.model import Model

ACCELERATORS = ("cuda", "cpu")
SWITCH = {"yes": True, "no": False}
CLUSTER = ("gpus", "gpu", "gpu_mem", "host_mem", "nvme", "cluster", "hostfile")

VERSION = r"[0-9]{1,4}(\.[0-9]{1,4}){0,3}"

class CheckInputs(NamedTuple):
    """What is the same for all files, read and checked once."""

    options: Options
    reader: str | None
    setting: Setting
    cluster: Cluster | None
    """None where nothing was said of one."""
    model: Model | None
    untrained: Model | None = None
    """The same, as it is before anybody says what of it trains."""
    named: Callable[[str], Model | ZeroplanError] = lambda name: _named(name, online=False)
    """The model of a name that a training file has; or why there is none."""

    def of_version(self, version: str) -> CheckInputs:
        """These inputs with another version of DeepSpeed."""
        return self._replace(setting=replace(self.setting, version=version, upgrades_from=None))


def read_inputs(
    options: Options, *, reader: str | None = None, accelerator: str = "cuda", version: str | None = None,
    client_optimizer: str | None = None, arguments: Arguments | None = None, upgrade: str | None = None,
    transformers: str | None = None, accelerate: str | None = None,
) -> CheckInputs:  # fmt: skip
    """Raises `ZeroplanError` for what cannot be meant."""
    for option, value, known in (("--for", reader, READERS), ("--accelerator", accelerator, ACCELERATORS),
                                 ("--client-optimizer", client_optimizer, tuple(SWITCH))):  # fmt: skip
        if value is not None and value not in known:
            raise QuantityError(f"{option}: found {shown(value)}, expected {' or '.join(known)}")
    setting = _of_versions(Setting(
        reader or READERS[0], None, accelerator, None if client_optimizer is None else SWITCH[client_optimizer],
        arguments=arguments, precision=options.precision, optimizer=options.optimizer, transformers=transformers,
        accelerate=accelerate,
    ), version, upgrade)  # fmt: skip
    if all(getattr(options, name) in (None, "") for name in OPTIONS):
        return CheckInputs(options, reader, setting, None, None, named=cache(partial(_named, online=False)))
    from zeroplan.request.cluster import read_cluster, read_headroom
    from zeroplan.request.request import read_untrained
    from zeroplan.request.trained import read_trained

    options = _with_model(options)
    if [name for name in OPTIONS if getattr(options, name) not in (None, "")] == ["hostfile"]:
        from zeroplan.catalog.hostfile import read_hostfile

        ranks = sum(read_hostfile(options.hostfile or "").values())  # of which the batch wants the sum alone
        setting = replace(setting, gpus=ranks)
        return CheckInputs(options, reader, setting, None, None, named=cache(partial(_named, online=False)))
    said = any(getattr(options, name) is not None for name in CLUSTER)
    cluster = read_cluster(options, 1)[0] if said else None
    if cluster is not None and (options.gpus or options.hostfile):
        setting = replace(setting, gpus=cluster.gpus)
    if cluster is not None:
        read_headroom(options.headroom, cluster)
    elif options.headroom is not None:
        raise ContradictionError("--headroom keeps a part of each card free, and no card is named; write --gpu-mem 80")
    if options.model is None and options.params is None:
        named = cache(partial(_named, online=cluster is not None))
        return CheckInputs(options, reader, setting, cluster, None, named=named)
    untrained = read_untrained(options, None)[0]
    file = arguments.file if arguments and arguments.of_other_tool else None
    return CheckInputs(options, reader, setting, cluster, read_trained(options, untrained, file), untrained)


def _of_versions(setting: Setting, version: str | None, upgrade: str | None) -> Setting:
    """With the DeepSpeed that is stated, and the one before it. Raises `ZeroplanError` for one that is not known."""
    if version is not None and upgrade is not None:
        raise ContradictionError("--upgrade names two versions and --deepspeed a third; leave --deepspeed out")
    for option, stated, usual in (
        ("deepspeed", version, "0.19.8"), ("transformers", setting.transformers, "5.24.0"),
        ("accelerate", setting.accelerate, "1.15.0"),
    ):  # fmt: skip
        if stated is not None and not re.fullmatch(VERSION, stated):
            raise QuantityError(f"--{option}: found {shown(stated)}, expected a version; write --{option} {usual}")
    if upgrade is not None:
        older, version = _upgrade(upgrade)
        setting = replace(setting, upgrades_from=older)
    if version is None:
        return setting
    key_table(version)
    return replace(setting, version=version, version_is_stated=True)


def _upgrade(text: str) -> tuple[str, str]:
    """The older and the newer version. Raises `ZeroplanError` for what are no two."""
    older, colon, newer = text.partition(":")
    if not (colon and re.fullmatch(VERSION, older) and re.fullmatch(VERSION, newer)):
        raise QuantityError(f"--upgrade: found {shown(text)}, expected two versions; write --upgrade 0.16.9:0.19.8")
    if not key_table(older).before(key_table(newer).version):
        raise ContradictionError(f"--upgrade: {older} is not before {newer}; write --upgrade {newer}:{older}")
    return older, newer


def _with_model(options: Options) -> Options:
    """With the model that an adapter's own file names. Raises `ContradictionError` for what trains of no model."""
    from zeroplan.request.trained import model_under_adapter

    if options.model is not None or options.params is not None:
        return options
    if base := model_under_adapter(options):
        return options.replace(model=base)
    for name in TRAINED:
        if getattr(options, name) is not None:
            raise ContradictionError(
                f"--{name.replace('_', '-')} says what trains of a model, and none is named; write --model llama-3.1-8b"
            )
    return options


def _named(name: str, *, online: bool, sizes: InputSizes = UNSTATED) -> Model | ZeroplanError:
    """The model that a training file names; `online`: the Hub may be asked for it, as where a card is named."""
    from zeroplan.catalog.models import model

    try:
        return model(name, online=online, sizes=sizes)
    except ZeroplanError as error:
        return error


def refuse_several(stated: Mapping[str, Any]) -> None:
    """Raises `QuantityError` for a list where one value is taken."""
    if any("," in str(stated.get(name, "")) for name in ("gpus", "model", "gpu", "gpu_mem")):
        raise QuantityError("check: found several values in one option, expected one; ask for each by itself")


def setting_of(
    inputs: CheckInputs, document: Document, setting: Setting, accelerate: AccelerateConfig | None = None
) -> Setting:
    """The setting of one config: its reader, guessed where nothing says it, and its job with model and cluster."""
    if inputs.reader is not None:
        setting = replace(setting, reader=inputs.reader)
    elif accelerate is None and not setting.reader_is_known:
        setting = replace(setting, reader="hf" if setting.arguments is not None else guessed(document.config))
    hindrance, taken = "", list[str]()
    if setting.arguments is not None and (job := setting.arguments.job) is not None:
        inputs, taken = _with_scripts(inputs, job)
    elif inputs.model is None and setting.arguments is not None:
        inputs, hindrance = _with_named(inputs, setting.arguments)
    if inputs.cluster is None and inputs.model is None:
        return setting
    planned = _planned(inputs, document, setting, accelerate, hindrance)
    return replace(setting, planned=replace(planned, taken=tuple(taken)))


def _with_scripts(inputs: CheckInputs, job: ScriptJob) -> tuple[CheckInputs, list[str]]:
    """With the model that a script is given, where a card is named that it has to fit on, and with the length of its
    sequences where there is a model; what of these is taken, or why the model is not, each a line.
    """
    taken: list[str] = []
    if inputs.model is None:
        if job.model is None or inputs.cluster is None or inputs.cluster.capacity is None:
            return inputs, []
        named = _named_in_script(job.model, _sizes(inputs.options, job))
        why = job.hindrance or (named if isinstance(named, str) else "")
        if why or isinstance(named, str):
            return inputs, [f"{job.model.place}: {why}: whether it fits is not judged (--model says of which)"]
        inputs = inputs._replace(model=named, untrained=named)
        taken.append(f"{job.model.place}: {job.model.option}: the model is {named.name}")
    is_encoder_decoder = inputs.model is not None and inputs.model.target is not None
    seq = job.seq or (job.source if is_encoder_decoder else None)
    if seq is not None and inputs.options.seq is None:
        inputs = inputs._replace(options=inputs.options.replace(seq=seq.value))
        where = f"{seq.place}: " if seq.place else ""
        taken.append(f"{where}{seq.option}: sequences of {int(seq.value):,} tokens")
    if job.target is not None and inputs.options.target_seq is None and inputs.model is not None and is_encoder_decoder:
        stated, planned = _sizes(inputs.options, job), inputs.model.sizes
        other = "" if planned.are(stated) else f", and planned is a model with {planned.line} (--target-seq)"
        taken.append(f"{job.target.place}: {job.target.option}: {stated.recorded.line}{other}")
    return inputs, taken


def _named_in_script(model: Taken, sizes: InputSizes) -> Model | str:
    """The model that a script names, with the target that is stated where it has one; or why there is none."""
    named = _named(model.value, online=False, sizes=sizes)
    plain = _named(model.value, online=False) if isinstance(named, ZeroplanError) and sizes != UNSTATED else named
    if isinstance(plain, ZeroplanError):
        return f"{model.option} {shown(model.value)} is no preset, folder or config.json"
    return plain if plain.target is None else str(named) if isinstance(named, ZeroplanError) else named


def _sizes(options: Options, job: ScriptJob) -> InputSizes:
    """Sizes of what a sequence has beside its words: what is typed goes before what a script says."""
    target = options.target_seq or (int(job.target.value) if job.target else None)
    seq = next((int(each.value) for each in (job.seq, job.source) if each), None)
    return InputSizes.stated(None, target, options.seq or seq)


def _with_named(inputs: CheckInputs, arguments: Arguments) -> tuple[CheckInputs, str]:
    """With the model that a training file names and what of it trains; or why there is none."""
    from zeroplan.request.trained import read_trained

    try:
        settings = arguments.file.stated.settings if arguments.file else {}
        if "model" not in settings:
            return inputs, ""
        model = inputs.named(settings["model"].value)
        if isinstance(model, ZeroplanError):
            raise model
        return inputs._replace(model=read_trained(inputs.options, model, arguments.file)), ""
    except ZeroplanError as error:
        return inputs, str(error)


def _planned(
    inputs: CheckInputs, document: Document, setting: Setting, accelerate: AccelerateConfig | None, hindrance: str
) -> Planned:  # fmt: skip
    from zeroplan.fit import TIGHT
    from zeroplan.request.cluster import read_cluster, read_headroom
    from zeroplan.specs.cluster import Cluster

    cluster = inputs.cluster or Cluster()
    options = inputs.options
    if inputs.cluster is None and (ranks := grouped_ranks(document.config)) > 1:
        options = options.replace(gpus=f"1x{ranks}")
    if accelerate is not None and accelerate.processes and options.gpus is None and options.hostfile is None:
        per_node = accelerate.processes // accelerate.machines or 1
        options = options.replace(gpus=f"{accelerate.machines}x{per_node}")
        cluster = read_cluster(options, 1)[0]
    elif setting.gpus and not _states_gpus(options):
        options = options.replace(gpus=str(setting.gpus))  # as the script that names the config has it
        cluster = read_cluster(options, 1)[0] if inputs.cluster else cluster
    without_init = accelerate is not None and str(accelerate.fields.get("zero3_init_flag")).lower() == "false"
    if without_init and minds_init_flag(setting.accelerate) and options.zero_init is None:
        options = options.replace(zero_init=False)
    headroom = read_headroom(options.headroom, cluster)
    reserve = headroom.reserve(cluster.capacity) if headroom and cluster.capacity else 0.0
    if inputs.model is None:
        return Planned(cluster, reserve=reserve, hindrance=hindrance)
    model = _trained(inputs, setting.arguments)
    request = _request(options, model, document, setting)
    if isinstance(request, ZeroplanError):
        return Planned(cluster, model, reserve=reserve, hindrance=str(request))
    silent = options.checkpointing is None and _says_nothing_of_checkpointing(setting.arguments)
    return Planned(
        request.cluster, model, request.jobs()[0], reserve, accepts_tight=options.accept == TIGHT,
        assumes_no_checkpointing=silent,
        assumes_one_gpu=not _states_gpus(options),
    )  # fmt: skip


def _says_nothing_of_checkpointing(arguments: Arguments | None) -> bool:
    """A script may do it by itself, whatever its arguments leave out."""
    if arguments is None:
        return True
    name = "gradient_checkpointing"
    return arguments.job is not None and arguments.stated(name) is None and not arguments(name)


def _states_gpus(options: Options) -> bool:
    return any(stated is not None for stated in (options.gpus, options.hostfile, options.cluster))


def _request(
    options: Options, model: Model, document: Document, setting: Setting
) -> Request | ZeroplanError:  # fmt: skip
    """As `zeroplan estimate --config` reads it; or why it cannot."""
    from zeroplan.check.config_file import ConfigFile
    from zeroplan.request.request import read_request

    try:
        given = Subject(document, setting).given
        stated = _of_arguments(options, setting, document)
        options = _with_optim(options.replace(**stated), Facts(given, document.name), setting.arguments)
        return read_request(options, config=ConfigFile(given, document.name), known=model)
    except ZeroplanError as error:
        return error
    except (TypeError, AttributeError, ValueError) as error:  # of a config that rules refuse
        return SpecError(document.name, f"what cannot be read ({error})", "a ds_config.json")


def _trained(inputs: CheckInputs, arguments: Arguments | None) -> Model:
    """The model with what a training file says of it that names the config."""
    assert inputs.model is not None
    if arguments is None or arguments is inputs.setting.arguments or inputs.untrained is None:
        return inputs.model
    if not arguments.of_other_tool:
        return inputs.model
    from zeroplan.request.trained import read_trained

    return read_trained(inputs.options, inputs.untrained, arguments.file)


def _of_arguments(options: Options, setting: Setting, document: Document) -> dict[str, Any]:
    """TrainingArguments say what "auto" becomes, where no option does."""
    if setting.arguments is None or (file := setting.arguments.file) is None:
        return {}
    from zeroplan.request.cluster import read_cluster
    from zeroplan.request.training_file import settings, stage_of

    cluster = read_cluster(options, 1)[0]
    return {name: said.value for name, said in settings(options, file, stage_of(document.config), cluster).items()}


def _with_optim(options: Options, facts: Facts, arguments: Arguments | None) -> Options:
    """TrainingArguments' `optim`, where it decides."""
    from zeroplan.request.training_file import with_optim

    return options if arguments is None else with_optim(options, str(arguments("optim")), facts.config, None)
