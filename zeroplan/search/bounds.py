"""What no choice of numbers changes: seconds that a strategy takes at least, and whether it could fit at all.

A search leaves out what cannot win or cannot fit by these; tests hold them against the full models.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import NamedTuple

from zeroplan.costs.deepspeed import host
from zeroplan.costs.deepspeed.copying import copies
from zeroplan.costs.deepspeed.held import DTYPE_BYTES
from zeroplan.costs.deepspeed.layout import below_ratio, own_shares, persistent_tensors, tensor_sizes
from zeroplan.costs.ledger import gpu_with, held_at_least, init_at_least, step_at_least
from zeroplan.costs.passes import decides_activations, least_activations
from zeroplan.costs.timing.beside import host_terms, updating
from zeroplan.costs.timing.computing import Computing, Pass, computing
from zeroplan.costs.timing.network import latency
from zeroplan.costs.timing.rates import host_link, link, rates
from zeroplan.costs.timing.step import software_of, update
from zeroplan.costs.timing.traffic import MEMORY_PER_BYTE
from zeroplan.fit import TierFit, gpu_fit
from zeroplan.formulas import network, overlap, roofline
from zeroplan.ledger import Ledger, Tier, total
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Strategy

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
    """Of a forward, of a backward, and seconds after the step."""

    forward: Beside = Beside()
    backward: Beside = Beside()
    after: float = 0.0


class Bounds:
    """Of one model and workload on one cluster; what several strategies share is worked out once."""

    def __init__(self, reserve: float) -> None:
        self.reserve = reserve
        self.computing: dict[Hashable, Computing] = {}
        self.traffic: dict[Hashable, Traffic] = {}
        self.beside: dict[Hashable, float] = {}
        self.held: dict[Hashable, bool] = {}
        self.activations: dict[Hashable, tuple[int, int] | None] = {}

    def seconds(self, job: Job, *, traced: bool = True) -> float:
        """Computing and the update as they are, traffic hidden as well as it can be, copies as few as there can be.

        Not `traced`: without matrix products that run again, which only a trace of the model counts.
        """
        strategy, found = job.strategy, self._computing(job, traced=traced)
        micro_steps, traffic = strategy.micro_steps, self._traffic(job)
        shown = None
        if strategy.stage and strategy.overlaps:
            software = software_of(job)
            shown = (software.shown_at_stage_3 if strategy.stage == 3 else software.shown).value
        reductions = micro_steps if strategy.stage == 3 or strategy.reduces_every_micro_step else 1
        forward, backward = found.forward.seconds, found.backward.seconds
        passes = micro_steps * (forward + backward + traffic.forward.shows(forward, shown))
        passes += reductions * traffic.backward.shows(backward, shown)
        return passes + traffic.after + self._beside(job, found if traced else at_most(found))

    def _computing(self, job: Job, *, traced: bool = True) -> Computing:
        """Of one micro-step: offload and buckets do not change it."""
        s = job.strategy
        key = (s.stage == 3, s.micro_batch, s.checkpointing, s.attention, traced)
        if key not in self.computing:
            self.computing[key] = computing(job, software_of(job), traced=traced)
        return self.computing[key]

    def _traffic(self, job: Job) -> Traffic:
        key = (job.strategy.stage, job.strategy.param_persistence_threshold)
        if key not in self.traffic:
            self.traffic[key] = least_traffic(job)
        return self.traffic[key]

    def _beside(self, job: Job, found: Computing) -> float:
        """The update, on the GPU and on the CPUs, and what offload copies in any case."""
        s = job.strategy
        room = (found.forward.seconds, found.backward.seconds) if s.stage < 3 and s.offload_optimizer else None
        key = (s.stage, s.offload_optimizer, s.offload_param, s.micro_steps, room)
        if key not in self.beside:
            self.beside[key] = sum(entry.seconds for entry in update(job)) + self._offload(job, found)
        return self.beside[key] + self._gradients(job, found)

    def _offload(self, job: Job, found: Computing) -> float:
        """Below stage 3 no number changes what is copied; at stage 3 parameters are, when updated and when fetched."""
        strategy = job.strategy
        if not (strategy.offload_optimizer or strategy.offload_param):
            return 0.0
        if strategy.stage < 3:
            counted = Ledger("deepspeed", Tier(), copies=copies(job))
            return sum(entry.seconds for entry in host_terms(job, counted, found))
        on_cpus = sum(entry.seconds for entry in updating(job))
        return on_cpus + least_copied(job) / host_link(job.cluster).value

    def _gradients(self, job: Job, found: Computing) -> float:
        """Stage 3 takes each micro-step's to the host and back, beside backward as far as that lasts."""
        strategy = job.strategy
        if strategy.stage < 3 or not strategy.offload_optimizer:
            return 0.0
        both_ways = 2 * DTYPE_BYTES[strategy.accumulation] * own_elements(job) / host_link(job.cluster).value
        beside = found.backward.seconds if strategy.overlaps else 0.0
        return strategy.micro_steps * max(0.0, both_ways - beside)

    def may_fit(self, job: Job) -> bool:
        """Whether card and host could hold it: what is held, then the model's own step beside it."""
        s = job.strategy
        key = (s.stage, s.offload_optimizer, s.offload_param, s.overlap_comm, s.reduce_bucket_size)
        if key not in self.held:
            least = max(held_at_least(job), init_at_least(job), step_at_least(job))
            in_host = TierFit(total(host.tier(job).peak.lines), job.cluster.host_memory)
            self.held[key] = gpu_fit(job, least, self.reserve).fits is not False and in_host.fits is not False
        return self.held[key] and gpu_fit(job, gpu_with(job, self._activations(job)), self.reserve).fits is not False

    def _activations(self, job: Job) -> tuple[int, int] | None:
        key = decides_activations(job)
        if key not in self.activations:
            self.activations[key] = least_activations(job)
        return self.activations[key]


def at_most(found: Computing) -> Computing:
    """With all of forward run again, so that the most of what offload copies hides."""
    return Computing(found.forward, Pass((*found.backward.terms, *found.forward.terms)))


def least_traffic(job: Job) -> Traffic:
    """Of a job with the largest buckets that are open: as few calls as there can be.

    Nothing runs beside the first module's gather in forward, nor beside the last gradient's reduction.
    """
    strategy, sizes = job.strategy, tensor_sizes(job)
    if job.ranks == 1:
        return Traffic()
    trained, last = sum([sizes[index] for index in job.execution.gradients]), sizes[job.execution.gradients[-1]]
    weights, gradients = least_widths(strategy)
    whole = "all_reduce" if strategy.use_multi_rank_bucket_allreduce else "reduce"
    kind = ("reduce_scatter" if strategy.scatters else "all_reduce") if strategy.stage == 3 else whole
    buckets = least_buckets([sizes[index] for index in job.execution.gradients], strategy.reduce_bucket_size)
    reduced = least_seconds(job, kind, gradients * trained, buckets)
    if strategy.stage == 0 or strategy.runs_bf16_optimizer:
        return Traffic(after=least_seconds(job, "all_reduce", gradients * trained, 1))
    tail = least_seconds(job, kind, gradients * last, 1)
    if strategy.stage < 3:
        back = Beside(reduced, tail, least_slowed(job, kind, gradients * trained))
        return Traffic(Beside(), back, least_seconds(job, "all_gather", weights * sum(sizes), 1))
    stay = set(persistent_tensors(job))
    once = job.model.parameters - sum([sizes[index] for index in stay])
    again = max(0, once - most_kept(job))
    near, far = (least_seconds(job, "all_gather", weights * size, least_gathers(job, size)) for size in (once, again))
    visited = (visit.tensors for visit in job.execution.forward if visit.enters and set(visit.tensors) - stay)
    first = sum(sizes[index] for index in next(visited, ()) if index not in stay)
    slowed = [least_slowed(job, "all_gather", weights * size) for size in (once, again)]
    return Traffic(
        Beside(near, least_seconds(job, "all_gather", weights * first, 1), slowed[0]),
        Beside(far + reduced, tail, slowed[1] + least_slowed(job, kind, gradients * trained)),
        sum(least_seconds(job, "all_gather", weights * sizes[index], 1) for index in stay),
    )


def least_seconds(job: Job, collective: str, size: float, calls: float) -> float:
    """Of so many bytes in so many calls, all alike; one at least, where there is anything to send."""
    if size <= 0:
        return 0.0
    ranks, quantizes = job.ranks, job.strategy.quantized_gradients or job.strategy.quantized_weights
    wire = least_wire(job, collective, size)
    if quantizes or job.strategy.hpz_partition_size > 1:  # some of it stays within the node
        return wire / max(link(job.cluster, count, "all_reduce").value for count in (ranks, job.cluster.gpus_per_node))
    calls, inside = max(1.0, calls), min(ranks, job.cluster.gpus_per_node)
    return calls * network.piped(
        wire / calls, link(job.cluster, ranks, collective).value, latency(job.cluster, collective, ranks),
        latency(job.cluster, collective, inside),
    )  # fmt: skip


def least_buckets(sizes: Sequence[int], bucket: int) -> float:
    """Calls of a reduction: a tensor that is larger than the bucket goes alone, others fill buckets at most."""
    small = [size for size in sizes if size <= bucket]
    return len(sizes) - len(small) + sum(small) / max(bucket, 1)


def least_gathers(job: Job, gathered: int) -> float:
    """Calls that gather so many elements, or all: the look ahead stops with the tensor that fills its bucket.

    So a call has one tensor that is larger than that, or those of one module.
    """
    sizes, bucket, stay = tensor_sizes(job), job.strategy.prefetch_bucket_size, set(persistent_tensors(job))
    most = max(most_of_a_module(job), bucket + max(sizes))
    large = [index for index, size in enumerate(sizes) if size > bucket and index not in stay]
    in_one = max((len(set(visit.tensors).intersection(large)) for visit in job.execution.forward), default=0)
    kept = sum(sizes) - sum(sizes[index] for index in stay) - gathered
    return max(gathered / most, (len(large) - kept / max(bucket, 1)) / max(in_one, 1))


def least_wire(job: Job, collective: str, size: float) -> float:
    """What one rank sends: the ledger has it in whole bytes for each kind of call."""
    return max(0.0, (2 if collective == "all_reduce" else 1) * size * (job.ranks - 1) / job.ranks - ROUNDED)


def least_slowed(job: Job, collective: str, size: float) -> float:
    """What traffic takes of the card's memory."""
    return roofline.streamed(MEMORY_PER_BYTE * least_wire(job, collective, size), rates(job).memory.value)


def most_of_a_module(job: Job) -> int:
    """Elements that one visit reads."""
    sizes = tensor_sizes(job)
    return max(sum([sizes[index] for index in visit.tensors]) for visit in job.execution.forward)


def most_kept(job: Job) -> int:
    """Elements that stage 3's backward may find gathered: those that forward kept.

    It keeps what comes again within stage3_max_reuse_distance, and what the look ahead has reached: that passes over
    what is there already, at most stage3_max_live_parameters and one more call, and a bucket of what is not.
    """
    s = job.strategy
    if s.hpz_partition_size > 1:
        return job.model.parameters  # within the node
    return s.max_reuse_distance + s.max_live_parameters + 2 * (s.prefetch_bucket_size + 2 * most_of_a_module(job))


def least_widths(strategy: Strategy) -> tuple[float, float]:
    """Bytes of an element that is gathered, and of one that is reduced: codes of 8 and 4 bits where they travel."""
    weights = 1.0 if strategy.quantized_weights else min(strategy.element_bytes, 2)
    gradients = 0.5 if strategy.quantized_gradients else min(DTYPE_BYTES[strategy.communication], 2)
    return weights, gradients


def least_copied(job: Job) -> float:
    """Bytes that one rank copies in a step and waits for: updated parameters, and those that forward fetches."""
    strategy, own = job.strategy, own_elements(job)
    whole = strategy.offload_optimizer is not None and below_ratio(job) == 0
    if strategy.offload_param:
        stay = sum([tensor_sizes(job)[index] for index in persistent_tensors(job)])
        return strategy.micro_steps * max(0, own - stay) * strategy.element_bytes
    return own * strategy.element_bytes if whole else 0


def own_elements(job: Job) -> int:
    """Of the rank's partitions of trained tensors, padding left out."""
    return sum(map(own_shares(job).cut.__getitem__, job.execution.gradients))
