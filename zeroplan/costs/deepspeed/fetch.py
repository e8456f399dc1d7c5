"""The gathers of stage 3: the coordinator's replay from the run's first micro-step to those that repeat.

The first only records the trace (no prefetch, no reuse).

Buffers between NVMe and the GPU for parameters, where DeepSpeed's defaults are too small or too few.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from zeroplan.arithmetic import ceil_div
from zeroplan.costs.cache import IdentityKey, by_execution, cached, cached_per_execution, order_free_key
from zeroplan.costs.deepspeed.coordinator import AccessOrder, Coordinator, TraceError, access_order
from zeroplan.costs.deepspeed.events import GatheredTimeline, MicroStep
from zeroplan.costs.deepspeed.gathered_storages import ReplayThresholds, Settings, SeveralDtypesError
from zeroplan.costs.deepspeed.layout import groups_key, tensor_sizes
from zeroplan.costs.deepspeed.nvme_swap import OutOfBuffersError, buffer_count, parameter_buffers, swapped_parameters
from zeroplan.costs.deepspeed.partitions import (
    dtypes_key,
    gathered_widths,
    partition_dtypes,
    persistent_tensors,
    replaced,
    secondary_ranks,
    secondary_sizes,
    small_tensors,
)
from zeroplan.errors import ContradictionError
from zeroplan.specs.job import Job
from zeroplan.specs.model import ParameterSpec
from zeroplan.specs.strategy import Offload, Strategy

DEFAULT_SIZE = Offload("nvme").buffer_size


def _gathers_key(strategy: Strategy) -> Hashable:
    return (
        strategy.prefetch_bucket_size, strategy.max_live_parameters, strategy.max_reuse_distance,
        _beside_thresholds(strategy),
    )  # fmt: skip


def _beside_thresholds(strategy: Strategy) -> Hashable:
    params = strategy.offload_param
    on_nvme = params is not None and params.device == "nvme"
    buffers = params and params._replace(buffer_size=DEFAULT_SIZE, buffer_count=buffer_count(params))
    return (
        strategy.param_persistence_threshold, strategy.model_persistence_threshold,
        strategy.recomputing.every and strategy.recomputing, strategy.kernels, strategy.stage == 3,
        _micro_steps_that_differ(strategy), strategy.all_reduce_for_fetch, strategy.allgather_sequential,
        on_nvme and (buffers, strategy.sub_group_size, strategy.aio_block_size, strategy.element_bytes),
        groups_key(strategy), strategy.hpz_partition_size, strategy.autocast_dtype,
        strategy.quantized_weights and strategy.dtype, strategy.memory_efficient_linear, dtypes_key(strategy),
    )  # fmt: skip


def _micro_steps_that_differ(strategy: Strategy) -> int:
    """All after the first are identical, but for the run's third: persistent tensors may keep a joined buffer alive."""
    return min(strategy.grad_accum, 3 if strategy.all_reduce_for_fetch else 2)


class MicroSteps(NamedTuple):
    """Micro-steps of one run."""

    before: tuple[MicroStep, ...]
    """Micro-steps of the first optimizer step, where it was replayed on the way."""
    steady: MicroStep
    """The first of the third optimizer step, and of all after it; or of one that is the same."""
    later: MicroStep
    """The next in that step; with secondary partitions they differ (hpZ)."""
    holds: ReplayThresholds = ReplayThresholds()
    """The thresholds under which they are the same."""

    @property
    def largest(self) -> tuple[MicroStep, ...]:
        """Those of a later step between them hold the most: the first makes secondary partitions one by one, and needs
        no more than the next unless it fetches by all-reduce, whose buffers stay, or drops what the step left.
        """
        more = max(self.steady.forward.most) > max(self.later.forward.most)
        if self.later is self.steady or not (more or any(gather.joined for gather in self.steady.calls)):
            return (self.later,)
        return self.steady, self.later

    @property
    def from_host(self) -> MicroSteps:
        """The micro-steps of a job with `offload_param`, each by itself."""
        steady = self.steady.from_host
        later = steady if self.later is self.steady else self.later.from_host
        return MicroSteps(tuple(step.from_host for step in self.before), steady, later, self.holds)


class Replay(NamedTuple):
    """One run with its partitions on the GPU, and on the host."""

    on_gpu: MicroSteps
    from_host: MicroSteps

    @classmethod
    def of(cls, run: MicroSteps) -> Replay:
        return cls(run, run.from_host)


def distinct(steps: MicroSteps) -> tuple[MicroStep, ...]:
    """A step's first, and any later one where that differs (hpZ)."""
    return (steps.steady,) if steps.later is steps.steady else (steps.steady, steps.later)


def micro_steps(job: Job) -> MicroSteps:
    """What the coordinator does, micro-step by micro-step: one and the same for thresholds that change nothing.

    One rank gathers nothing: its partitions are the parameters, or are copied from the host when they are offloaded.
    Releasing them may still make secondary ones.
    Raises `ContradictionError` where DeepSpeed runs out of buffers for partitions on NVMe, or fetches what it has not
    recorded.
    """
    result = _replay(job)
    if isinstance(result, OutOfBuffersError):
        raise TooFewBuffersError(job)
    if isinstance(result, TraceError):
        raise ContradictionError(
            "stage 3 with adapters on parameters of a module that is no leaf: DeepSpeed records it with them and then "
            "runs it without, and stops (tracing error); write the module's class to leaf_module"
        )
    if isinstance(result, SeveralDtypesError):
        raise ContradictionError(
            "stage3_use_all_reduce_for_fetch_params with parameters of several dtypes at stage 3: DeepSpeed stops as "
            "it gathers two of them at once; leave it out"
        )
    return result.from_host if job.strategy.offload_param else result.on_gpu


def by_replay(job: Job) -> Hashable:
    """The replay of its gathers, which holds for one order of execution and for all thresholds that change nothing."""
    return IdentityKey(micro_steps(job))


def by_gathers(job: Job) -> Hashable:
    """Which gathers it issues, wherever its partitions are."""
    return IdentityKey(micro_steps(job).steady.gathers)


def replay_free_key(strategy: Strategy) -> Hashable:
    """All of the strategy that neither the order of execution nor the replay of its gathers settles."""
    return order_free_key(strategy._replace(prefetch_bucket_size=0, max_live_parameters=0, max_reuse_distance=0))


def by_order(job: Job) -> Hashable:
    """The order of execution and the replay of gathers at stage 3, below it the order of gradients."""
    return (by_execution(job), by_replay(job)) if job.strategy.stage == 3 else job.execution.gradients


def _by_partitions(job: Job) -> Hashable:
    return by_execution(job), _host_changes_gathers(job)


@cached(_gathers_key, order=_by_partitions)
def _replay(job: Job) -> Replay | OutOfBuffersError | TraceError | SeveralDtypesError:
    """The run, or why DeepSpeed stops."""
    known = _known(job)
    for result in known:
        if result.on_gpu.holds.has(job.strategy):
            return result
    if len(known) >= MOST_REPLAYS:
        known.clear()
    if _gathers(job):
        try:
            known.append(Replay.of(_replayed(job, _settings(job))))
        except (OutOfBuffersError, TraceError, SeveralDtypesError) as error:
            return error.with_traceback(None)  # whose frames would be kept
    else:
        known.append(Replay.of(MicroSteps((), NOTHING_GATHERED, NOTHING_GATHERED)))
    return known[-1]


MOST_REPLAYS = 32


@cached(_beside_thresholds, order=_by_partitions)
def _known(_job: Job) -> list[Replay]:
    """Those of other thresholds, as far as they were asked for."""
    return []


def _gathers(job: Job) -> bool:
    return job.ranks > 1 or job.strategy.offload_param is not None or secondary_ranks(job) > 0


NOTHING = GatheredTimeline.of([0] * len(GatheredTimeline._fields))
NOTHING_GATHERED = MicroStep([], NOTHING, NOTHING, ())


def _host_changes_gathers(job: Job) -> bool:
    """Whether partitions come from the host and that changes more than what is copied beside a gather."""
    return job.strategy.offload_param is not None and (job.ranks == 1 or secondary_ranks(job) > 0)


@cached(_gathers_key, order=_by_partitions)
def _settings(job: Job) -> Settings:
    order, strategy = job.execution, job.strategy
    return Settings(
        frozenset(small_tensors(job)), job.ranks,
        1 if strategy.allgather_sequential else strategy.prefetch_bucket_size, strategy.max_live_parameters,
        strategy.max_reuse_distance, _micro_steps_that_differ(strategy), _host_changes_gathers(job),
        strategy.all_reduce_for_fetch, strategy.allgather_sequential, order.leaves, order.subtrees,
        _viewed(job),
        _checkpointed(job), strategy.recomputing.reentrant, frozenset(swapped_parameters(job)), parameter_buffers(job),
        _low_precision(job), strategy.element_bytes if strategy.quantized_weights else 2,
        strategy.dtype if strategy.quantized_weights else "", secondary_sizes(job), secondary_ranks(job),
        job.model.frozen, _held(job), replaced(job),
        replaced(job).intersection(persistent_tensors(job)), gathered_widths(job), _of_each_dtype(job),
    )  # fmt: skip


def _held(job: Job) -> frozenset[int]:
    """Packed weights of the layers that backward enters: 4-bit, as MatMul8bitLt keeps codes of its module's."""
    if not job.model.packed or job.model.in_8_bit:
        return frozenset()
    return frozenset(index for index in _entered(job) if job.model.tensors[index].packed)


@cached_per_execution
def _entered(job: Job) -> frozenset[int]:
    """Tensors of the modules that backward enters: others leave no graph."""
    return frozenset(index for hook in job.execution.backward if hook.enters for index in hook.tensors)


def _viewed(job: Job) -> frozenset[int]:
    """Tensors of which forward saves views for backward."""
    entered = _entered(job) if job.model.frozen else range(len(job.model.tensors))
    return frozenset(index for index in entered if _is_viewed(job.model.tensors[index], job.strategy))


def _of_each_dtype(job: Job) -> tuple[frozenset[int], ...]:
    """Tensors whose gathers are one call, in the order of the calls (runtime/torch_autocast.py:sort_dtypes)."""
    if not gathered_widths(job):
        return ()
    dtypes = partition_dtypes(job)
    return tuple(
        frozenset(index for index, each in enumerate(dtypes) if each == dtype) for dtype in sorted(set(dtypes))
    )


def _checkpointed(job: Job) -> frozenset[int]:
    recomputing = job.strategy.recomputing
    layers = [layer for layer in job.execution.layers if recomputing.has(layer.place)]
    return frozenset(index for layer in layers for index in range(layer.tensor, layer.tensor + layer.tensors))


def _is_viewed(tensor: ParameterSpec, strategy: Strategy) -> bool:
    """Torch's own linear saves its weight transposed; DeepSpeed's, memory_efficient_linear, the weight itself.

    So do Liger's experts. Under autocast torch's saves the 16-bit copy.
    """
    viewed = tensor.viewed and strategy.kernels != "liger"
    by_torch = not strategy.memory_efficient_linear and not strategy.autocast_dtype
    return viewed or (tensor.linear and len(tensor.shape) > 1 and by_torch)


def _low_precision(job: Job) -> frozenset[int]:
    if job.strategy.quantized_weights:
        return frozenset(range(len(job.model.tensors)))
    linear = (index for index, tensor in enumerate(job.model.tensors) if tensor.linear)
    return frozenset(linear if job.strategy.autocast_dtype else ())


class PrefetchSettings(NamedTuple):
    """offload_param.buffer_count and stage3_prefetch_bucket_size."""

    buffer_count: int
    prefetch_bucket_size: int


@cached(_gathers_key, order=_by_partitions)
def sufficient_buffers(job: Job) -> PrefetchSettings | None:
    """The first that DeepSpeed can train with: what is there, more buffers, or no prefetch of a tensor's second use."""
    params = job.strategy.offload_param
    assert params is not None
    assert params.device == "nvme"
    counts, swapped = [parameter_buffers(job)], len(swapped_parameters(job))
    while counts[-1] < swapped:
        counts.append(2 * counts[-1])
    for bucket in (job.strategy.prefetch_bucket_size, 0):
        for count in counts:
            result = _replay(job.at(prefetch_bucket_size=bucket, offload_param=params._replace(buffer_count=count)))
            if isinstance(result, Replay):
                return PrefetchSettings(count, bucket)
            if not (isinstance(result, OutOfBuffersError) and result.more_may_help):
                break
    return None


class TooFewBuffersError(ContradictionError):
    """Worded when it is read: a search that leaves such a job out needs no advice, which takes replays."""

    def __init__(self, job: Job) -> None:
        super().__init__("too few buffers for NVMe")
        self.job = job

    def __str__(self) -> str:
        result, advice = parameter_buffers(self.job), ""
        if enough := sufficient_buffers(self.job):
            written = [f'"buffer_count": {enough.buffer_count}'] * (enough.buffer_count != result)
            written += ['"stage3_prefetch_bucket_size": 0'] * (enough.prefetch_bucket_size == 0)
            advice = f", write {' and '.join(written)}"
        return (
            f"offload_param: found buffer_count {result}, expected one for each partition that is read from NVMe and "
            f"not released yet; DeepSpeed stops in training (Not enough buffers){advice}"
        )


def _replayed(job: Job, settings: Settings) -> MicroSteps:
    """The steps before it, then the one that is looked at: the second, or the third where the first leaves more behind
    than what is kept for reuse, which is decided once.
    """
    if settings.grad_accum == 1:  # every step after the first starts from the same state
        coordinator = _coordinator(job, settings)
        coordinator.gather_persistent()
        steady = coordinator.micro_step()
        return MicroSteps((), steady, steady, coordinator.holds)
    if settings.swapped:
        coordinator = _coordinator(job, settings)
        before = [coordinator.micro_step(records=True)]
    else:
        recorded, recording = _recorded(job)
        coordinator, before = recorded.under(settings), [recording]
    before += [coordinator.micro_step() for _micro in range(settings.grad_accum - 1)]
    coordinator.gather_persistent()
    if settings.swapped or settings.all_reduce or settings.low_precision:
        for _micro in range(settings.grad_accum):
            coordinator.micro_step()
        coordinator.gather_persistent()
    steady = coordinator.micro_step()
    later = coordinator.micro_step() if settings.second else steady
    return MicroSteps(tuple(before), steady, later, coordinator.holds)


def first_step_micro_steps(job: Job) -> tuple[MicroStep, ...]:
    """Micro-steps of the first optimizer step: the one that records the trace, and later ones; none for one rank.

    Raises `ContradictionError` as `micro_steps`.
    """
    result = micro_steps(job)
    return result.before or ((_recording(job),) if _gathers(job) else ())


def _recording(job: Job) -> MicroStep:
    """The run's first micro-step."""
    try:
        recording = _recorded(job)[1]
    except OutOfBuffersError as error:
        raise TooFewBuffersError(job) from error
    return recording.from_host if job.strategy.offload_param else recording


@cached(_beside_thresholds, order=_by_partitions)
def _recorded(job: Job) -> tuple[Coordinator, MicroStep]:
    """The run's first micro-step, in which nothing is prefetched or kept, so that no threshold matters, and what it
    leaves behind.
    """
    settings = _settings(job)._replace(prefetch_bucket_size=0, max_live_parameters=0, max_reuse_distance=0)
    coordinator = _coordinator(job, settings)
    return coordinator, coordinator.micro_step(records=True)


def _coordinator(job: Job, settings: Settings) -> Coordinator:
    return Coordinator(tensor_sizes(job), settings, access_order_of(job))


@cached_per_execution
def access_order_of(job: Job) -> AccessOrder:
    """The model's, as this job runs it."""
    order = job.execution
    return access_order(
        tensor_sizes(job), (order.forward, job.backward_hooks), order.leaves, order.subtrees, order.parametrized,
        frozenset(job.model.added if job.strategy.builds_partitioned else ()),  # these are numbered last
        job.model.frozen,
    )


def with_room(job: Job) -> Job:
    """The job with buffers that take its largest tensor and are enough; sizes and counts that were stated stay."""
    params, largest = job.strategy.offload_param, ceil_div(job.model.largest.elements, job.ranks)
    if params is None or params.device != "nvme" or job.strategy.stage != 3:
        return job
    open_size = params.buffer_size == DEFAULT_SIZE
    if open_size and largest > DEFAULT_SIZE:
        job = job.at(offload_param=params._replace(buffer_size=largest))
    if params.buffer_count:
        return job
    enough = sufficient_buffers(job)
    if enough is None or enough.buffer_count == parameter_buffers(job):
        return job
    size = largest if open_size else params.buffer_size
    return job.at(
        offload_param=params._replace(buffer_size=size, buffer_count=enough.buffer_count),
        prefetch_bucket_size=enough.prefetch_bucket_size,
    )
