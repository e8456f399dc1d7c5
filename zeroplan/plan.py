"""A plan: the fastest strategy that fits, the runners-up with what they lost by, and ways out when nothing fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from zeroplan.errors import ContradictionError
from zeroplan.search import Candidate, best_micro_batch, choices, micro_batches, too_large
from zeroplan.specs.job import Job
from zeroplan.units import gib, seconds

TIE = 0.03
"""Strategies within this share of the fastest step count as equally fast: the simpler one is taken."""
EQUAL = 0.0005
"""A share of the step under which two plans count as the same."""
USUAL_BATCH = 256
"""Sequences per step when no global batch is asked for."""
LARGEST_TRIED = 4096
"""GPUs up to which a way out is looked for."""


class Rejected(NamedTuple):
    """A neighbour of the chosen plan and why it lost."""

    candidate: Candidate
    reason: str


class WayOut(NamedTuple):
    """A single change after which something fits."""

    change: str
    candidate: Candidate


class Plan(NamedTuple):
    chosen: Candidate | None
    rejected: tuple[Rejected, ...]
    ways_out: tuple[WayOut, ...]


def label(candidate: Candidate) -> str:
    """A strategy in a few words: ZeRO-2, micro-batch 8, full checkpointing, optimizer on cpu."""
    strategy = candidate.strategy
    parts = [f"ZeRO-{strategy.stage}", f"micro-batch {strategy.micro_batch}"]
    if strategy.checkpointing != "none":
        parts.append(f"{strategy.checkpointing} checkpointing")
    if strategy.offload_optimizer:
        parts.append(f"optimizer on {strategy.offload_optimizer.device}")
    if strategy.offload_param:
        parts.append(f"parameters on {strategy.offload_param.device}")
    return ", ".join(parts)


def simplicity(candidate: Candidate) -> tuple[int, int, int, int]:
    """Smaller is simpler: no offload, then the lowest stage, then no checkpointing, then the larger micro-batch."""
    strategy = candidate.strategy
    devices = [part.device for part in (strategy.offload_optimizer, strategy.offload_param) if part]
    offload = sum({"cpu": 1, "nvme": 3}[device] for device in devices)
    return offload, strategy.stage, int(strategy.checkpointing != "none"), -strategy.micro_batch


def usual_batch(job: Job) -> int:
    """Sequences per step when none is asked for: near 256, and a multiple of the GPUs."""
    return max(1, round(USUAL_BATCH / job.ranks)) * job.ranks


def plan(job: Job, settled: dict[str, Any], *, reserve: float, rescue: bool = True) -> Plan:
    """The fastest strategy that fits `job`'s cluster; ties go to the simplest. Settled fields are kept."""
    per_gpu = _per_gpu(job, settled)
    sizes = micro_batches(per_gpu, settled)
    strategies = [job.at(**choice) for choice in choices(job, settled)]
    if not strategies:
        raise ContradictionError(
            "nothing to choose from: no strategy has all that was asked for; leave out --stage or an --offload option"
        )
    if not rescue:  # nobody asks what the others need
        smallest = {"micro_batch": sizes[-1], "grad_accum": per_gpu // sizes[-1]}
        strategies = [strategy for strategy in strategies if not too_large(strategy.at(**smallest), reserve)]
    found = [best_micro_batch(strategy, sizes, per_gpu, reserve) for strategy in strategies]
    fitting = [best for best, _larger in found if best.fit.fits is not False]
    if not fitting:
        failing = sorted((best for best, _larger in found), key=lambda c: c.fit.gpu.needed)
        rejected = tuple(Rejected(candidate, candidate.fit.shortage) for candidate in failing)
        ways = ways_out(job, settled, reserve=reserve) if rescue else ()
        return Plan(None, rejected, ways)
    fastest = max(fitting, key=lambda candidate: candidate.throughput)
    enough = fastest.throughput * (1 - TIE)
    chosen = min((c for c in fitting if c.throughput >= enough), key=simplicity)
    larger = next((bigger for best, bigger in found if best is chosen), None)
    others = [best for best, _larger in found if best is not chosen]
    rejected = tuple(Rejected(c, _reason(c, chosen)) for c in _neighbours(larger, others))
    return Plan(chosen, rejected, ())


def _per_gpu(job: Job, settled: dict[str, Any]) -> int:
    """Sequences one GPU sees per step."""
    if "micro_batch" in settled:
        return int(settled["micro_batch"]) * int(settled.get("grad_accum", 1))
    total = job.workload.global_batch or usual_batch(job)
    return max(total // job.ranks, int(settled.get("grad_accum", 1)))


def _neighbours(larger: Candidate | None, others: list[Candidate]) -> list[Candidate]:
    """The larger micro-batch, then the best of each other stage, offload and checkpointing."""
    picked = [larger] if larger else []
    best: dict[tuple[object, ...], Candidate] = {}
    for candidate in sorted(others, key=lambda c: (c.fit.fits is False, -c.throughput, c.fit.gpu.needed)):
        strategy = candidate.strategy
        best.setdefault((strategy.stage, bool(strategy.offload_optimizer)), candidate)
    return picked + sorted(best.values(), key=lambda c: (c.fit.fits is False, -c.throughput))


def _reason(candidate: Candidate, chosen: Candidate) -> str:
    if candidate.fit.fits is False:
        return candidate.fit.shortage
    per_sequence = candidate.time.total / (candidate.strategy.micro_batch * candidate.strategy.micro_steps)
    reference = chosen.time.total / (chosen.strategy.micro_batch * chosen.strategy.micro_steps)
    lost = (per_sequence - reference) * chosen.strategy.micro_batch * chosen.strategy.micro_steps
    share = lost / chosen.time.total
    if abs(share) < EQUAL:
        return f"{seconds(abs(lost))} a step apart, needs {gib(candidate.fit.gpu.needed)}: the simpler plan is taken"
    if share < 0:
        return f"{seconds(-lost)} a step faster, within the {TIE:.0%} that count as equal: the simpler plan is taken"
    line = _slowest_part(candidate, chosen)
    return f"{seconds(lost)} a step slower (+{share:.0%}: {line}), peak {gib(candidate.fit.gpu.needed)}"


def _slowest_part(candidate: Candidate, chosen: Candidate) -> str:
    """The part of the step that grew most."""
    names = {
        "compute": "compute" if candidate.strategy.checkpointing == "none" else "recomputation",
        "exposed_communication": "communication",
        "offload": "offload",
        "optimizer": "optimizer",
    }
    grown = {n: getattr(candidate.time, n) - getattr(chosen.time, n) for n in names}
    return names[max(grown, key=lambda n: grown[n])]


def ways_out(job: Job, settled: dict[str, Any], *, reserve: float) -> tuple[WayOut, ...]:
    """Single changes to what was asked, each tried, after which something fits."""
    ways: list[WayOut] = []

    def attempt(change: str, changed: Job, free: dict[str, Any]) -> bool:
        found = plan(changed, free, reserve=reserve, rescue=False).chosen
        if found:
            ways.append(WayOut(f"{change}: {label(found)}; needs {gib(found.fit.gpu.needed)}", found))
        return found is not None

    for name, text in _LOOSENED.items():
        if settled.get(name) not in (None, "full") or (name in settled and settled[name] is None):
            free = {key: value for key, value in settled.items() if key != name}
            if name == "attention" and not job.model.has_sdpa and job.model.no_flash:
                continue
            other = job.at(attention="sdpa" if job.model.has_sdpa else "flash_attention_2")
            attempt(text(settled[name]), other if name == "attention" else job, free)
    _shorter(job, settled, attempt)
    _more_gpus(job, settled, attempt)
    return tuple(ways)


_LOOSENED: dict[str, Callable[[Any], str]] = {
    "checkpointing": lambda value: f"full checkpointing instead of {value} (--checkpointing full)",
    "stage": lambda value: f"another stage than {value} (leave --stage out)",
    "offload_optimizer": lambda _value: "the optimizer offloaded (leave --offload-optimizer out)",
    "micro_batch": lambda value: f"a smaller micro-batch than {value} (leave --micro-batch out)",
    "attention": lambda value: (
        f"fused attention instead of {value} (--attention sdpa, or flash_attention_2 where it is not there)"
    ),
}


def _shorter(job: Job, settled: dict[str, Any], attempt: Callable[[str, Job, dict[str, Any]], bool]) -> None:
    seq = job.workload.seq // 2
    while seq >= 256:
        if attempt(
            f"a sequence of {seq} (--seq {seq})", job._replace(workload=job.workload._replace(seq=seq)), settled
        ):
            return
        seq //= 2


def _more_gpus(job: Job, settled: dict[str, Any], attempt: Callable[[str, Job, dict[str, Any]], bool]) -> None:
    """The fewest GPUs of this kind: whole nodes, doubled until something fits, then halved back."""

    def sized(nodes: int, per_node: int) -> Job:
        return job._replace(cluster=job.cluster._replace(nodes=nodes, gpus_per_node=per_node))

    per_node, nodes = job.cluster.gpus_per_node, job.cluster.nodes
    counts = [(nodes, n) for n in (2, 4, 8) if n > per_node and nodes == 1]
    width = max(per_node, 8) if nodes == 1 else per_node
    while nodes * 2 * width <= LARGEST_TRIED:
        nodes *= 2
        counts.append((nodes, width))
    for count, width_tried in counts:
        text = f"{count * width_tried} GPUs (--gpus {count}x{width_tried})"
        if attempt(text, sized(count, width_tried), settled):
            return
