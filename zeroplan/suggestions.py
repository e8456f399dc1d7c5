"""Single changes to what was asked, after which something fits."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from zeroplan.arithmetic import ceil_div
from zeroplan.fit import Fit
from zeroplan.search import Candidate
from zeroplan.specs.cluster import Gpu
from zeroplan.specs.job import Job
from zeroplan.units import GB, GiB

Fits = Callable[[Job, dict[str, Any]], bool]
"""Whether any strategy of a job with these fixed fields fits."""
Fastest = Callable[[Job, dict[str, Any]], Candidate | None]
"""The fastest of those."""
Try = tuple[str, Job]
"""What is changed, in words, and the job."""
Way = tuple[str, Candidate]
"""What was changed, in words, and the plan that then fits."""
SHORTEST = 256
"""Tokens of the shortest sequence that is tried."""
LARGEST_TRIED = 4096
"""GPUs."""
MOST_HOST, MOST_NVME = 4 * 2**40, 16 * 10**12
"""Bytes of a node up to which a way out is looked for."""


def suggestions(
    job: Job, fixed: dict[str, Any], fits: Fits, fastest: Fastest, *, of_host: bool = False, cards: Sequence[Gpu] = ()
) -> Iterator[Way]:
    """Those there are, each tried; `of_host`: it may lack memory. `cards`: larger ones, the smallest first."""
    for said, one, free in _loosened(job, fixed):
        if candidate := fastest(one, free):
            yield said, candidate
    if of_host:
        yield from _more_host(job, fixed, fits, fastest)
    shorter = [(f"a sequence of {one.workload.seq} (--seq {one.workload.seq})", one) for one in _shorter(job)]
    larger = [(f"{card.title} (--gpu {card.name})", _with_card(job, card)) for card in cards]
    for first in (_first(shorter, fixed, fits), _first(larger, fixed, fits), _more_gpus(job, fixed, fits)):
        if first and (candidate := fastest(first[1], fixed)):
            yield first[0], candidate


def _first(tries: Sequence[Try], fixed: dict[str, Any], fits: Fits) -> Try | None:
    """The first that fits, where each fits that comes after one that does."""
    return _first_of(tries, fixed, fits) if tries and fits(tries[-1][1], fixed) else None


def _first_of(tries: Sequence[Try], fixed: dict[str, Any], fits: Fits) -> Try:
    """The first element that passes, where the last is known to."""
    return tries[bisect_left(range(len(tries) - 1), True, key=lambda at: fits(tries[at][1], fixed))]


def _with_card(job: Job, card: Gpu) -> Job:
    """The job on as many of another card, with the same links."""
    return job._replace(cluster=job.cluster._replace(gpu=card, capacity=int(card.memory.value)))


LOOSENED: dict[str, Callable[[Any], str]] = {
    "checkpointing": lambda value: f"full checkpointing instead of {value} (--checkpointing full)",
    "stage": lambda value: f"another stage than {value} (leave --stage out)",
    "offload_optimizer": lambda _value: "the optimizer offloaded (leave --offload-optimizer out)",
    "micro_batch": lambda value: f"a smaller micro-batch than {value} (leave --micro-batch out)",
    "attention": lambda value: (
        f"fused attention instead of {value} (--attention sdpa, or flash_attention_2 where it is not there)"
    ),
}


def _loosened(job: Job, fixed: dict[str, Any]) -> Iterator[tuple[str, Job, dict[str, Any]]]:
    """A choice that was fixed, left free."""
    for name, text in LOOSENED.items():
        if fixed.get(name) not in (None, "full") or (name in fixed and fixed[name] is None):
            free = {key: value for key, value in fixed.items() if key != name}
            if name == "attention" and not job.model.has_sdpa and job.model.no_flash:
                continue
            other = job.at(attention="sdpa" if job.model.has_sdpa else "flash_attention_2")
            yield text(fixed[name]), other if name == "attention" else job, free


def _more_host(job: Job, fixed: dict[str, Any], fits: Fits, fastest: Fastest) -> Iterator[Way]:
    """Memory of a node, doubled until something fits, then as much as that needs; or disks, where there are none."""
    size = job.cluster.host_memory or MOST_HOST
    while size < MOST_HOST:
        size *= 2
        larger = job._replace(cluster=job.cluster._replace(host_memory=size))
        if fits(larger, fixed) and (candidate := fastest(larger, fixed)):
            memory = f"{ceil_div(enough(candidate.fit, 'host'), GiB)}GiB"
            yield f"a host of {memory.replace('G', ' G')} (--host-mem {memory})", candidate
            break
    if not job.cluster.nvme:
        with_disks = job._replace(cluster=job.cluster._replace(nvme=MOST_NVME))
        if fits(with_disks, fixed) and (candidate := fastest(with_disks, fixed)):
            disks = f"{ceil_div(enough(candidate.fit, 'nvme'), GB)}GB"
            yield f"NVMe of {disks.replace('G', ' G')} a node (--nvme {disks})", candidate


def enough(verdict: Fit, key: str) -> int:
    """Bytes of a tier with which the search that it was counted for takes it."""
    tier = verdict.tiers[key]
    return tier.most if verdict.comfortable else tier.needed


def _shorter(job: Job) -> list[Job]:
    """The job with sequences of a power of two, the longest first."""
    powers = range((job.workload.seq - 1).bit_length() - 1, SHORTEST.bit_length() - 2, -1)
    return [job._replace(workload=job.workload._replace(seq=2**power)) for power in powers]


def _more_gpus(job: Job, fixed: dict[str, Any], fits: Fits) -> Try | None:
    """More of this kind, the first number that fits: of one node, whose processes share a host; or nodes, doubled,
    and then counted out where no batch was asked for.
    """
    cluster = job.cluster
    per_node, nodes = cluster.gpus_per_node, cluster.nodes
    for size in (2, 4, 8):
        if size > per_node and nodes == 1 and fits(one := _on(job, 1, size), fixed):
            return _gpus(one), one
    width = max(per_node, 8) if nodes == 1 else per_node
    counts = []
    while nodes * 2 * width <= LARGEST_TRIED:
        counts.append(nodes := nodes * 2)
    first = _first([(_gpus(one), one) for one in (_on(job, count, width) for count in counts)], fixed, fits)
    if first is None or job.workload.global_batch is not None:
        return first
    least = max([cluster.nodes, *(count for count in counts if count < first[1].cluster.nodes)])
    between = [_on(job, count, width) for count in range(least + 1, first[1].cluster.nodes + 1)]
    return _first_of([(_gpus(one), one) for one in between], fixed, fits)


def _on(job: Job, nodes: int, gpus: int) -> Job:
    return job._replace(cluster=job.cluster._replace(nodes=nodes, gpus_per_node=gpus))


def _gpus(job: Job) -> str:
    return f"{job.ranks} GPUs (--gpus {job.cluster.nodes}x{job.cluster.gpus_per_node})"
