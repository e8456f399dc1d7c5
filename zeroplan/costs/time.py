"""A rough clock, good enough to rank strategies of one model on one cluster. Nothing here is compared with a run yet.

Compute at the card's sustained matmul rate; traffic at the slower of the links it crosses, mostly hidden behind
compute when DeepSpeed overlaps; the CPU's Adam and PCIe when the optimizer is offloaded.
"""

from __future__ import annotations

from typing import NamedTuple

from zeroplan.formulas import compute
from zeroplan.ledger import Ledger, Transfer
from zeroplan.specs.cluster import Cluster
from zeroplan.specs.job import Job

SUSTAINED = 100e12
"""FLOP/s when no card is known."""
EXPOSED, EXPOSED_AT_STAGE_3 = 0.5, 0.85
"""Share of the shorter of compute and traffic that still shows when they overlap: 0.45 fits published FSDP runs, 0.85
those of DeepSpeed's stage 3."""
LINK_SHARE = 0.8
"""Of a link's nominal rate that a large collective reaches."""
USUAL_LINK, USUAL_NODE_NETWORK, USUAL_HOST_LINK = 12e9, 25e9, 12e9
"""Bytes/s per GPU inside a node, per node between nodes, and to the host, when nothing says better."""
HOST_ADAM = 4.2e9
"""Parameters/s of DeepSpeedCPUAdam on one two-socket server (ZeRO-Offload Table 4: 4B parameters in 1.03 s)."""
GPU_ADAM_BYTES = 34
"""Bytes read and written per parameter by the fused optimizer."""
USUAL_MEMORY_BANDWIDTH = 1e12
NVME_BANDWIDTH = 3e9
"""Bytes/s of one node's NVMe, both ways together."""
COLLECTIVE_LATENCY = 30e-6
"""Seconds before a collective moves its first byte."""


class StepTime(NamedTuple):
    """Seconds of one optimizer step, and where they go."""

    compute: float
    exposed_communication: float
    offload: float
    optimizer: float

    @property
    def total(self) -> float:
        return self.compute + self.exposed_communication + self.offload + self.optimizer


def step_time(job: Job, ledger: Ledger) -> StepTime:
    """One optimizer step: its micro-steps, then the update."""
    strategy, work = job.strategy, _compute(job)
    each = _seconds(job.cluster, [t for t in ledger.traffic if t.when == "micro_step"])
    reduced = _seconds(job.cluster, [t for t in ledger.traffic if t.when == "step" and "reduce" in t.collective])
    gathered = _seconds(job.cluster, [t for t in ledger.traffic if t.when == "step" and "gather" in t.collective])
    hidden = strategy.overlaps and strategy.stage > 0
    micro = _exposed(work, each, strategy.stage) if hidden else each
    last = _exposed(work, each + reduced, strategy.stage) if hidden else each + reduced
    offload, optimizer = _update(job)
    exposed = (strategy.micro_steps - 1) * micro + last + gathered
    return StepTime(strategy.micro_steps * work, exposed, offload, optimizer)


def _exposed(work: float, traffic: float, stage: int) -> float:
    """Seconds of traffic that show although they overlap with `work` seconds of compute."""
    share = EXPOSED_AT_STAGE_3 if stage == 3 else EXPOSED
    return max(0.0, traffic - work) + share * min(work, traffic)


def _compute(job: Job) -> float:
    """Seconds of forward and backward of one micro-batch."""
    shape, tokens = job.model.shape, job.tokens
    psi = active_parameters(job)
    flops = compute.parameter_flops(psi, tokens)
    flops += compute.attention_flops(shape.queries, shape.layers, job.workload.seq, tokens)
    every = job.strategy.recomputing.every
    if every and not job.strategy.recomputing.keeps_products:
        again = -(-shape.layers // every)
        flops += compute.recomputation_flops(psi, tokens) * again // shape.layers
    return flops / _matmul_rate(job)


def active_parameters(job: Job) -> int:
    """Parameters that one token meets: all but the experts it is not routed to."""
    shape = job.model.shape
    if not shape.experts:
        return job.model.parameters
    routed = sum(tensor.elements for tensor in job.model.tensors if ".experts." in tensor.name)
    return job.model.parameters - routed + routed * shape.experts_per_token // shape.experts


def _matmul_rate(job: Job) -> float:
    gpu, precision = job.cluster.gpu, job.strategy.precision
    if gpu is None or gpu.sustained_matmul is None:
        return SUSTAINED
    rate = gpu.sustained_matmul.value
    reference = gpu.peak.get("bf16") or gpu.peak.get("fp16")
    peak = gpu.peak.get("tf32") if precision == "fp32" else gpu.peak.get(precision)
    if peak and reference:
        return rate * peak.value / reference.value
    return rate / 4 if precision == "fp32" else rate


def _seconds(cluster: Cluster, traffic: list[Transfer]) -> float:
    rate = ring_rate(cluster)
    return sum(t.wire_bytes / rate + t.calls * COLLECTIVE_LATENCY for t in traffic)


def ring_rate(cluster: Cluster) -> float:
    """Bytes/s that one rank of a large ring sends: the slower of the node's links and its share of the network."""
    gpu = cluster.gpu
    if cluster.intra_node:
        inside = cluster.intra_node.value
    else:
        inside = LINK_SHARE * gpu.link.value if gpu and gpu.link else USUAL_LINK
    if cluster.nodes == 1:
        return inside
    network = cluster.inter_node.value if cluster.inter_node else USUAL_NODE_NETWORK
    return min(inside, LINK_SHARE * network)


def _update(job: Job) -> tuple[float, float]:
    """Seconds of offload (PCIe, CPU Adam, disk) and of the optimizer on the GPU."""
    strategy, gpu, per_node = job.strategy, job.cluster.gpu, job.cluster.gpus_per_node
    psi, w = job.model.parameters, job.strategy.element_bytes
    share = psi / job.ranks if strategy.stage else psi
    to_host = gpu.host_link.value * LINK_SHARE if gpu and gpu.host_link else USUAL_HOST_LINK
    offload = 0.0
    if strategy.offload_param:
        gathers = 2 * strategy.micro_steps * share * w
        offload += gathers / to_host
        if strategy.offload_param.device == "nvme":
            offload += gathers * per_node / NVME_BANDWIDTH
    if not strategy.offload_optimizer:
        bandwidth = gpu.memory_bandwidth.value if gpu and gpu.memory_bandwidth else USUAL_MEMORY_BANDWIDTH
        return offload, GPU_ADAM_BYTES * share / (LINK_SHARE * bandwidth)
    gradients = strategy.micro_steps if strategy.reduces_every_micro_step else 1
    offload += (gradients + 1) * share * w / to_host + share * per_node / HOST_ADAM
    if strategy.offload_optimizer.device == "nvme":
        offload += 28 * share * per_node / NVME_BANDWIDTH
    return offload, 0.0
