"""Single changes to what was asked, after which something fits."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from zeroplan.arithmetic import ceil_div
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
    at = _first_of(beyond, settled, fitting, {})
    if at is None:
        return
    known, upper = at[1], beyond[at[0]]
    lower = beyond[at[0] - 1].cluster.nodes if at[0] else max(1, job.cluster.nodes)
    between = [upper._replace(cluster=upper.cluster._replace(nodes=nodes))
               for nodes in range(lower + 1, upper.cluster.nodes + 1)]  # fmt: skip
    if job.workload.global_batch is not None:
        between = [upper]
    found_at = _first_of(between, settled, fitting, {len(between) - 1: known})
    assert found_at is not None
    yield _named(between[found_at[0]]), found_at[1]


def _first(tries: Sequence[tuple[str, Job]], settled: dict[str, Any], fitting: Fitting) -> Iterator[Way]:
    if found := _first_of([one for _said, one in tries], settled, fitting, {}):
        yield tries[found[0]][0], found[1]


def _first_of(
    tries: Sequence[Job], settled: dict[str, Any], fitting: Fitting, known: dict[int, Candidate]
) -> tuple[int, Candidate] | None:
    """The first that fits, of jobs of which each fits where the one before does: the last tells whether any does."""
    found: dict[int, Candidate | None] = {**known}

    def fits(at: int) -> bool:
        if at not in found:
            found[at] = fitting(tries[at], settled)
        return found[at] is not None

    if not tries or not fits(last := len(tries) - 1):
        return None
    at = bisect_left(range(last), True, key=fits)
    best = found[at]
    return (at, best) if best else None


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
