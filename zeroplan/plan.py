"""A plan: the fastest strategy that fits, or the leanest; what its neighbours lost by; ways out when nothing fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from zeroplan.arithmetic import ceil_div
from zeroplan.clock import COMPUTE
from zeroplan.errors import ContradictionError
from zeroplan.search import (
    Candidate,
    Found,
    Front,
    Space,
    evaluate,
    fastest,
    front,
    least_memory,
    nearest,
    neighbours,
    space,
)
from zeroplan.search.neighbours import words
from zeroplan.specs.job import Job
from zeroplan.specs.objective import FASTEST, LEAST_MEMORY
from zeroplan.specs.strategy import FLASH
from zeroplan.units import GB, GiB, gib, seconds

LEAST = 0.00005
"""Share of a step under which nothing is said to be slower or faster."""
WHOLE = 0.01
"""Shares of a step from here on are shown in whole per cent."""
RECOMPUTATION = "recomputation"
WORTH_SAYING = 0.001
"""Shares of a plan's bytes or seconds from which on another package's gain is said."""
OFFLOADS = ("offload_optimizer", "offload_param")
USUAL_BATCH = 256
"""Sequences per step when no global batch is asked for."""
LARGEST_TRIED = 4096
"""GPUs up to which a way out is looked for."""


class Rejected(NamedTuple):
    """A neighbour of the chosen plan and why it lost, or what is nearest to fitting and by how much it does not."""

    candidate: Candidate
    reason: str
    change: str
    """What sets it apart from the plan."""


class WayOut(NamedTuple):
    """A single change after which something fits."""

    change: str
    candidate: Candidate


class Plan(NamedTuple):
    chosen: Candidate | None
    rejected: tuple[Rejected, ...]
    ways_out: tuple[WayOut, ...]
    searched: Found = Found(None)
    objective: str = FASTEST


def label(candidate: Candidate) -> str:
    """A strategy in a few words: ZeRO-2, micro-batch 8, full checkpointing, optimizer on cpu."""
    strategy = candidate.strategy
    parts = [f"ZeRO-{strategy.stage}", f"micro-batch {strategy.micro_batch}"]
    if strategy.checkpointing != "none":
        parts.append(f"{strategy.checkpointing} checkpointing")
    if strategy.attention == "eager" and candidate.job.model.has_sdpa:
        parts.append("eager attention")
    parts += [words(name, getattr(strategy, name)) for name in OFFLOADS if getattr(strategy, name)]
    return ", ".join(parts)


def usual_batch(job: Job) -> int:
    """Sequences per step when none is asked for: near 256, and a multiple of the GPUs."""
    return max(1, round(USUAL_BATCH / job.ranks)) * job.ranks


def plan(
    job: Job, settled: dict[str, Any], *, reserve: float, rescue: bool = True, objective: str = FASTEST,
    fine: bool = True,
) -> Plan:  # fmt: skip
    """The fastest strategy that fits `job`'s cluster; of equally fast ones the simplest. Settled fields are kept.

    Not `fine`: among fewer values of buckets and thresholds.

    `LEAST_MEMORY` as the objective: that which needs fewest bytes of a GPU; of equally lean ones the fastest.
    """
    lean = objective == LEAST_MEMORY
    open_ones = _open(job, settled, fine=fine and not lean)
    found = (least_memory if lean else fastest)(open_ones, reserve)
    if found.best is None:
        failing = sorted(nearest(open_ones, reserve), key=_shortest_first) if rescue else []
        rejected = tuple(Rejected(candidate, candidate.fit.shortage, label(candidate)) for candidate in failing)
        of_host = any("host" in candidate.fit.missing for candidate in failing)
        ways = ways_out(job, settled, reserve=reserve, of_host=of_host) if rescue else ()
        return Plan(None, rejected, ways, found, objective)
    if not rescue:
        return Plan(found.best, (), (), found, objective)
    others, reason = neighbours(open_ones, found.best, reserve), _in_bytes if lean else _in_seconds
    lost = [
        Rejected(other, other.fit.shortage if other.fit.fits is False else reason(other, found.best), change)
        for change, other in others
    ]
    return Plan(found.best, tuple(sorted(lost, key=_leanest_first if lean else _by_loss)), (), found, objective)


def _shortest_first(candidate: Candidate) -> tuple[int, int]:
    """By the bytes that all tiers lack together."""
    return sum(candidate.fit.missing.values()), candidate.fit.gpu.needed


def with_flash(chosen: Candidate, reserve: float) -> Rejected | None:
    """The plan with flash_attention_2, which needs a package of its own; None where it gains nothing."""
    other = evaluate(chosen.job.at(attention=FLASH), reserve)
    less, faster = chosen.fit.gpu.needed - other.fit.gpu.needed, -slower(other, chosen)
    gains = [f"{gib(less)} less"] * (less > WORTH_SAYING * chosen.fit.gpu.needed)
    gains += [f"{seconds(faster)} a step less"] * (faster > WORTH_SAYING * chosen.time.total)
    reason = f"would take {' and '.join(gains)}: install flash-attn and write --attention {FLASH}"
    return Rejected(other, reason, FLASH) if gains else None


def front_of(job: Job, settled: dict[str, Any], *, reserve: float, apart: float) -> Front:
    """Plans of which none is both faster and leaner; see `front`. Settled fields are kept."""
    first = fastest(_open(job, settled, fine=True), reserve).best
    return front(_open(job, settled, fine=False), reserve, apart, first)


def _open(job: Job, settled: dict[str, Any], *, fine: bool) -> Space:
    found = space(job, settled, per_gpu(job, settled), fine=fine)
    if not found.branches:
        raise ContradictionError(
            "nothing to choose from: no strategy has all that was asked for; leave out --stage or an --offload option"
        )
    return found


def _by_loss(rejected: Rejected) -> tuple[bool, float]:
    candidate = rejected.candidate
    return candidate.fit.fits is False, -candidate.throughput


def _leanest_first(rejected: Rejected) -> tuple[bool, float]:
    candidate = rejected.candidate
    return candidate.fit.fits is False, candidate.fit.gpu.needed


def per_gpu(job: Job, settled: dict[str, Any]) -> int:
    """Sequences one GPU sees per step: as asked, or as many micro-steps as come nearest to the usual batch."""
    total = job.workload.global_batch or usual_batch(job)
    if "micro_batch" in settled:
        micro = int(settled["micro_batch"])
        return micro * int(settled.get("grad_accum", max(1, round(total / (micro * job.ranks)))))
    return max(total // job.ranks, int(settled.get("grad_accum", 1)))


def slower(candidate: Candidate, chosen: Candidate) -> float:
    """Seconds that it takes more for as many sequences as a step of the chosen one has; less than zero: fewer."""
    per_sequence, reference = (one.time.total / one.sequences for one in (candidate, chosen))
    return (per_sequence - reference) * chosen.sequences


def _in_bytes(candidate: Candidate, chosen: Candidate) -> str:
    more, lost = candidate.fit.gpu.needed - chosen.fit.gpu.needed, slower(candidate, chosen)
    share = abs(lost) / chosen.time.total
    if share < LEAST:
        beside = "as fast"
    else:
        by = f"{share:.0%}" if share >= WHOLE else f"{share:.2%}"
        beside = f"{seconds(abs(lost))} a step {'slower' if lost > 0 else 'faster'} ({by})"
    if more:
        return f"needs {gib(more)} more, {beside}"
    return f"needs as much, {beside}{': the simpler plan is taken' * (share < LEAST)}"


def _in_seconds(candidate: Candidate, chosen: Candidate) -> str:
    lost = slower(candidate, chosen)
    share = lost / chosen.time.total
    if lost <= 0:
        return f"as fast, needs {gib(candidate.fit.gpu.needed)}: the simpler plan is taken"
    line = _slowest_part(candidate, chosen)
    more = f"+{share:.0%}" if share >= WHOLE else f"+{share:.2%}"
    return f"{seconds(lost)} a step slower ({more}: {line}), needs {gib(candidate.fit.gpu.needed)}"


def _slowest_part(candidate: Candidate, chosen: Candidate) -> str:
    """The part of the step that grew most, for as many sequences."""
    share = chosen.sequences / candidate.sequences
    before, after = _parts(chosen), _parts(candidate)
    return max(after, key=lambda name: share * after[name] - before[name])


def _parts(candidate: Candidate) -> dict[str, float]:
    """Seconds of a step: computing without what checkpointing runs again, that, and what shows of all else."""
    time = candidate.time
    again = sum(entry.seconds for entry in time.terms if entry.group == COMPUTE and entry.name.endswith(RECOMPUTATION))
    return {
        COMPUTE: time.compute - again, RECOMPUTATION: again, "communication": time.exposed_communication,
        "offload": time.offload, "optimizer": time.optimizer,
    }  # fmt: skip


def ways_out(job: Job, settled: dict[str, Any], *, reserve: float, of_host: bool = False) -> tuple[WayOut, ...]:
    """Single changes to what was asked, each tried, after which something fits; `of_host`: it may lack memory."""
    ways: list[WayOut] = []

    def attempt(change: Change, changed: Job, free: dict[str, Any]) -> bool:
        found = plan(changed, free, reserve=reserve, rescue=False, fine=False).chosen
        if found:
            said = change if isinstance(change, str) else change(found)
            ways.append(WayOut(f"{said}: {label(found)}; needs {gib(found.fit.gpu.needed)}", found))
        return found is not None

    for name, text in _LOOSENED.items():
        if settled.get(name) not in (None, "full") or (name in settled and settled[name] is None):
            free = {key: value for key, value in settled.items() if key != name}
            if name == "attention" and not job.model.has_sdpa and job.model.no_flash:
                continue
            other = job.at(attention="sdpa" if job.model.has_sdpa else "flash_attention_2")
            attempt(text(settled[name]), other if name == "attention" else job, free)
    if of_host:
        _more_host(job, settled, attempt)
    _shorter(job, settled, attempt)
    _more_gpus(job, settled, attempt)
    return tuple(ways)


Change = str | Callable[[Candidate], str]
"""What was changed, in words; some say what the plan that then fits needs."""
Attempt = Callable[[Change, Job, dict[str, Any]], bool]
MOST_HOST, MOST_NVME = 4 * 2**40, 16 * 10**12
"""Bytes of a node up to which a way out is looked for."""


_LOOSENED: dict[str, Callable[[Any], str]] = {
    "checkpointing": lambda value: f"full checkpointing instead of {value} (--checkpointing full)",
    "stage": lambda value: f"another stage than {value} (leave --stage out)",
    "offload_optimizer": lambda _value: "the optimizer offloaded (leave --offload-optimizer out)",
    "micro_batch": lambda value: f"a smaller micro-batch than {value} (leave --micro-batch out)",
    "attention": lambda value: (
        f"fused attention instead of {value} (--attention sdpa, or flash_attention_2 where it is not there)"
    ),
}


def _more_host(job: Job, settled: dict[str, Any], attempt: Attempt) -> None:
    """Memory of a node, doubled until something fits, then as much as that needs; or disks, where there are none."""

    def memory(found: Candidate) -> str:
        size = f"{ceil_div(found.fit.host.needed, GiB)}GiB"
        return f"a host of {size.replace('G', ' G')} (--host-mem {size})"

    def disks(found: Candidate) -> str:
        size = f"{ceil_div(found.fit.nvme.needed, GB)}GB"
        return f"NVMe of {size.replace('G', ' G')} a node (--nvme {size})"

    size = job.cluster.host_memory or MOST_HOST
    while size < MOST_HOST:
        size *= 2
        if attempt(memory, job._replace(cluster=job.cluster._replace(host_memory=size)), settled):
            break
    if not job.cluster.nvme:
        attempt(disks, job._replace(cluster=job.cluster._replace(nvme=MOST_NVME)), settled)


def _shorter(job: Job, settled: dict[str, Any], attempt: Attempt) -> None:
    seq = job.workload.seq // 2
    while seq >= 256:
        if attempt(
            f"a sequence of {seq} (--seq {seq})", job._replace(workload=job.workload._replace(seq=seq)), settled
        ):
            return
        seq //= 2


def _more_gpus(job: Job, settled: dict[str, Any], attempt: Attempt) -> None:
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
