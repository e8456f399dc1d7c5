"""Seconds of what offload makes the host and PCIe do, from the bytes that the ledger says are copied."""

from __future__ import annotations

from zeroplan.clock import OFFLOAD, Term, term
from zeroplan.costs.deepspeed.swapping import on_gpu
from zeroplan.costs.timing.disk import disk_terms, showing
from zeroplan.costs.timing.rates import host_adam, host_link
from zeroplan.formulas import beside
from zeroplan.ledger import Ledger
from zeroplan.specs.cluster import Figure
from zeroplan.specs.job import Job

PAGEABLE = 0.5
"""Of the rate from pinned memory, by judgement."""
ON_CPU = "optimizer on the CPU"
LEAST = 1_000_000
"""Bytes of copies that take time worth a line: norms and flags are fewer."""
TO_HOST = ("gpu", "host")
FROM_HOST = ("host", "gpu")


def copied(ledger: Ledger, way: tuple[str, str]) -> int:
    """Bytes that one rank copies in a step from one tier to another."""
    return sum(entry.line.bytes for entry in ledger.copies if (entry.source, entry.target) == way)


def host_terms(job: Job, ledger: Ledger, work: float) -> list[Term]:
    """PCIe, the disk, and the CPUs' optimizer, as if one waited for the other; `work`: seconds of computing.

    What is fetched and brought away during the passes is not taken to hide behind them: no run says how much does. An
    update in a process of its own (ZenFlow's overlap_step) shows where it is longer than the next step computes.
    """
    found = [
        _copy(name, size, _over_pcie(job))
        for name, way in (("copies to the host", TO_HOST), ("copies from the host", FROM_HOST))
        if (size := copied(ledger, way)) >= LEAST
    ]
    update = _update(job)
    found += disk_terms(job, ledger, sum(entry.seconds for entry in update))
    if job.strategy.overlaps_update:
        update = [showing(entry, max(0.0, entry.seconds - work)) for entry in update]
    return [*found, *update]


def _update(job: Job) -> list[Term]:
    if not job.strategy.offload_optimizer or not (updated := updated_by_cpus(job) * job.cluster.gpus_per_node):
        return []
    pace = host_adam(job.cluster)
    return [term(OFFLOAD, ON_CPU, beside.updated_on_host, pace, updated=updated, pace=pace.value)]


def _over_pcie(job: Job) -> Figure:
    """Pageable memory is copied through a pinned buffer first."""
    sections = [part for part in (job.strategy.offload_optimizer, job.strategy.offload_param) if part]
    rate = host_link(job.cluster)
    if all(part.pin_memory for part in sections):
        return rate
    return rate._replace(value=PAGEABLE * rate.value, source=f"{PAGEABLE} where memory is not pinned: {rate.source}")


def updated_by_cpus(job: Job) -> int:
    """One rank's parameters that the CPUs update; stage 3 may leave whole sub-groups to the GPU (`ratio`)."""
    share = job.model.parameters // job.ranks
    if job.strategy.stage == 3:
        share -= sum(group.elements for group in on_gpu(job))
    return max(0, share)


def _copy(name: str, size: int, speed: Figure) -> Term:
    return term(OFFLOAD, name, beside.copied, speed, moved_bytes=size, speed=speed.value)
