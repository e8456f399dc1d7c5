"""What DeepSpeed 0.19.8 moves: each collective per micro-step and per step, from replays of its order of events."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence

from zeroplan.costs.cache import cached, gradients, order_free_key
from zeroplan.costs.deepspeed import muon_gather, muon_offload, quantized_collectives, zenflow
from zeroplan.costs.deepspeed.events import Gather, MicroStep
from zeroplan.costs.deepspeed.fetch import beside_order, by_order, by_replay, distinct, micro_steps
from zeroplan.costs.deepspeed.layout import (
    Group,
    bucket_dtypes,
    communication_dtypes,
    flat_groups,
    layout_key,
    tensor_sizes,
    trainable_sizes,
)
from zeroplan.costs.deepspeed.partitions import padded_sizes, persistent_tensors, sub_groups
from zeroplan.costs.deepspeed.quantized_collectives import CollectiveCall
from zeroplan.costs.deepspeed.reduction import (
    Bucket,
    buckets,
    cached_per_reductions,
    engine_runs,
    reduction,
    reductions,
)
from zeroplan.costs.engine import BACKWARD, EVERY, FIRST, FORWARD, LAST, LATER, UPDATE, PhaseTransfer
from zeroplan.formulas import volume
from zeroplan.ledger import DTYPE_BYTES, Rule, Transfer
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Strategy

MICRO_STEP, STEP = "micro_step", "step"


@cached(beside_order, order=by_order)
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
        *_calls(job, when, [CollectiveCall(call.kind, call.elements, dtype, job.ranks) for dtype, call in calls]),
        *_calls(job, MICRO_STEP, zenflow.sent(job)),
        *_calls(job, STEP, zenflow.sent_to_choose(job)),
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


def _of_muon(job: Job) -> list[Transfer]:
    """What Muon gathers to make whole matrices of, where it runs in the step."""
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
    if job.strategy.stage == 2 or job.strategy.overlaps:
        return job.execution.gradients
    return [index for layout in flat_groups(job) for index in layout.order]


def gathers(job: Job) -> tuple[str, list[Gather]]:
    """When, and what: every micro-step gathers the same, but for secondary partitions, which the first makes (hpZ)."""
    result = micro_steps(job)
    if result.later is result.steady:
        return MICRO_STEP, [*result.steady.calls]
    return STEP, [*result.steady.calls, *(job.strategy.grad_accum - 1) * [*result.later.calls]]


def _gathered(job: Job, gather: Gather) -> list[CollectiveCall]:
    """Quantized ones carry codes and scales."""
    strategy = job.strategy
    if strategy.quantized_weights:
        return list(quantized_collectives.gathered(gather))
    dtype = strategy.autocast_dtype if gather.low_precision and strategy.autocast_dtype else strategy.dtype
    return [CollectiveCall("all_reduce" if gather.joined else "all_gather", gather.elements, dtype, gather.ranks)]


def _calls(job: Job, when: str, calls: list[CollectiveCall]) -> list[Transfer]:
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


cached_per_replay = cached(_gathered_key, order=by_replay)


@cached_per_replay
def gathered_for_modules(job: Job) -> list[Transfer]:
    """Stage 3's, in both passes."""
    when, issued = gathers(job)
    return _calls(job, when, _issued(job, issued))


def _of_pass(micro_step: MicroStep, pass_index: int) -> list[Gather]:
    """0: forward, 1: backward."""
    return [gather for gather in micro_step.calls if gather.pass_index == pass_index]


def _issued(job: Job, gathers: Iterable[Gather]) -> list[CollectiveCall]:
    return [call for gather in gathers for call in _gathered(job, gather)]


@cached_per_replay
def gathered_in_passes(job: Job) -> tuple[list[Transfer], ...]:
    """The same by the pass that issues it: of a step's first micro-step, and of each later one where that differs."""
    return tuple(
        [
            transfer
            for pass_index, name in enumerate((FORWARD, BACKWARD))
            for transfer in _calls(job, name, _issued(job, _of_pass(each, pass_index)))
        ]
        for each in distinct(micro_steps(job))
    )


@cached_per_reductions
def _gradients(job: Job) -> list[Transfer]:
    return _calls(job, MICRO_STEP, list(reductions(job).sent))


def _stage_3(job: Job) -> list[Transfer]:
    strategy = job.strategy
    norm = "float32" if strategy.offload_optimizer else "float64"
    if strategy.quantized_weights:
        quantized_collectives.check_partitions(job)
    return [
        *gathered_for_modules(job),
        *_gradients(job),
        *_numbers(job, STEP, "uint8", int(strategy.precision == "fp16")),
        *_numbers(job, STEP, norm, len(sub_groups(job))),
        *_of_muon(job),
        *_moved(job, STEP, "all_gather", strategy.dtype,
                list(map(padded_sizes(job).__getitem__, persistent_tensors(job)))),
    ]  # fmt: skip


def in_phases(job: Job, traffic: Sequence[Transfer]) -> Iterator[PhaseTransfer]:
    """Gathers of stage 3 run in the pass that issues them, reductions in backward, the rest after the step.

    Those of stage 1 come in the last micro-step's backward.
    """
    gathers = gathered_for_modules(job) if job.strategy.stage == 3 and job.ranks > 1 else []
    for entry in traffic:
        if entry in gathers:
            if entry == gathers[0]:
                yield from _gathers_in_phases(job)
        elif entry.when == MICRO_STEP:
            yield PhaseTransfer(BACKWARD, entry)
        elif _in_last_backward(job, entry):
            yield PhaseTransfer(BACKWARD, entry, LAST)
        else:
            yield PhaseTransfer(UPDATE, entry)


def _gathers_in_phases(job: Job) -> Iterator[PhaseTransfer]:
    each = gathered_in_passes(job)
    for name, transfers in zip((FIRST, LATER) if len(each) > 1 else (EVERY,), each, strict=True):
        for transfer in transfers:
            yield PhaseTransfer(transfer.when, transfer, name, gathers=True)


def _in_last_backward(job: Job, entry: Transfer) -> bool:
    """Stage 1's buckets; what the engine reduces by itself, at stage 0 and for BF16_Optimizer, comes after it."""
    by_engine = not job.strategy.stage or job.strategy.runs_bf16_optimizer
    return "reduce" in entry.collective and entry.rule is volume.replayed and not by_engine
