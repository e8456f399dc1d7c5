"""Seconds of what offload makes the host, PCIe and the disk do, from the bytes that the ledger says are copied."""

from __future__ import annotations

from zeroplan.clock import OFFLOAD, Term, term
from zeroplan.costs.timing.rates import NVME, host_adam, host_link
from zeroplan.formulas import beside
from zeroplan.ledger import Ledger
from zeroplan.specs.cluster import Figure
from zeroplan.specs.job import Job

TO_HOST = ("gpu", "host")
FROM_HOST = ("host", "gpu")
READ = ("nvme", "host")
WRITTEN = ("host", "nvme")


def copied(ledger: Ledger, way: tuple[str, str]) -> int:
    """Bytes that one rank copies in a step from one tier to another."""
    return sum(entry.line.bytes for entry in ledger.copies if (entry.source, entry.target) == way)


def host_terms(job: Job, ledger: Ledger) -> list[Term]:
    """Of the step's end, one after the other: PCIe, the disk, and the CPUs' optimizer."""
    strategy, cluster = job.strategy, job.cluster
    if not (strategy.offload_optimizer or strategy.offload_param):
        return []
    per_node = min(cluster.gpus_per_node, job.ranks)
    found = []
    for name, way in (("copies to the host", TO_HOST), ("copies from the host", FROM_HOST)):
        if size := copied(ledger, way):
            found.append(_copy(name, size, host_link(cluster)))
    for name, way in (("read from NVMe", READ), ("written to NVMe", WRITTEN)):
        if size := copied(ledger, way) * per_node:
            known = cluster.nvme_read if way == READ else cluster.nvme_write
            found.append(_copy(name, size, known or NVME))
    if strategy.offload_optimizer and (updated := updated_per_node(job)):
        pace = host_adam(cluster)
        found.append(term(OFFLOAD, "optimizer on the CPU", beside.updated_on_host, pace, updated=updated,
                          pace=pace.value))  # fmt: skip
    return found


def updated_per_node(job: Job) -> int:
    """Parameters that the CPUs of a node update; stage 3 may leave a part to the GPU (`ratio`)."""
    offload, share = job.strategy.offload_optimizer, job.model.parameters / job.ranks
    ratio = offload.ratio if offload and job.strategy.stage == 3 else 1.0
    return int(ratio * share * min(job.cluster.gpus_per_node, job.ranks))


def _copy(name: str, size: int, speed: Figure) -> Term:
    return term(OFFLOAD, name, beside.copied, speed, moved_bytes=size, speed=speed.value)
