"""Single changes to what was asked, after which something fits."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from zeroplan.arithmetic import ceil_div
from zeroplan.search import Candidate
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


def ways_out(job: Job, settled: dict[str, Any], fitting: Fitting, *, of_host: bool = False) -> Iterator[Way]:
    """Those there are, each tried; `of_host`: it may lack memory."""
    yield from _loosened(job, settled, fitting)
    if of_host:
        yield from _more_host(job, settled, fitting)
    yield from _first([(f"a sequence of {one.workload.seq} (--seq {one.workload.seq})", one) for one in _shorter(job)],
                      settled, fitting)  # fmt: skip
    within, beyond = ([(_named(one), one) for one in found] for found in _more_gpus(job))
    for said, changed in within:
        if found := fitting(changed, settled):
            yield said, found
            return
    yield from _first(beyond, settled, fitting)


def _first(tries: Sequence[tuple[str, Job]], settled: dict[str, Any], fitting: Fitting) -> Iterator[Way]:
    """The first that fits, of jobs of which each fits where the one before does: the last tells whether any does."""
    found: dict[int, Candidate | None] = {}

    def fits(at: int) -> bool:
        found[at] = fitting(tries[at][1], settled)
        return found[at] is not None

    if tries and fits(last := len(tries) - 1):
        at = bisect_left(range(last), True, key=fits)
        if best := found[at]:
            yield tries[at][0], best


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
            memory = f"{ceil_div(found.fit.host.needed, GiB)}GiB"
            yield f"a host of {memory.replace('G', ' G')} (--host-mem {memory})", found
            break
    if not job.cluster.nvme:
        with_disks = job._replace(cluster=job.cluster._replace(nvme=MOST_NVME))
        if found := fitting(with_disks, settled):
            disks = f"{ceil_div(found.fit.nvme.needed, GB)}GB"
            yield f"NVMe of {disks.replace('G', ' G')} a node (--nvme {disks})", found


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
