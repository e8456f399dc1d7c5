"""What DeepSpeed 0.19.8 moves: each collective per micro-step and per step, from replays of its order of events."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence

from zeroplan.costs.cache import cached, gradients, order_free_key
from zeroplan.costs.deepspeed import quantized_collectives
from zeroplan.costs.deepspeed.events import Gather
from zeroplan.costs.deepspeed.fetch import by_gathers, by_order, micro_steps, replay_free_key
from zeroplan.costs.deepspeed.layout import (
    Group,
    bucket_dtypes,
    communication_dtypes,
    flat_groups,
    layout_key,
    tensor_sizes,
    trainable_sizes,
)
from zeroplan.costs.deepspeed.muon import matrices
from zeroplan.costs.deepspeed.partitions import (
    padded_sizes,
    partition_dtypes,
    persistent_tensors,
    sub_groups,
    trained_dtype,
)
from zeroplan.costs.deepspeed.quantized_collectives import CollectiveCall
from zeroplan.costs.deepspeed.reduction import (
    Bucket,
    buckets,
    cached_per_reductions,
    engine_runs,
    reduction,
    reductions,
)
from zeroplan.formulas import volume
from zeroplan.ledger import DTYPE_BYTES, Rule, Transfer
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Strategy

MICRO_STEP, STEP = "micro_step", "step"


@cached(replay_free_key, order=by_order)
def traffic(job: Job) -> tuple[Transfer, ...]:
    """Buckets are all-reduced at stages 1 and 2, so their volume is 3Ψ on a ring where the paper says 2Ψ.

    With one rank DeepSpeed issues most of them all the same; they move nothing and are left out.
    """
    if job.ranks == 1:
        return ()
    return tuple({0: _stage_0, 1: _stages_1_2, 2: _stages_1_2, 3: _stage_3}[job.strategy.stage](job))


def _moved(job: Job, when: str, collective: str, dtype: str, elements: Iterable[int]) -> list[Transfer]:
    calls = list(elements)
    symbols = {"moved": sum(calls), "w": DTYPE_BYTES[dtype]}
    return _sent(job, when, collective, dtype, len(calls), volume.replayed, symbols)


def _numbers(job: Job, when: str, dtype: str, calls: int) -> list[Transfer]:
    symbols = {"tensors": calls, "w": DTYPE_BYTES[dtype]}
    return _sent(job, when, "all_reduce", dtype, calls, volume.scalars, symbols)


def _sent(
    job: Job, when: str, collective: str, dtype: str, calls: int, rule: Rule, symbols: dict[str, int]
) -> list[Transfer]:
    """One transfer for all calls of a kind, none when there are none."""
    if not calls:
        return []
    return [Transfer(when, collective, dtype, calls, rule(**symbols), job.ranks, "dp", rule, symbols)]


def _stage_0(job: Job) -> list[Transfer]:
    """The engine reduces all gradients after the last micro-step, in runs; fp32 with clipping adds its norm."""
    calls = _engine_runs(trainable_sizes(job))
    clips = job.strategy.precision == "fp32" and job.strategy.gradient_clipping > 0
    return [
        *_moved(job, STEP, "all_reduce", job.strategy.communication, calls),
        *_numbers(job, STEP, "float32", int(clips)),
    ]


def _engine_runs(sizes: list[int]) -> list[int]:
    """Elements of the engine's all-reduces."""
    return [sum(part.elements for part in run) for run in engine_runs(sizes)]


@cached(order_free_key, order=gradients)
def _stages_1_2(job: Job) -> list[Transfer]:
    strategy, groups = job.strategy, flat_groups(job)
    if strategy.runs_bf16_optimizer:
        return _bf16_optimizer(job, groups)
    collectives = reduction(job)
    calls = [(dtype, collective) for dtype, bucket in reduced(job) for collective in collectives.of(bucket.tensors)]
    when = MICRO_STEP if strategy.reduces_every_micro_step else STEP
    in_bf16 = strategy.dtype == "bfloat16" and strategy.check_grad_overflow and not strategy.overlaps_update
    checks = strategy.precision == "fp16" or in_bf16
    return [
        *by_kind(job, when, [CollectiveCall(call.kind, call.elements, dtype, job.ranks) for dtype, call in calls]),
        *(_of_zenflow(job) if strategy.selective else []),
        *_numbers(job, STEP, "uint8", int(checks)),
        *_numbers(job, STEP, "float32", len(groups) if strategy.compute_grad_norm else 0),
        *_moved(job, STEP, "all_gather", strategy.dtype, [layout.flat for layout in groups]),
        *(_of_muon(job) if strategy.offload_optimizer else []),
    ]


def _bf16_optimizer(job: Job, groups: list[Group]) -> list[Transfer]:
    """The engine reduces the groups' flat gradients as at stage 0; partitions are gathered after the step.

    Of an all-to-all a rank's own part is counted: what it sends to all others.
    """
    from zeroplan.costs.deepspeed import muon_update

    calls = _engine_runs([layout.flat for layout in groups])
    return [
        *_moved(job, STEP, "all_reduce", job.strategy.communication, calls),
        *_moved(job, STEP, "all_to_all", "float32", [exchange.sent for exchange in muon_update.exchanges(job)]),
        *_moved(job, STEP, "all_gather", job.strategy.dtype, [layout.flat for layout in groups]),
    ]


def _of_zenflow(job: Job) -> list[Transfer]:
    from zeroplan.costs.deepspeed import zenflow

    return [*by_kind(job, MICRO_STEP, zenflow.sent(job)), *by_kind(job, STEP, zenflow.sent_to_choose(job))]


def _of_muon(job: Job) -> list[Transfer]:
    """What Muon gathers to make whole matrices of, where it runs in the step."""
    if not matrices(job):
        return []
    from zeroplan.costs.deepspeed import muon_gather, muon_offload

    if job.strategy.offload_optimizer:
        return _moved(job, STEP, "all_gather", *muon_offload.sent(job))
    return _moved(job, STEP, "all_gather", job.strategy.communication, muon_gather.sent(job))


def _reduced_key(strategy: Strategy) -> Hashable:
    return (
        strategy.stage == 2 or strategy.overlaps, layout_key(strategy), strategy.reduce_bucket_size,
        strategy.autocast_dtype, strategy.communication,
    )  # fmt: skip


@cached(_reduced_key, order=gradients)
def reduced(job: Job) -> list[tuple[str, Bucket]]:
    """Buckets of gradients at stages 1 and 2, those of one dtype after those of another."""
    sent, sizes, limit = communication_dtypes(job), tensor_sizes(job), job.strategy.reduce_bucket_size
    return [
        (dtype, bucket)
        for dtype in bucket_dtypes(job)
        for bucket in buckets((index for index in gradient_order(job) if sent[index] == dtype), sizes, limit)
    ]


def gradient_order(job: Job) -> Sequence[int]:
    """The order in which gradients reach the bucket: as backward makes them, or group by group at stage 1's end."""
    reached = job.execution.gradients
    if job.strategy.stage == 2 or job.strategy.overlaps:
        return reached
    known = frozenset(reached)
    return [index for layout in flat_groups(job) for index in layout.order if index in known]


def gathers(job: Job) -> tuple[str, list[Gather]]:
    """When, and what: every micro-step gathers the same, but for secondary partitions, which the first makes (hpZ)."""
    result = micro_steps(job)
    if result.later is result.steady:
        return MICRO_STEP, [*result.steady.calls]
    return STEP, [*result.steady.calls, *(job.strategy.grad_accum - 1) * [*result.later.calls]]


def by_kind(job: Job, when: str, calls: list[CollectiveCall]) -> list[Transfer]:
    """One transfer for each kind, dtype and group of ranks."""
    sorts: dict[tuple[str, str, int], list[int]] = {}
    for call in calls:
        sorts.setdefault((call.kind, call.dtype, call.ranks), []).append(call.elements)
    return [
        transfer._replace(ranks=ranks, group=_group(job, kind, ranks))
        for (kind, dtype, ranks), elements in sorts.items()
        for transfer in _moved(job, when, kind, dtype, elements)
    ]


def _group(job: Job, kind: str, ranks: int) -> str:
    if kind == "all_to_all":
        return "qgz"
    return "dp" if ranks == job.ranks else "hpz"


def _gathered_key(strategy: Strategy) -> Hashable:
    """Under hpZ the step's are counted over all micro-steps."""
    most = strategy.grad_accum if strategy.hpz_partition_size > 1 else 3
    return strategy.dtype, min(strategy.grad_accum, most)


cached_per_gathers = cached(_gathered_key, order=by_gathers)


@cached_per_gathers
def gathered_for_modules(job: Job) -> list[Transfer]:
    """Stage 3's, in both passes."""
    when, issued = gathers(job)
    return by_kind(job, when, calls_of(job, issued))


def calls_of(job: Job, gathers: Iterable[Gather]) -> list[CollectiveCall]:
    """Quantized ones carry codes and scales."""
    strategy = job.strategy
    if strategy.quantized_weights:
        return [call for gather in gathers for call in quantized_collectives.gathered(gather)]
    dtypes, low = partition_dtypes(job), strategy.autocast_dtype or strategy.dtype
    return [
        CollectiveCall(
            "all_reduce" if gather.joined else "all_gather", gather.elements,
            low if gather.low_precision else dtypes[gather.tensors[0]], gather.ranks,
        )
        for gather in gathers
    ]  # fmt: skip


@cached_per_reductions
def _gradients(job: Job) -> list[Transfer]:
    return by_kind(job, MICRO_STEP, list(reductions(job).sent))


def _stage_3(job: Job) -> list[Transfer]:
    strategy = job.strategy
    norm = "float32" if strategy.offload_optimizer else "float64"
    if strategy.quantized_weights:
        quantized_collectives.check_partitions(job)
    return [
        *gathered_for_modules(job),
        *_gradients(job),
        *_numbers(job, STEP, "uint8", int(trained_dtype(job) == "float16")),
        *_numbers(job, STEP, norm, len(sub_groups(job))),
        *_of_muon(job),
        *by_kind(job, STEP, _persistent(job)),
    ]


def _persistent(job: Job) -> list[CollectiveCall]:
    """After the step, tensor by tensor."""
    dtypes, padded = partition_dtypes(job), padded_sizes(job)
    return [CollectiveCall("all_gather", padded[at], dtypes[at], job.ranks) for at in persistent_tensors(job)]
