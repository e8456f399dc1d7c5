"""The rates that a job's step runs at: of its card from the preset, of a card nobody named by judgement."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from zeroplan.costs.cache import CACHE_SIZE, IdentityKey
from zeroplan.specs.cluster import Cluster, Gpu, SourcedValue
from zeroplan.specs.job import Job
from zeroplan.specs.software import judged

MEMORY_REACHED = 0.8
"""Share of the datasheet's bandwidth: what ai-dynamo/aiconfigurator corrects by, for thirteen cards alike."""
ATTENTION_SHARE = 0.5
"""Share of the sustained matmul rate that flash attention reaches, both passes together; 0.74 on A100 and 0.48 on
H100 as fitted."""
EMULATED = 0.8
"""Share of the peak in fp32 that matrix products sustain: torch does not use TF32 unless it is told to."""
FP8_GAIN = 1.6
"""fp8 products over those in bf16, their casts included."""
NO_CARD = judged(100e12, "no card was named: a rate between those of a V100 and an A100")
NO_MEMORY = judged(1e12, "no card was named")
START = judged(5e-6, "from one kernel's start to the next one's in PyTorch, run eagerly")
HOST_ADAM = SourcedValue(
    1.5e9, "the middle of seven published hosts, from 0.4 to 10 billion parameters/s; --cluster or a measurement tells",
    "2026-11-22", "assumed",
)  # fmt: skip
LINK_SHARE = 0.8
"""Share of a link's nominal rate that large messages reach."""
DEFAULT_LINK, DEFAULT_HOST_LINK = judged(12e9, "a card on PCIe 3 x16"), judged(12e9, "PCIe 3 x16")
NVME = judged(3e9, "one NVMe drive")


class Rates(NamedTuple):
    """Rates of one GPU: FLOP/s, FLOP/s, bytes/s, and seconds from one kernel to the next."""

    products: SourcedValue
    attention: SourcedValue
    memory: SourcedValue
    start: SourcedValue


def rates(job: Job) -> Rates:
    """Rates of the job's card in the precision that products run in, with the attention that runs."""
    return _rates(IdentityKey(job.cluster.gpu), multiplied_in(job), job.strategy.attention)


@lru_cache(maxsize=CACHE_SIZE)
def _rates(card: IdentityKey[Gpu | None], precision: str, kernel: str) -> Rates:
    gpu = card.it
    if gpu is None:
        return Rates(NO_CARD, _less(NO_CARD, ATTENTION_SHARE, "flash attention"), NO_MEMORY, START)
    memory = NO_MEMORY
    if gpu.memory_bandwidth:
        memory = _reached(gpu.memory_bandwidth, MEMORY_REACHED, "of the datasheet's", "published")
    products = _products(gpu, precision)
    attention = _less(products, ATTENTION_SHARE, "of the matmul rate")
    if precision != "fp32":
        attention = _attention(gpu, kernel, _products(gpu, "fp16"))
    return Rates(products, attention, memory, START)


def products_in(job: Job, precision: str) -> SourcedValue:
    """FLOP/s of the card's matrix products in another precision than the job's."""
    gpu = job.cluster.gpu
    return _products(gpu, precision) if gpu else NO_CARD


def multiplied_in(job: Job) -> str:
    """The precision that products run in: under autocast not that of the weights."""
    return job.strategy.autocast or job.strategy.precision


def _less(figure: SourcedValue, share: float, what: str, evidence: str = "assumed") -> SourcedValue:
    """A share of a figure: no better founded than what says so."""
    return figure._replace(value=share * figure.value, source=f"{share:g} {what}: {figure.source}", evidence=evidence)


def _reached(figure: SourcedValue, share: float, what: str, evidence: str = "assumed") -> SourcedValue:
    """What a nominal rate leaves; one that was measured is what was reached."""
    return figure if figure.evidence == "measured" else _less(figure, share, what, evidence)


def _products(gpu: Gpu, precision: str) -> SourcedValue:
    sustained = gpu.sustained_matmul
    if precision == "bf16" and "bf16" not in gpu.peak and "fp32" in gpu.peak:
        return _less(gpu.peak["fp32"], EMULATED, "of the fp32 peak, for the card has no cores for bf16")
    if precision == "fp32":
        return _less(gpu.peak["fp32"], EMULATED, "of the fp32 peak") if "fp32" in gpu.peak else NO_CARD
    if sustained is None:
        return NO_CARD
    wide, narrow = gpu.peak.get("bf16"), gpu.peak.get("fp16")
    if precision == "fp16" and wide and narrow and narrow.value < wide.value:
        return _less(sustained, narrow.value / wide.value, "of the rate in bf16, as the peaks are")
    if precision == "fp8" and "fp8" in gpu.peak:
        return _less(sustained, FP8_GAIN, "times the 16-bit rate")
    return sustained


def _attention(gpu: Gpu, kernel: str, products: SourcedValue) -> SourcedValue:
    """The rate of the attention kernel; sdpa runs flash attention 2."""
    known = gpu.attention.get("flash_attention_2" if kernel == "sdpa" else kernel)
    return known or _less(products, ATTENTION_SHARE, "of the matmul rate")


def link(cluster: Cluster, ranks: int, collective: str = "") -> SourcedValue:
    """Bytes/s that one rank of a ring of `ranks` sends; all-reduce is faster where the switch adds up."""
    gpu = cluster.gpu
    stated = _less(gpu.link, LINK_SHARE, "of the link") if gpu and gpu.link else DEFAULT_LINK
    inside = cluster.intra_node or stated
    if ranks <= cluster.gpus_per_node:
        whole_node = ranks == (cluster.node_width or cluster.gpus_per_node) and collective == "all_reduce"
        return cluster.all_reduce if whole_node and cluster.all_reduce else inside
    network = cluster.network
    return inside if inside.value <= network.value else network


def host_link(cluster: Cluster) -> SourcedValue:
    gpu = cluster.gpu
    return _reached(gpu.host_link, LINK_SHARE, "of the host link") if gpu and gpu.host_link else DEFAULT_HOST_LINK


def host_adam(cluster: Cluster) -> SourcedValue:
    return cluster.host_adam or HOST_ADAM
