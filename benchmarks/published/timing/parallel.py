"""Tensor, pipeline and context parallelism: a rank's share of a model, its collectives, and the pipeline's bubble.

zeroplan plans data-parallel jobs; these forms show that its rates carry to others' engines.
"""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.published.rows import Row
from benchmarks.published.timing.jobs import Timed
from zeroplan.clock import COMMUNICATION, COMPUTE, OPTIMIZER, StepTime, Term, term
from zeroplan.costs.timing.computing import (
    BACKWARD_ATTENTION,
    BACKWARD_ELEMENTS,
    BACKWARD_PRODUCTS,
    BACKWARD_SCORES,
    recomputed_shares,
)
from zeroplan.costs.timing.hooks import hooks
from zeroplan.costs.timing.network import call
from zeroplan.costs.timing.rates import Rates, rates
from zeroplan.costs.timing.traffic import MEMORY_PER_BYTE
from zeroplan.costs.timing.work import WeightMatrix, matrices, work
from zeroplan.formulas import timing, volume
from zeroplan.ledger import Transfer
from zeroplan.specs.cluster import Cluster
from zeroplan.specs.job import Job

OVERLAPPED = 0.5
"""Of tensor-parallel collectives that asynchronous tensor parallelism still shows."""
INTERLEAVED = 2
"""Model chunks of a pipeline rank under an interleaved schedule."""
OPTIMIZER_BYTES = 34


class Degrees(NamedTuple):
    tp: int
    pp: int
    cp: int
    micro_batches: int
    chunks: int


def degrees(row: Row) -> Degrees:
    """torchtitan's pipeline splits the local batch into as many micro-batches as it has stages."""
    pp = row.pp
    notes = f"{row.lower('notes')} {row.lower('framework')}"
    count = row.accumulation
    if "torchtitan" in notes and pp > 1:
        count = pp
    return Degrees(row.tp, pp, row.degree("cp"), count, INTERLEAVED if "interleaved" in notes else 1)


def parallel_step(row: Row, found: Timed) -> StepTime:
    """Of one optimizer step: the job is that of the whole model, its micro-batch that of one pipeline slot."""
    job, split = found.job, degrees(row)
    at = rates(job)
    layers = job.model.shape.layers / split.pp
    share = layers / job.model.shape.layers
    forward, backward = (_pass(job, split, at, found, share, backward=flag) for flag in (False, True))
    again = recomputed_shares(job).products if job.strategy.recomputing.every else 0.0
    of_tensors = _tensor_parallel(row, job, split, layers, again)
    micro = forward + backward + again * forward + of_tensors
    slots = split.micro_batches + (split.pp - 1) / split.chunks
    computed = (micro - of_tensors) * slots + _head(job, split, at, found) * split.micro_batches
    data = _data_parallel(row, job, split, found, computed)
    computed += max(0.0, split.micro_batches * sum(hooks(job, found.software)) - computed - of_tensors * slots - data)
    own = job.model.parameters / (split.tp * split.pp * max(1, row.degree("dp") * split.cp))
    last = term(OPTIMIZER, "optimizer on the GPU", timing.streamed, at.memory, touched=OPTIMIZER_BYTES * own,
                bandwidth=at.memory.value)  # fmt: skip
    return StepTime((
        _seconds(COMPUTE, "compute and the pipeline's bubble", computed, at),
        _seconds(COMMUNICATION, "tensor parallelism", of_tensors * slots, at),
        _seconds(COMMUNICATION, "data parallelism", data, at), last,
    ))  # fmt: skip


def _seconds(group: str, name: str, seconds: float, at: Rates) -> Term:
    return term(group, name, timing.launches, at.products, kernels=1.0, start=seconds)


def _pass(job: Job, split: Degrees, at: Rates, found: Timed, share: float, *, backward: bool) -> float:
    """Seconds of forward, or of backward without what runs again, of one micro-batch on one rank."""
    whole, tokens, tp = work(job), job.tokens / split.cp, split.tp
    products, elements, attention, scores = 1.0, 1.0, 1.0, 1.0
    if backward:
        products, elements = BACKWARD_PRODUCTS, BACKWARD_ELEMENTS
        attention, scores = BACKWARD_ATTENTION, BACKWARD_SCORES
    linear = sum(
        times * timing.products(*_product(matrix, tokens, tp, at)) for matrix, times in matrices(job.model).layers
    )
    seconds = products * linear * share
    passes, memory = found.software.passes.value, at.memory.value
    seconds += elements * passes * whole.elements / (split.cp * tp) * share / memory
    if whole.scores:
        seconds += (scores * whole.scores / memory + products * whole.attention / at.products.value) / tp * share
    else:
        seconds += _attention(job, split, attention * whole.attention * share, share, at)
    return seconds


def _head(job: Job, split: Degrees, at: Rates, found: Timed) -> float:
    """Logits and loss of one micro-batch, forward and backward: the last stage has them beside its layers."""
    whole, parts = work(job), split.cp * split.tp
    products = timing.products(
        whole.head.flops / parts, at.products.value, whole.head.touched / parts, at.memory.value
    )
    loss = found.software.logit_bytes.value * whole.logits / parts / at.memory.value
    return (1 + BACKWARD_PRODUCTS) * products + loss


def _product(matrix: WeightMatrix, tokens: float, tp: int, at: Rates) -> tuple[float, float, float, float]:
    size = matrix.rows * matrix.columns
    wide, narrow = max(matrix.rows, matrix.columns), min(matrix.rows, matrix.columns)
    touched = 2 * (tokens * wide / tp + size / tp + tokens * narrow)
    return 2 * tokens * size / tp, at.products.value, touched, at.memory.value


def _attention(job: Job, split: Degrees, flops: float, share: float, at: Rates) -> float:
    """Keys and values go round the ring of a context-parallel group while others are at work."""
    seconds = flops / (split.tp * split.cp) / at.attention.value
    if split.cp == 1:
        return seconds
    shape = job.model.shape
    size = int(2 * job.tokens * shape.keys / split.tp * shape.layers * share * 2)
    traffic = _collective(job.cluster, "all_gather", size, split.cp, int(shape.layers * share))
    return seconds + timing.together(seconds, traffic, 0.15)


def _tensor_parallel(row: Row, job: Job, split: Degrees, layers: float, again: float) -> float:
    """Two gathers and two scatters of a layer's input in each pass; backward gathers inputs once more."""
    if split.tp == 1:
        return 0.0
    size = int(job.tokens / split.cp * job.model.shape.hidden * 2)
    one = _collective(job.cluster, "all_gather", size, split.tp, 1)
    seconds = layers * (4 + 6 + 4 * bool(again)) * one
    return seconds * (OVERLAPPED if "async tp" in row.lower("notes") else 1.0)


def _data_parallel(row: Row, job: Job, split: Degrees, found: Timed, work: float) -> float:
    """Shards gathered and gradients scattered: beside the work under FSDP, after it in Megatron's contract."""
    ranks = row.degree("dp") * split.cp
    if ranks == 1:
        return 0.0
    psi = job.model.parameters // (split.tp * split.pp)
    layers = max(1, job.model.shape.layers // split.pp)
    cluster = _of_a_slice(job.cluster, split.tp)
    gather = _collective(cluster, "all_gather", 2 * psi, ranks, layers)
    scatter = _collective(cluster, "reduce_scatter", 4 * psi, ranks, layers)
    if row.stage < 3:
        return gather + scatter
    traffic = (2 * gather + scatter) * (split.micro_batches if split.pp == 1 else 1)
    slowed = MEMORY_PER_BYTE * 8 * psi / rates(job).memory.value
    return timing.together(work + slowed, traffic, found.software.exposed_share_at_stage_3.value) + slowed


def _of_a_slice(cluster: Cluster, tp: int) -> Cluster:
    """Groups that take one rank in `tp`: fewer of a group lie in one node, which shares its network among groups."""
    if tp == 1:
        return cluster
    per_node = max(1, cluster.gpus_per_node // tp)
    network = cluster.network
    shared = network._replace(value=network.value / min(tp, cluster.gpus_per_node))
    return cluster._replace(gpus_per_node=per_node, effective_inter_node=shared, all_reduce=None)


def _collective(cluster: Cluster, kind: str, size: int, ranks: int, calls: int) -> float:
    if ranks == 1 or size == 0:
        return 0.0
    symbols = {"moved": size, "w": 1}
    transfer = Transfer("micro_step", kind, "", max(1, calls), size, ranks, "dp", volume.replayed, symbols)
    return transfer.calls * call(cluster, transfer).seconds
