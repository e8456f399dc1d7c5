"""Seconds of what offload makes the host, PCIe and the disks do beside the GPU."""

from __future__ import annotations

from zeroplan.clock import OFFLOAD, Term, term
from zeroplan.costs.deepspeed.nvme_swap import on_gpu
from zeroplan.costs.deepspeed.traffic import BACKWARD
from zeroplan.costs.timing.computing import Computing
from zeroplan.costs.timing.copies import pcie_terms
from zeroplan.costs.timing.disk import disk_terms, showing
from zeroplan.costs.timing.rates import host_adam
from zeroplan.costs.timing.traffic import busy
from zeroplan.formulas import beside
from zeroplan.ledger import Ledger
from zeroplan.specs.job import Job

ON_CPU = "optimizer on the CPU"


def host_terms(job: Job, ledger: Ledger, found: Computing) -> list[Term]:
    """PCIe, the disks, and the CPUs' optimizer; `found`: what the GPU computes in a micro-step.

    An update in a process of its own (ZenFlow's overlap_step) shows where it is longer than the next step computes.
    """
    if not ledger.copies:
        return []
    micro_steps, update = job.strategy.micro_steps, updating(job)
    room = max(0.0, micro_steps * found.backward.seconds - busy(job, ledger, BACKWARD))
    beside_gpu = [*pcie_terms(job, ledger, room), *disk_terms(job, ledger, sum(entry.seconds for entry in update))]
    if job.strategy.overlaps_update:
        work = micro_steps * (found.forward.seconds + found.backward.seconds)
        update = [showing(entry, max(0.0, entry.seconds - work)) for entry in update]
    return [*beside_gpu, *update]


def updating(job: Job) -> list[Term]:
    """The optimizer on the CPUs, as if nothing ran beside it."""
    if not job.strategy.offload_optimizer or not (updated := updated_by_cpus(job) * job.cluster.gpus_per_node):
        return []
    pace = host_adam(job.cluster)
    return [term(OFFLOAD, ON_CPU, beside.updated_on_host, pace, updated=updated, pace=pace.value)]


def updated_by_cpus(job: Job) -> int:
    """One rank's parameters that the CPUs update; stage 3 may leave whole sub-groups to the GPU (`ratio`)."""
    share = job.model.parameters // job.ranks
    if job.strategy.stage == 3:
        share -= sum(group.elements for group in on_gpu(job))
    return max(0, share)
