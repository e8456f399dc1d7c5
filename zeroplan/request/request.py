"""A request: model, cluster, workload, what of the strategy is fixed, and what had to be assumed; and its jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from zeroplan import sources
from zeroplan.costs.engines import engine_of
from zeroplan.errors import ContradictionError, QuantityError, UnplannedError, shown
from zeroplan.request.cluster import kept_free, read_cluster, read_headroom
from zeroplan.request.options import Options
from zeroplan.request.strategy import (
    DEFAULTS,
    Reading,
    check_offload,
    check_operators,
    default_fields,
    precision_of_card,
    read_attention,
    read_batch,
    read_build,
    read_optimizer,
    stated_fields,
)
from zeroplan.request.trained import model_under_adapter, of_quantized, read_trained
from zeroplan.request.values import parameters
from zeroplan.specs.cluster import Cluster
from zeroplan.specs.images import NO_IMAGES, Images
from zeroplan.specs.input_sizes import UNSTATED, InputSizes
from zeroplan.specs.job import EngineVersion, Job
from zeroplan.specs.model import Model, Unplanned
from zeroplan.specs.scope import Scope, scope
from zeroplan.specs.strategy import STAGES, Strategy, Workload

if TYPE_CHECKING:
    from zeroplan.catalog.trainers.file import TrainerFile
    from zeroplan.check.config_file import ConfigFile
    from zeroplan.specs.headroom import Headroom

DEFAULT_SEQ = 2048
"""Tokens, of a model with at least as many positions."""


class Request(NamedTuple):
    """Fields of the strategy that are fixed; the rest is open (or assumed, for an estimate)."""

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
    file: TrainerFile | None = None
    """The training file of another tool, where it is given as `--config`."""

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
    """The request of these options, checked. `default_params` stands in when no model is named.

    `config` and `known` stand for `--config` and `--model` where these have been read before. `partial`: a job of which
    a part is not planned is read too. Raises `ZeroplanError`.
    """
    if config is None and options.config is not None:
        from zeroplan.check.config_file import read_config_file

        config = read_config_file(options.config)
    cluster, of_cluster = read_cluster(options, default_gpus)
    file, said = config.file if config else None, None
    if config is not None and file is not None:
        from zeroplan.request.training_file import filled

        said = filled(options, config, file, cluster)
        options, config = said.options, config if config.is_stated else None
    headroom = read_headroom(options.headroom, cluster)
    model, of_model = (known, ()) if known else read_model(options, default_params, file)
    reading = Reading(stated_fields(options), (*of_cluster, *of_model, *_of_config_json(model)))
    reading = reading.then(Reading(assumed=said.assumed if said else ()))
    total, said_by = options.global_batch, "--global-batch" if options.global_batch else "train_batch_size"
    total_alone, unplanned, sharing = False, model.unplanned, cluster.gpus
    if config is not None:
        from zeroplan.request.config import config_fields, config_precision, sharing_gpus

        config, precision = config_precision(config, options.precision)
        stated, fields = config_fields(config, options, reading.fixed, model, said.sources if said else {})
        reading = reading.then(precision).then(fields)
        total = _agreed(total, stated.train_batch_size)
        total_alone, unplanned = stated.total_alone, (*unplanned, *stated.unplanned)
        sharing = sharing_gpus(config, cluster)
    refuse_unplanned(unplanned, partial=partial)
    if config is None:
        reading = reading.then(precision_of_card(reading.fixed, cluster))
    reading = reading.then(read_optimizer(reading.fixed, options.optim, config))
    check_offload(reading.fixed)
    solved, free_sizes = read_batch(reading.fixed, total, sharing, said_by, total_alone=total_alone)
    reading = reading.then(Reading(solved))
    if config is not None and "micro_batch" in reading.fixed and "gradient_accumulation_steps" not in config.content:
        reading = Reading({"grad_accum": 1}).then(reading)  # as DeepSpeed takes it
    seq, of_seq = read_seq(options.seq, model)
    reading = reading.then(Reading(assumed=of_seq)).then(read_attention(reading.fixed, model))
    check_operators(reading.fixed, model, cluster.gpu)
    if model.quantization:
        reading = reading.then(of_quantized(reading.fixed, model.quantization))
    reading = reading.then(read_build(reading.fixed)).then(default_fields(reading.fixed))
    kept = (kept_free(headroom),) if headroom else ()
    return Request(
        model=model, cluster=cluster, workload=Workload(seq, total, options.script), fixed=dict(reading.fixed),
        free_sizes=free_sizes, assumed=(*reading.assumed, *kept), rank=_rank(options.rank, cluster.gpus),
        given=config.content if config else None, headroom=headroom, unplanned=unplanned, file=file,
    )  # fmt: skip


def read_model(
    options: Options, default_params: str | None, file: TrainerFile | None = None
) -> tuple[Model, tuple[str, ...]]:  # fmt: skip
    """The model that is named, or one of that many parameters, with what is frozen, and what was assumed of it."""
    model, assumed = read_untrained(options, default_params)
    return read_trained(options, model, file), assumed


def read_input_sizes(options: Options) -> InputSizes:
    """Those of a sequence's inputs beside its words. Raises `ContradictionError`."""
    return InputSizes.stated(read_images(options), options.target_seq, options.seq)


def read_images(options: Options) -> Images | None:
    """The images of each sequence. Raises `ContradictionError` where their number or their size alone is stated."""
    stated = {"--image-size": options.image_size, "--image-tokens": options.image_tokens}
    sizes = [name for name, size in stated.items() if size is not None]
    if not sizes and not options.images:
        return None if options.images is None else NO_IMAGES
    if len(sizes) > 1:
        raise ContradictionError("--image-tokens beside --image-size: either says how large images are; leave one out")
    if not options.images or not sizes:
        known, missing = (sizes[0], "--images") if sizes else ("--images", "--image-size")
        size = Images(options.images or 1, *(options.image_size or (448, 448)))
        example = size._replace(height=0, tokens=options.image_tokens) if options.image_tokens else size
        raise ContradictionError(
            f"{known} without {missing}: both say what images a sequence has; write {example.options}"
        )
    return Images(options.images, *(options.image_size or (0, 0)), tokens=options.image_tokens or 0)


def read_untrained(options: Options, default_params: str | None) -> tuple[Model, tuple[str, ...]]:
    """The same, as it is before anybody says what of it trains."""
    if options.params is not None and options.model is not None:
        raise ContradictionError("--params and --model both name a model; keep --model, it is exact")
    named = model_under_adapter(options) if options.model is None and options.params is None else options.model
    if named is not None:
        from zeroplan.catalog.models import model

        return model(named, sizes=read_input_sizes(options)), ()
    from zeroplan.architectures.infer import infer

    if (sizes := read_input_sizes(options)) != UNSTATED:
        option = "--images" if sizes.images else "--target-seq"
        raise ContradictionError(f"{option} is of a model that takes it; write --model config.json, not --params")
    if options.params is None and default_params is None:
        raise ContradictionError("no model: write --params 7B, or --model llama-3.1-8b, or --model config.json")
    size = options.params or parameters("params", default_params)
    usual = () if options.params else (f"model of {size.text} (--model)",)
    inferred = infer(size.value, size.text)
    return inferred, (
        *usual, f"{inferred.source}; models of one label differ (7B: 6.7B to 8.5B), --model is exact"
    )  # fmt: skip


def _of_config_json(model: Model) -> tuple[str, ...]:
    """What was assumed where the model's config.json was read, and what was not looked at."""
    if not model.unread:
        return model.assumed
    return (*model.assumed, f"not read in its config.json, and not looked at: {', '.join(model.unread)}")


def refuse_unplanned(unplanned: tuple[Unplanned, ...], *, partial: bool) -> None:
    """Raise `UnplannedError` for a part of the job that no number has in it, unless what still holds is asked for."""
    if unplanned and not partial:
        first, *others = unplanned
        more = f" (and {', '.join(one.what for one in others)})" if others else ""
        raise UnplannedError(
            f"{first.what} is not planned{more}: {first.effect}; {first.instead}, or write zeroplan estimate --partial "
            "for what GPUs hold between steps alone"
        )


def _agreed(option: int | None, stated: int | None) -> int | None:
    if option is not None and stated is not None and option != stated:
        raise ContradictionError(
            f"--global-batch {option} contradicts train_batch_size {stated} in the config; keep one"
        )
    return option if option is not None else stated


def usual_seq(model: Model) -> int:
    """Tokens of a sequence where nobody says: no more than the model has positions for."""
    return min(DEFAULT_SEQ, _positions(model) or DEFAULT_SEQ)


def read_seq(stated: int | None, model: Model) -> tuple[int, tuple[str, ...]]:
    """Tokens of a sequence, as stated or as usual, and what was assumed."""
    seq, of_target = stated or usual_seq(model), _beyond(model, "target", model.target or 0)
    if stated is None:
        why = f", all of the model's positions, under the usual {DEFAULT_SEQ}" if seq < DEFAULT_SEQ else ""
        return seq, (f"sequence {seq}{why} (--seq)", *of_target)
    return seq, (*_beyond(model, "sequence", seq), *of_target)


def _beyond(model: Model, what: str, length: int) -> tuple[str, ...]:
    """A note on a sequence that is longer than the model's positions."""
    positions = _positions(model)
    if not positions or length <= positions:
        return ()
    stops = ", which it has learned: as it is, its training stops there" if _learns_positions(model) else ""
    return (f"{what} {length} is beyond the model's {positions} positions{stops}",)


def _positions(model: Model) -> int:
    """How many the model has; 0: it has no such limit."""
    return 0 if model.inferred else model.shape.positions


def _learns_positions(model: Model) -> bool:
    """Each position has a row of a table (GPT-2, OPT, BERT); rotary ones and ALiBi go on beyond."""
    tables = ("wpe.weight", "position_embeddings.weight", "embed_positions.weight")
    return any(tensor.name.endswith(tables) for tensor in model.tensors)


def _rank(stated: int | str | None, ranks: int) -> int | None:
    if stated is None:
        return None
    if isinstance(stated, str) or stated >= ranks:
        raise QuantityError(f"--rank: found {shown(str(stated))}, expected 0 to {ranks - 1}; write --rank 0")
    return stated
