"""Traffic that no choice of numbers changes: seconds that collectives take at least."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from zeroplan.costs.deepspeed.cache import cached
from zeroplan.costs.deepspeed.layout import bucket_dtypes, tensor_sizes
from zeroplan.costs.deepspeed.module_hooks import cached_per_execution, hook_order_key
from zeroplan.costs.deepspeed.partitions import persistence_key, persistent_tensors
from zeroplan.costs.deepspeed.resident import DTYPE_BYTES
from zeroplan.costs.deepspeed.retained_parameters import retained_at_most
from zeroplan.costs.deepspeed.traffic import reduced_last
from zeroplan.costs.timing.network import latency
from zeroplan.costs.timing.rates import link, rates
from zeroplan.costs.timing.traffic import MEMORY_PER_BYTE
from zeroplan.formulas import network, overlap, roofline
from zeroplan.record import NamedTuple
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import STAGES, Strategy

ROUNDED = 16
"""Bytes that rounding down takes off one collective at most: of each kind of call less than one."""


class Beside(NamedTuple):
    """Traffic of one pass: its seconds at least, those of them that no work can hide, and those it costs the work."""

    seconds: float = 0.0
    alone: float = 0.0
    slowed: float = 0.0

    def shows(self, work: float, share: float | None) -> float:
        """Beside this much work; None: nothing is hidden."""
        if share is None:
            return self.seconds
        beside = work + self.slowed
        waits = max(self.alone, self.seconds - beside)
        return min(self.seconds, overlap.added(waits, beside, max(self.seconds, waits), share) + self.slowed)


class Traffic(NamedTuple):
    """Of a step's first forward, of each other, of a backward, and seconds after the step."""

    first: Beside = Beside()
    forward: Beside = Beside()
    backward: Beside = Beside()
    after: float = 0.0
    reduced: Beside = Beside()
    """Of the backward's what stage 3 reduces."""

    def reducing_last(self, share: float) -> Traffic:
        """With so much of what backward reduces in the last bucket, which is reduced when backward is over."""
        back = self.backward
        return self._replace(backward=back._replace(alone=max(back.alone, share * back.seconds)))

    def gathering(self, seconds: float, slowed: float) -> Beside:
        """The backward with gathers that take so long, and so much of the card's memory."""
        seconds, slowed = seconds + self.reduced.seconds, slowed + self.reduced.slowed
        return Beside(seconds, self.reduced.alone, slowed)


def least_traffic(job: Job, room: int | None = None) -> Traffic:
    """Of a job with the largest buckets that are open: as few calls as there can be.

    `room`: elements that the card has room for when forward ends: backward finds no more there.
    Nothing runs beside the first module's gather in forward, nor beside the last gradient's reduction.
    """
    strategy, sizes = job.strategy, tensor_sizes(job)
    if job.ranks == 1:
        return Traffic()
    trained, last = sum([sizes[index] for index in job.execution.gradients]), sizes[job.execution.gradients[-1]]
    wide, (weights, gradients) = strategy.element_bytes, least_widths(strategy)
    whole = "all_reduce" if strategy.use_multi_rank_bucket_allreduce else "reduce"
    kind = ("reduce_scatter" if strategy.scatters else "reduce") if strategy.stage == 3 else whole
    buckets = least_buckets([sizes[index] for index in job.execution.gradients], strategy.reduce_bucket_size)
    reduced = least_seconds(job, kind, gradients * trained, buckets)
    if strategy.stage == 0 or strategy.runs_bf16_optimizer:
        return Traffic(after=least_seconds(job, "all_reduce", gradients * trained, 1))
    tail = least_seconds(job, kind, gradients * last, 1)
    if strategy.stage < 3:
        back = Beside(reduced, tail, least_slowed(job, kind, gradients * trained))
        return Traffic(Beside(), Beside(), back, least_seconds(job, "all_gather", wide * sum(sizes), 1))
    found, again = partitioned_parts(job), gathered_again(job, room)
    secondary = strategy.hpz_partition_size > 1  # made by the step's first forward, which gathers from all ranks
    first, forward, backward = (
        least_gathered(job, size, weights, within_node=within_node)
        for size, within_node in ((found.elements, False), (found.elements, secondary), (again, secondary))
    )
    reductions = Beside(reduced, tail, least_slowed(job, kind, gradients * trained))
    return Traffic(
        first, forward,
        Beside(backward.seconds + reduced, tail, backward.slowed + reductions.slowed),
        sum(count * least_seconds(job, "all_gather", wide * size, 1) for size, count in found.stay.items()),
        reductions,
    )


def last_share(job: Job) -> float:
    """Of the elements that stages 1 and 2 reduce, those in the last bucket."""
    if job.ranks == 1:
        return 0.0
    return reduced_last(job) / sum(map(tensor_sizes(job).__getitem__, job.execution.gradients))


def least_gathered(job: Job, elements: int, width: float, *, within_node: bool) -> Beside:
    """So many elements, brought together by one pass; nothing runs beside the first module's."""
    first = width * min(elements, partitioned_parts(job).first)
    return Beside(
        least_seconds(job, "all_gather", width * elements, least_gathers(job, elements), within_node=within_node),
        least_seconds(job, "all_gather", first, 1, within_node=within_node),
        least_slowed(job, "all_gather", width * elements, within_node=within_node),
    )


def gathered_again(job: Job, room: int | None) -> int:
    """Elements that backward gathers at least; `room` as for `least_traffic`."""
    kept = most_kept(job)
    return max(0, partitioned_parts(job).elements - (kept if room is None else min(kept, max(0, room))))


def least_seconds(job: Job, collective: str, size: float, calls: float, *, within_node: bool = False) -> float:
    """Of so many bytes in so many calls; one at least, where there is anything to send.

    Where all are of one kind they are timed by their mean size, so they are alike. Of several kinds each has its own
    mean: the roots of their sizes add up to no less than that of all in one call.
    """
    if size <= 0:
        return 0.0
    ranks, quantizes = job.ranks, job.strategy.quantized_gradients or job.strategy.quantized_weights
    wire = least_wire(job, collective, size, within_node=within_node)
    if quantizes or within_node:  # some of it stays within the node
        return wire / max(link(job.cluster, count, "all_reduce").value for count in (ranks, job.cluster.gpus_per_node))
    calls, inside = max(1.0, calls), min(ranks, job.cluster.gpus_per_node)
    together = calls if _of_several_kinds(job) else 1.0
    return (calls / together) * network.piped(
        wire * together / calls, link(job.cluster, ranks, collective).value,
        together * latency(job.cluster, collective, ranks), latency(job.cluster, collective, inside),
    )  # fmt: skip


def _of_several_kinds(job: Job) -> bool:
    """Whether what one pass sends may travel in several dtypes, or some of it to all ranks and some to one."""
    strategy = job.strategy
    to_one = strategy.optimizer == "muon" or (strategy.stage == STAGES[-1] and not strategy.scatters)
    return bool(strategy.autocast_dtype) or to_one or len(bucket_dtypes(job)) > 1


def least_buckets(sizes: Sequence[int], bucket: int) -> float:
    """Calls of a reduction: a tensor that is larger than the bucket goes alone, others fill buckets at most."""
    small = [size for size in sizes if size <= bucket]
    return len(sizes) - len(small) + sum(small) / max(bucket, 1)


def least_gathers(job: Job, elements: int) -> float:
    """Calls that gather so many of all elements, none of them twice.

    The look ahead stops with the tensor that fills its bucket. So a call has one tensor that is larger than that, or
    those of one module.
    """
    found, bucket = partitioned_parts(job), min(job.strategy.prefetch_bucket_size, job.strategy.max_live_parameters)
    most = max(most_of_a_module(job), bucket + found.largest)
    large = sum([count for size, count in found.sizes.items() if size > bucket])
    in_one = max([sum([size > bucket for size in sizes]) for sizes in found.modules], default=0)
    among = max(0.0, large - (found.elements - elements) / max(bucket, 1))
    return max(elements / most, among / max(in_one, 1))


class Partitioned(NamedTuple):
    """What stage 3 gathers: tensors that do not stay."""

    elements: int
    sizes: Counter[int]
    """How many tensors have each size."""
    modules: frozenset[tuple[int, ...]]
    """Sizes of the tensors that one visit reads: those of each kind of module."""
    first: int
    """Elements that forward's first module reads."""
    largest: int
    """Of all tensors, those that stay among them."""
    stay: Counter[int]
    """Sizes of these."""


@cached(lambda strategy: (hook_order_key(strategy), persistence_key(strategy)))
def partitioned_parts(job: Job) -> Partitioned:
    """By the job's thresholds of persistence."""
    sizes, stay = tensor_sizes(job), set(persistent_tensors(job))
    read = [[sizes[index] for index in visit.tensors if index not in stay] for visit in job.execution.forward]
    entered = (each for each, visit in zip(read, job.execution.forward, strict=True) if visit.enters and each)
    left = [size for index, size in enumerate(sizes) if index not in stay]
    return Partitioned(
        sum(left), Counter(left), frozenset(map(tuple, read)), sum(next(entered, ())), max(sizes),
        Counter(sizes[index] for index in stay),
    )  # fmt: skip


def least_wire(job: Job, collective: str, size: float, *, within_node: bool = False) -> float:
    """What one rank sends: the ledger has it in whole bytes for each kind of call."""
    ranks = job.cluster.gpus_per_node if within_node else job.ranks
    return max(0.0, (2 if collective == "all_reduce" else 1) * size * (ranks - 1) / ranks - ROUNDED)


def least_slowed(job: Job, collective: str, size: float, *, within_node: bool = False) -> float:
    """What traffic takes of the card's memory."""
    wire = least_wire(job, collective, size, within_node=within_node)
    return roofline.streamed(MEMORY_PER_BYTE * wire, rates(job).memory.value)


@cached_per_execution
def most_of_a_module(job: Job) -> int:
    """Elements that one visit reads."""
    sizes = tensor_sizes(job)
    return max(sum([sizes[index] for index in visit.tensors]) for visit in job.execution.forward)


def most_kept(job: Job) -> int:
    """Elements that stage 3's backward may find gathered."""
    s = job.strategy
    if s.hpz_partition_size == 1:
        return retained_at_most(job)
    # A later micro-step starts with what the one before left.
    return s.max_reuse_distance + s.max_live_parameters + 2 * (s.prefetch_bucket_size + 2 * most_of_a_module(job))


def least_widths(strategy: Strategy) -> tuple[float, float]:
    """Bytes of an element that is gathered, and of one that is reduced: codes of 8 and 4 bits where they travel.

    Under torch_autocast linear layers travel in another dtype.
    """
    gathered, reduced = (
        min(DTYPE_BYTES[dtype] for dtype in (usual, strategy.autocast_dtype) if dtype)
        for usual in (strategy.dtype, strategy.communication)
    )
    return 1.0 if strategy.quantized_weights else gathered, 0.5 if strategy.quantized_gradients else reduced
