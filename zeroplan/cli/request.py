"""From what was typed to specs: model, cluster, workload and strategies, and what had to be assumed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from zeroplan import sources
from zeroplan.cli.headroom import kept_free, read_headroom
from zeroplan.cli.options import Options, flag
from zeroplan.cli.request_batch import batch, number, read_seq
from zeroplan.cli.request_build import check_build
from zeroplan.cli.request_cluster import read_cluster
from zeroplan.cli.request_operators import check_operators, choose_attention
from zeroplan.cli.request_optimizer import read_optim, settle_optimizer
from zeroplan.costs.engines import engine_of
from zeroplan.errors import ContradictionError, QuantityError, UnplannedError, nearest, shown
from zeroplan.fit import TIGHT
from zeroplan.specs.checkpointing import DEEPSPEED, KINDS, is_checkpointing
from zeroplan.specs.cluster import Cluster
from zeroplan.specs.engine import EngineVersion
from zeroplan.specs.headroom import Headroom
from zeroplan.specs.job import Job
from zeroplan.specs.model import Model, Unplanned
from zeroplan.specs.optimizer import OPTIMIZERS
from zeroplan.specs.scope import Scope, scope
from zeroplan.specs.strategy import (
    ATTENTION,
    BACKENDS,
    BUILT_IN,
    BUILT_ON,
    DEVICES,
    KERNELS,
    PRECISIONS,
    STAGES,
    Offload,
    Strategy,
    Workload,
)
from zeroplan.units import read_count

if TYPE_CHECKING:
    from zeroplan.check.config_file import ConfigFile
    from zeroplan.deepspeed.read import Stated

CHOICES = {
    "precision": PRECISIONS,
    "optimizer": tuple(OPTIMIZERS),
    "checkpointing": KINDS,
    "attention": (*ATTENTION, "flash"),
    "kernels": KERNELS,
    "offload_optimizer": DEVICES,
    "offload_param": DEVICES,
    "zero_init": ("yes", "no"),
    "built_in": BUILT_IN,
    "built_on": BUILT_ON,
    "backend": BACKENDS,
}
OFFLOADED = ("true", "yes", "on", "1")
SAYS_NO_DEVICE = (*OFFLOADED, "false", "no", "off", "0", "gpu", "cuda")
"""What people write behind an offload that is no place to offload to."""
DEFAULTS: dict[str, Any] = {
    "precision": "bf16", "optimizer": "adamw", "checkpointing": "none", "attention": "sdpa",
}  # fmt: skip


class Request(NamedTuple):
    """What is asked: fields of the strategy that are fixed, the rest is open (or assumed, for an estimate)."""

    model: Model
    cluster: Cluster
    workload: Workload
    fixed: dict[str, Any]
    """Fields of `Strategy` stated on the command line or in a ds_config.json."""
    free_sizes: dict[str, int]
    """What an estimate takes for a batch of which only the total is stated."""
    assumed: tuple[str, ...] = ()
    rank: int | None = None
    given: dict[str, Any] | None = None
    """The ds_config.json of `--config`, as it stands."""
    headroom: Headroom | None = None
    """What of each card is kept free; None: nobody said."""
    comfortable: bool = False
    """Where nobody said, a plan is looked for whose verdict is `fits`."""
    deepspeed: str = sources.DEEPSPEED
    """The version that is to run it, whose defaults hold where nobody states a value."""
    unplanned: tuple[Unplanned, ...] = ()
    """What of the job is not planned, where `--partial` takes what still holds."""

    @property
    def reserve(self) -> float | None:
        """The same as a share of the card; None: what the verdict asks for."""
        capacity = self.cluster.capacity
        if self.headroom and capacity:
            return self.headroom.reserve(capacity)
        return None if self.comfortable else 0.0

    @property
    def scope(self) -> Scope:
        return scope([self.model], self.workload.seq, self.unplanned)

    def jobs(self) -> list[Job]:
        """One job per stage asked for: all four, or those that the stated offload allows."""
        stages = [self.fixed["stage"]] if "stage" in self.fixed else STAGES[self._lowest_stage() :]
        return [self.job(stage=stage, **self.free_sizes) for stage in stages]

    def job(self, **changes: Any) -> Job:
        """The job with the stated fields, defaults, and `changes`."""
        strategy = Strategy(**{"stage": 0, **self._version_defaults, **DEFAULTS, **self.fixed, **changes})
        job = Job(self.model, self.cluster, self.workload, strategy, self.rank, EngineVersion(version=self.deepspeed))
        return job if self.given else engine_of(job).completed(job)

    @property
    def _version_defaults(self) -> dict[str, Any]:
        """Defaults of the job's version of DeepSpeed, where it is not the one whose defaults `Strategy` has."""
        if self.deepspeed == sources.DEEPSPEED:
            return {}
        from zeroplan.deepspeed.defaults import strategy_defaults  # with all tables of keys

        return strategy_defaults(self.deepspeed)

    def assumed_for(self, jobs: list[Job]) -> tuple[str, ...]:
        """What was assumed: a batch that a config leaves open, and NVMe buffers where DeepSpeed stops with its own."""
        offloads = {job.strategy.offload_param for job in jobs} - {None}
        chosen = [offload for offload in offloads if offload and offload.buffer_count and not self.given]
        left = (self.given or {}).get("train_micro_batch_size_per_gpu") == "auto" and "micro_batch" not in self.fixed
        size = f'micro-batch {jobs[0].strategy.micro_batch}, which the config leaves "auto" (--micro-batch)'
        return (
            self.assumed
            + (size,) * left
            + tuple(
                f"offload_param.buffer_count {offload.buffer_count} of buffer_size {offload.buffer_size:,} elements: "
                f"DeepSpeed stops with its default of 5"
                for offload in chosen
            )
        )

    def _lowest_stage(self) -> int:
        optimizer = self.fixed.get("offload_optimizer")
        if self.fixed.get("offload_param") or (optimizer and optimizer.device == "nvme"):
            return 3
        return 1 if optimizer else 0


def read_request(
    options: Options, *, default_params: str | None = None, default_gpus: int = 1, config: ConfigFile | None = None,
    known: Model | None = None, partial: bool = False,
) -> Request:  # fmt: skip
    """Everything typed, read and checked. `default_params` stands in when no model is named.

    `config` and `known` stand for `--config` and `--model` where these have been read before. `partial`: a job of which
    a part is not planned is read too. Raises `ZeroplanError`.
    """
    assumed: list[str] = []
    if config is None and options.config is not None:
        from zeroplan.check.config_file import read_config_file

        config = read_config_file(options.config)
    cluster = read_cluster(options, assumed, default_gpus)
    headroom = read_headroom(options.headroom, cluster)
    model = known or read_model(options, assumed, default_params)
    fixed = read_flags(options)
    named = read_optim(options.optim)
    total = number(options.global_batch, "--global-batch")
    given, total_alone, unplanned, sharing = None, False, model.unplanned, cluster.gpus
    assumed.extend(model.assumed)
    if model.unread:
        assumed.append(f"not read in its config.json, and not looked at: {', '.join(model.unread)}")
    if config is not None:
        config = _with_precision(config, fixed.get("precision"), assumed)
        given, stated = config.content, _merge_config(config, options, fixed, model, assumed)
        total = _agreed(total, stated.train_batch_size, "--global-batch", "train_batch_size")
        total_alone, unplanned = stated.total_alone, (*unplanned, *stated.unplanned)
        sharing = _sharing(config, cluster)
    refuse_unplanned(unplanned, partial=partial)
    check_accept(options.accept)
    if "precision" not in fixed and given is None and _lacks_bf16(cluster):
        fixed["precision"] = "fp16"
        assumed.append(f"precision fp16 (--precision): {cluster.gpu.title if cluster.gpu else 'the card'} has no bf16")
    settle_optimizer(fixed, named, config, assumed)
    check_offload(fixed)
    said_by = "--global-batch" if options.global_batch else "train_batch_size"
    free_sizes = batch(fixed, total, sharing, said_by, total_alone=total_alone)
    if given is not None and "micro_batch" in fixed and "gradient_accumulation_steps" not in given:
        fixed.setdefault("grad_accum", 1)  # as DeepSpeed takes it
    seq = read_seq(options, model, assumed)
    choose_attention(fixed, model, assumed)
    check_operators(fixed, model, cluster.gpu)
    check_build(fixed, assumed)
    for name, value in DEFAULTS.items():
        if name not in fixed and name != "optimizer":
            assumed.append(f"{name} {value} (--{name})")
    if fixed.get("precision") == "fp8":
        assumed.append(
            "fp8 runs inside matmuls; weights, gradients and states keep their 16- and 32-bit bytes; the config says "
            "bf16, the model's own layers turn fp8 on (Transformer Engine, torchao)"
        )
    if headroom:
        assumed.append(kept_free(headroom))
    return Request(
        model=model, cluster=cluster, workload=Workload(seq, total, options.script), fixed=fixed,
        free_sizes=free_sizes, assumed=tuple(assumed), rank=_rank(options.rank, cluster.gpus), given=given,
        headroom=headroom, unplanned=unplanned,
    )  # fmt: skip


def refuse_unplanned(unplanned: tuple[Unplanned, ...], *, partial: bool) -> None:
    """Raise `UnplannedError` for a part of the job that no number has in it, unless what still holds is asked for."""
    if unplanned and not partial:
        first, *others = unplanned
        more = f" (and {', '.join(one.what for one in others)})" if others else ""
        raise UnplannedError(
            f"{first.what} is not planned{more}: {first.effect}; {first.instead}, or write zeroplan estimate --partial "
            "for what GPUs hold between steps alone"
        )


def check_accept(text: str | None) -> None:
    """`--accept`, before anything is counted. Raises `QuantityError`."""
    if text not in (None, TIGHT):
        raise QuantityError(f"--accept: found {shown(text)}, expected tight; write --accept tight")


def _with_precision(config: ConfigFile, precision: str | None, assumed: list[str]) -> ConfigFile:
    """The config with the section that Accelerate adds for --precision, where it has none."""
    from zeroplan.deepspeed.precision import filled, says_nothing

    content = filled(config.content, precision)
    if content is not config.content:
        assumed.append(
            f"precision {precision} (--precision): {config.place} has no section of it, as the Trainer or Accelerate "
            "fills it in; DeepSpeed alone runs fp32"
        )
    elif precision is None and says_nothing(content):
        assumed.append(
            "no precision section: fp32, as DeepSpeed alone runs it; under the Trainer with bf16=True write "
            "--precision bf16"
        )
    assumed.extend(config.notes)
    return config._replace(content=content)


def _sharing(config: ConfigFile, cluster: Cluster) -> int:
    """GPUs that share a batch, by the parallel sizes of the file."""
    from zeroplan.deepspeed.parallelism import data_parallel_size

    return data_parallel_size(config.content, cluster.gpus, config.place)


def _lacks_bf16(cluster: Cluster) -> bool:
    """A card of before Ampere: DeepSpeed asks the accelerator and refuses bf16 there, or torch emulates it."""
    return cluster.gpu is not None and "fp16" in cluster.gpu.peak and "bf16" not in cluster.gpu.peak


def read_model(options: Options, assumed: list[str], default_params: str | None) -> Model:
    if options.params is not None and options.model is not None:
        raise ContradictionError("--params and --model both name a model; keep --model, it is exact")
    if options.model is not None:
        from zeroplan.catalog.models import model

        return model(options.model)
    from zeroplan.architectures.infer import infer

    text = default_params if options.params is None else options.params
    if text is None:
        raise ContradictionError("no model: write --params 7B, or --model llama-3.1-8b, or --model config.json")
    if options.params is None:
        assumed.append(f"model of {text} (--model)")
    inferred = infer(read_count(text), text)
    assumed.append(f"{inferred.source}; models of one label differ (7B: 6.7B to 8.5B), --model is exact")
    return inferred


def _no_device(typed: str, value: str) -> QuantityError:
    """For a yes, a no, or the place where states are without offload."""
    write = f"{typed} cpu, or nvme" if value.lower() in OFFLOADED else f"{typed} none, or leave it out"
    return QuantityError(f"{typed}: found {shown(value)}, expected where to: none, cpu or nvme; write {write}")


def _choice(name: str, typed: str, choices: tuple[str, ...]) -> str:
    """One of the words that an option takes, in any case. Raises `QuantityError`."""
    value = typed.lower()
    if value in choices or (name == "checkpointing" and is_checkpointing(value)):
        return value
    if name.startswith("offload") and value in SAYS_NO_DEVICE:
        raise _no_device(flag(name), typed)
    raise QuantityError(
        f"{flag(name)}: found {shown(typed)}, expected {', '.join(choices)}; write {flag(name)} "
        f"{nearest(typed, choices)}"
    )


def read_flags(options: Options) -> dict[str, Any]:
    fixed: dict[str, Any] = {}
    if options.stage is not None:
        if options.stage not in [str(stage) for stage in STAGES]:
            raise QuantityError(f"--stage: found {shown(options.stage)}, expected 0, 1, 2 or 3; write --stage 2")
        fixed["stage"] = int(options.stage)
    for name, choices in CHOICES.items():
        typed = getattr(options, name)
        if typed is None:
            continue
        word = _choice(name, typed, choices)
        fixed[name] = word
        if name.startswith("offload"):
            fixed[name] = None if word == "none" else Offload(device=word)
        if name == "zero_init":
            fixed[name] = word == "yes"
    for name in ("micro_batch", "grad_accum"):
        value = number(getattr(options, name), flag(name))
        if value is not None:
            fixed[name] = value
    return fixed


def _merge_config(
    config: ConfigFile, options: Options, fixed: dict[str, Any], model: Model, assumed: list[str]
) -> Stated:  # fmt: skip
    """Add what the ds_config.json states, which is returned; an option that says otherwise is an error."""
    from zeroplan.deepspeed.read import read_config, trainer_fills
    from zeroplan.deepspeed.uncounted import IDLE

    place = config.place
    stated = read_config(config.content, place)
    for name, value in stated.fields.items():
        if name == "precision" and (fixed.get(name), value) == ("fp8", "bf16"):
            continue  # what fp8 training writes in its config
        if name in fixed and fixed[name] != value and not _same_device(fixed[name], value):
            raise ContradictionError(
                f"{flag(name)} {_text(fixed[name])} contradicts {place}, which says {_text(value)}; keep one"
            )
        fixed[name] = value
    for name in ("offload_optimizer", "offload_param"):
        if getattr(options, name) not in (None, "none") and name not in stated.fields:
            raise ContradictionError(
                f"{flag(name)} {fixed[name].device} contradicts {place}, which offloads nothing there; "
                "leave the option out, or --config"
            )
    fills = trainer_fills(model.shape.hidden, fixed["stage"])
    names = {"zero_optimization.reduce_bucket_size": "reduce_bucket_size",
             "zero_optimization.stage3_prefetch_bucket_size": "prefetch_bucket_size",
             "zero_optimization.stage3_param_persistence_threshold": "param_persistence_threshold"}  # fmt: skip
    for path in stated.auto:
        if path in fills:
            fixed[names[path]] = fills[path]
            assumed.append(f"{path.rsplit('.', 1)[1]} auto: {fills[path]:,} as the Trainer fills it")
    if stated.auto:
        assumed.append('"auto" filled as Hugging Face\'s Trainer does')
    called = fixed.get("checkpointing") == DEEPSPEED
    assumed.extend(note for note in stated.notes if not (called and note == IDLE))
    return stated


def _rank(text: str | None, ranks: int) -> int | None:
    if text is None:
        return None
    if not re.fullmatch("[0-9]{1,9}", text) or int(text) >= ranks:
        raise QuantityError(f"--rank: found {shown(text)}, expected 0 to {ranks - 1}; write --rank 0")
    return int(text)


def _same_device(left: Any, right: Any) -> bool:
    return isinstance(left, Offload) and isinstance(right, Offload) and left.device == right.device


def _text(value: Any) -> str:
    return value.device if isinstance(value, Offload) else "none" if value is None else str(value)


def _agreed(flag: int | None, stated: int | None, name: str, key: str) -> int | None:
    if flag is not None and stated is not None and flag != stated:
        raise ContradictionError(f"{name} {flag} contradicts {key} {stated} in the config; keep one")
    return flag if flag is not None else stated


def check_offload(fixed: dict[str, Any]) -> None:
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
