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

Fitting = Callable[[Job, dict[str, Any]], Candidate | None]
"""A plan of a job with these fields settled; None where nothing fits."""
Way = tuple[str, Candidate]
"""What was changed, in words, and the plan that then fits."""
SHORTEST = 256
"""Tokens of the shortest sequence that is tried."""
LARGEST_TRIED = 4096
"""GPUs."""
MOST_HOST, MOST_NVME = 4 * 2**40, 16 * 10**12
"""Bytes of a node up to which a way out is looked for."""


def ways_out(
    job: Job, settled: dict[str, Any], fitting: Fitting, *, of_host: bool = False, cards: Sequence[Gpu] = ()
) -> Iterator[Way]:
    """Those there are, each tried; `of_host`: it may lack memory. `cards`: larger ones, the smallest first."""
    yield from _loosened(job, settled, fitting)
    if of_host:
        yield from _more_host(job, settled, fitting)
    yield from _first([(f"a sequence of {one.workload.seq} (--seq {one.workload.seq})", one) for one in _shorter(job)],
                      settled, fitting)  # fmt: skip
    larger = [(f"{card.title} (--gpu {card.name})", _with_card(job, card)) for card in cards]
    yield from _first(larger, settled, fitting)
    yield from _fewest(job, settled, fitting)


def _fewest(job: Job, settled: dict[str, Any], fitting: Fitting) -> Iterator[Way]:
    """GPUs of this kind: more of one node, or nodes, doubled, and then counted out where no batch was asked for."""
    within, beyond = _more_gpus(job)
    for one in within:
        if found := fitting(one, settled):
            yield _named(one), found
            return
    if not beyond or (last := fitting(beyond[-1], settled)) is None:
        return
    at, found = _first_of(beyond, last, settled, fitting)
    if job.workload.global_batch is None:
        upper, lower = beyond[at].cluster, beyond[at - 1].cluster.nodes if at else job.cluster.nodes
        beyond = [job._replace(cluster=upper._replace(nodes=nodes)) for nodes in range(lower + 1, upper.nodes + 1)]
        at, found = _first_of(beyond, found, settled, fitting)
    yield _named(beyond[at]), found


def _first(tries: Sequence[tuple[str, Job]], settled: dict[str, Any], fitting: Fitting) -> Iterator[Way]:
    jobs = [one for _said, one in tries]
    if jobs and (last := fitting(jobs[-1], settled)):
        at, found = _first_of(jobs, last, settled, fitting)
        yield tries[at][0], found


def _first_of(
    tries: Sequence[Job], last: Candidate, settled: dict[str, Any], fitting: Fitting
) -> tuple[int, Candidate]:
    """The first that fits, of jobs of which each fits where the one before does; `last`: the plan of the last."""
    found = {len(tries) - 1: last}

    def fits(at: int) -> bool:
        if plan := fitting(tries[at], settled):
            found[at] = plan
        return at in found

    at = bisect_left(range(len(tries) - 1), True, key=fits)
    return at, found[at]


def _with_card(job: Job, card: Gpu) -> Job:
    """On as many of another card, with the same links."""
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


def _loosened(job: Job, settled: dict[str, Any], fitting: Fitting) -> Iterator[Way]:
    """A choice that was asked for, left open."""
    for name, text in LOOSENED.items():
        if settled.get(name) not in (None, "full") or (name in settled and settled[name] is None):
            free = {key: value for key, value in settled.items() if key != name}
            if name == "attention" and not job.model.has_sdpa and job.model.no_flash:
                continue
            other = job.at(attention="sdpa" if job.model.has_sdpa else "flash_attention_2")
            if found := fitting(other if name == "attention" else job, free):
                yield text(settled[name]), found


def _more_host(job: Job, settled: dict[str, Any], fitting: Fitting) -> Iterator[Way]:
    """Memory of a node, doubled until something fits, then as much as that needs; or disks, where there are none."""
    size = job.cluster.host_memory or MOST_HOST
    while size < MOST_HOST:
        size *= 2
        if found := fitting(job._replace(cluster=job.cluster._replace(host_memory=size)), settled):
            memory = f"{ceil_div(enough(found.fit, 'host'), GiB)}GiB"
            yield f"a host of {memory.replace('G', ' G')} (--host-mem {memory})", found
            break
    if not job.cluster.nvme:
        with_disks = job._replace(cluster=job.cluster._replace(nvme=MOST_NVME))
        if found := fitting(with_disks, settled):
            disks = f"{ceil_div(enough(found.fit, 'nvme'), GB)}GB"
            yield f"NVMe of {disks.replace('G', ' G')} a node (--nvme {disks})", found


def enough(verdict: Fit, key: str) -> int:
    """Bytes of a tier with which the search that it was counted for takes it."""
    tier = verdict.tiers[key]
    return tier.most if verdict.comfortable else tier.needed


def _shorter(job: Job) -> list[Job]:
    """Of sequences of a power of two, the longest first."""
    powers = range((job.workload.seq - 1).bit_length() - 1, SHORTEST.bit_length() - 2, -1)
    return [job._replace(workload=job.workload._replace(seq=2**power)) for power in powers]


def _more_gpus(job: Job) -> tuple[list[Job], list[Job]]:
    """More of this kind: of one node, whose processes share a host, and whole nodes, doubled."""
    cluster = job.cluster
    per_node, nodes = cluster.gpus_per_node, cluster.nodes
    within = [(1, size) for size in (2, 4, 8) if size > per_node and nodes == 1]
    width, beyond = max(per_node, 8) if nodes == 1 else per_node, []
    while nodes * 2 * width <= LARGEST_TRIED:
        nodes *= 2
        beyond.append((nodes, width))
    first, then = (
        [job._replace(cluster=cluster._replace(nodes=count, gpus_per_node=each)) for count, each in sizes]
        for sizes in (within, beyond)
    )
    return first, then


def _named(job: Job) -> str:
    return f"{job.ranks} GPUs (--gpus {job.cluster.nodes}x{job.cluster.gpus_per_node})"
