"""A plan's settings and what they come to, in words."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zeroplan.clock import GROUPS
from zeroplan.costs.timing.speed import speed_of
from zeroplan.fit import PLACES, TierFit
from zeroplan.ledger import total
from zeroplan.plan import OFFLOADS
from zeroplan.report import training
from zeroplan.report.subject import gpus
from zeroplan.search import Candidate
from zeroplan.search.neighbours import words
from zeroplan.specs.strategy import Strategy
from zeroplan.units import gb, gib, seconds

if TYPE_CHECKING:
    from zeroplan.training import TrainingRun


def plan_rows(chosen: Candidate, run: TrainingRun | None = None) -> list[tuple[str, str]]:
    """The plan's settings and what they come to, each with its name."""
    strategy, job = chosen.strategy, chosen.job
    sequences = strategy.micro_batch * strategy.micro_steps * job.ranks
    where = chosen.ledger.gpu.peak.phase.replace("first_", "the first step's ")
    rows = [
        ("ZeRO stage", _stage(strategy)),
        ("batch", f"micro-batch {strategy.micro_batch} × accumulation {strategy.micro_steps} × {gpus(job)}"
         f" = {sequences} sequences of {job.workload.seq} tokens a step"),
        ("checkpointing", strategy.checkpointing),
        ("attention", attention_of(chosen)),
        ("offload", _offload(chosen)),
        ("buckets", buckets(strategy)),
        *thresholds(strategy),
        ("GPU memory", f"held {gib(total(chosen.ledger.gpu.resident))}, peak {gib(total(chosen.ledger.gpu.peak.lines))}"
         f" in {where}, {_room(chosen.fit.gpu)}"),
    ]  # fmt: skip
    for key in ("host", "nvme"):
        tier: TierFit = getattr(chosen.fit, key)
        if tier.needed:
            rows.append((PLACES[key], f"{gib(tier.needed)}, up to {gib(tier.most)}; {_room(tier)}"))
    rows.append(("sent per GPU", f"{gb(chosen.ledger.sent(strategy.micro_steps))} a step"))
    return [*rows, *_step(chosen), *(training.rows(run) if run else [])]


def _step(chosen: Candidate) -> list[tuple[str, str]]:
    speed = speed_of(chosen.job, chosen.time)
    low, high = seconds(speed.interval.low), seconds(speed.interval.high)
    parts = ", ".join(f"{group} {seconds(chosen.time.of(group))}" for group in GROUPS if chosen.time.of(group))
    card = "" if chosen.job.cluster.gpu else "; no card is named, and rates are guessed"
    used = f", MFU {speed.utilisation[0].value:.0%} (PaLM)" if speed.utilisation else ""
    return [
        ("step", f"{seconds(chosen.time.total)}, from {low} to {high}: {parts}{card}"),
        ("tokens/s", f"{speed.tokens_per_gpu:,.0f} per GPU{used}"),
    ]


def attention_of(chosen: Candidate) -> str:
    """What transformers takes by itself needs no word; what it does not, how to have it."""
    name, usual = chosen.strategy.attention, "sdpa" if chosen.job.model.has_sdpa else "eager"
    return name if name == usual else f'{name} (load the model with attn_implementation="{name}")'


def _stage(strategy: Strategy) -> str:
    within = strategy.hpz_partition_size
    return f"{strategy.stage}{f', secondary partitions among each {within} GPUs (hpZ)' if within > 1 else ''}"


def thresholds(strategy: Strategy) -> list[tuple[str, str]]:
    """In elements, where they are not all DeepSpeed's own."""
    live, reuse = strategy.max_live_parameters, strategy.max_reuse_distance
    usual, rows = Strategy(stage=3), []
    if strategy.stage < 3:
        return []
    if (live, reuse) != (usual.max_live_parameters, usual.max_reuse_distance):
        rows.append(("gathered", f"{live:,} elements live at most, kept when used again within {reuse:,}"))
    if strategy.sub_group_size != usual.sub_group_size:
        rows.append(("updated", f"by sub-groups of {strategy.sub_group_size:,} elements"))
    return rows


def buckets(strategy: Strategy) -> str:
    if strategy.stage == 0:
        return "none at stage 0"
    prefetch = f", prefetch {strategy.prefetch_bucket_size:,}" if strategy.stage == 3 else ""
    overlap = ", reduced while backward goes on" if strategy.overlaps else ""
    apart = "" if strategy.contiguous else ", gradients not copied into it"
    return f"reduce {strategy.reduce_bucket_size:,} elements{prefetch}{overlap}{apart}"


def _room(tier: TierFit) -> str:
    if tier.headroom is None:
        return "capacity not stated"
    return f"{gib(tier.headroom)} free" if tier.headroom >= 0 else f"{gib(-tier.headroom)} too many"


def _offload(chosen: Candidate) -> str:
    parts = ((name, getattr(chosen.strategy, name)) for name in OFFLOADS)
    return ", ".join(words(name, part) for name, part in parts if part) or "none"
