"""Whether a strategy could fit, whatever its numbers: bytes of a GPU and of the host that it needs at least.

A search leaves out what cannot fit by these; tests hold them against the full models.
"""

from __future__ import annotations

from collections.abc import Hashable

from zeroplan.costs.deepspeed import host
from zeroplan.costs.deepspeed.backward_beginning import identical_beginning
from zeroplan.costs.deepspeed.partitions import persistent_tensors, secondary_ranks, secondary_sizes
from zeroplan.costs.deepspeed.retained_parameters import retained_at_least
from zeroplan.costs.deepspeed.stage_3 import first_backward_at_least
from zeroplan.costs.ledger import gathering_at_least, gpu_with, init_at_least, resident_at_least, step_at_least
from zeroplan.costs.outside import outside
from zeroplan.costs.passes import (
    activations_key,
    alone_at_least,
    beside_kept,
    least_activations,
    saved_at_least,
    timeline_request,
)
from zeroplan.errors import ContradictionError
from zeroplan.fit import TierFit, gpu_limit, host_fit, nvme_fit
from zeroplan.ledger import total
from zeroplan.search.bucketed import beside_buckets, with_first_gradients
from zeroplan.search.work import BOUND, TRACED, Work
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import STAGES, Strategy

UNSAID = {"prefetch_bucket_size": 0, "max_live_parameters": 0, "max_reuse_distance": 0}
"""Numbers that decide what stage 3 gathers when."""


class Room:
    """For one model and workload on one cluster; what several strategies share is worked out once."""

    def __init__(self, reserve: float | None, work: Work | None = None) -> None:
        self.reserve = reserve
        self.work = work or Work()
        self.most: int | None = None
        """Bytes of a GPU, fewer than the card has, beyond which nothing is looked for; it may only fall."""
        self.held: dict[Hashable, tuple[int, bool]] = {}
        self.residents: dict[Hashable, int] = {}
        self.saved: dict[Hashable, int | None] = {}
        self.alone: dict[Hashable, tuple[int, int] | None] = {}
        self.activations: dict[Hashable, tuple[int, int] | None] = {}
        self.reducing: dict[Hashable, int] = {}

    def may_fit(self, job: Job) -> bool:
        """Whether card and host could hold it."""
        held, in_host = self.outside_passes(job)
        if not (in_host and self.has_room(job, held)):
            return False
        alone = self._alone(job)  # first: most that does not fit is told by it, and it walks along no events
        return (alone is None or self.has_room(job, gpu_with(job, alone))) and self.has_room(job, self.peak(job))

    def may_run(self, job: Job) -> bool:
        """Whether the card could hold the model's own forward and backward alone, for all that run it alike.

        At stage 3 what is kept between them, which the trace of the other stages tells too.
        """
        ends = [end for end in (job.cluster.capacity, self.most) if end is not None]
        alone = saved_at_least(job) if job.strategy.runs_zero_linear else self._alone(job)
        return alone is None or not ends or max(alone) <= min(ends)

    def may_keep(self, job: Job) -> bool:
        """Whether the card has room, when forward ends, for all that is gathered then in any case."""
        if not gathers(job) or (room := self.room_for_gathered(job)) is None:
            return True
        return retained_at_least(job) <= room

    def may_gather(self, job: Job) -> bool:
        """Whether the card could hold what is gathered beside the model's own step, in the run's first one too."""
        least = self.gathering(job)
        return self.has_room(job, least) and (not least or self.has_room(job, first_backward_at_least(job)))

    def may_reduce(self, job: Job) -> bool:
        """Whether the card could hold buckets of gradients, and what is copied when the first are reduced."""
        if job.strategy.stage < STAGES[-1]:
            return self.has_room(job, beside_buckets(job))
        if not self.may_reduce_bare(job):  # first: many gather differently and reduce alike
            return False
        return self.has_room(job, resident_at_least(job) + self._reducing(identical_beginning(job), gathered=True))

    def may_reduce_bare(self, job: Job) -> bool:
        """The same of stage 3, whatever it gathers beside the parameters of the module at work."""
        bare = self._reducing(identical_beginning(job).at(**UNSAID), gathered=False)
        return self.has_room(job, resident_at_least(job) + bare)

    def _reducing(self, job: Job, *, gathered: bool) -> int:
        """Beside what is held."""
        key = job.strategy, gathered
        if key not in self.reducing:
            try:
                self.reducing[key] = with_first_gradients(job, gathered=gathered)
            except ContradictionError:  # too few buffers for NVMe
                self.reducing[key] = 0
        return self.reducing[key]

    def has_room(self, job: Job, peak: int) -> bool:
        """Whether so many bytes of PyTorch's fit, and are not more than what is looked for."""
        left = self._left(job, peak)
        return left is None or left >= 0

    def _left(self, job: Job, peak: int) -> int | None:
        """Bytes of a GPU beside so many; None: for any number."""
        most = None if self.most is None else self.most - total(outside(job))
        ends = [end for end in (gpu_limit(job, self.reserve), most) if end is not None]
        return min(ends) - peak if ends else None

    def peak(self, job: Job) -> int:
        """Bytes at most on a GPU, or fewer: what is held, then the model's own step beside it."""
        self.work.add(BOUND, job)
        activations = self.activations_of(job)
        least = max(self.outside_passes(job)[0], gpu_with(job, activations))
        if activations and job.strategy.hpz_partition_size > 1:  # secondary partitions are all there as backward begins
            least = max(least, self._held(job) + activations[1])
        return least

    def outside_passes(self, job: Job) -> tuple[int, bool]:
        """Bytes of a GPU at most, or fewer, activations left out; whether the host and its disks have room.

        The micro-batch does not change them; what is added up on the host is there where anything is accumulated.
        """
        s = job.strategy
        key = (
            s.stage, s.offload_optimizer, s.offload_param, s.overlap_comm, s.reduce_bucket_size, s.contiguous_gradients,
            s.hpz_partition_size, s.param_persistence_threshold, s.sub_group_size, s.micro_steps > 1,
        )  # fmt: skip
        if key not in self.held:
            least = max(resident_at_least(job), init_at_least(job), step_at_least(job))
            in_host = host_fit(job, host.tier(job))
            on_disks = nvme_fit(job, total(host.nvme(job).peak.lines))
            self.held[key] = least, all(self._accepts(tier) for tier in (in_host, on_disks))
        return self.held[key]

    def _accepts(self, tier: TierFit) -> bool:
        return tier.fits is not False if self.reserve is None else tier.enough

    def gathering(self, job: Job) -> int:
        """Bytes at most while the model's own step runs beside what is gathered, or fewer; with too few buffers 0."""
        if not gathers(job):
            return 0
        try:
            return gathering_at_least(job)
        except ContradictionError:
            return 0

    def activations_of(self, job: Job) -> tuple[int, int] | None:
        """Bytes of the model's own forward and backward, or fewer; None where they are closed forms."""
        key = activations_key(job)
        if key not in self.activations:
            self.work.add(TRACED, job)
            self.activations[key] = least_activations(job)
        return self.activations[key]

    def _alone(self, job: Job) -> tuple[int, int] | None:
        """The same without what stage 3 gathers."""
        key = timeline_request(job), job.leaves
        if key not in self.alone:
            self.work.add(TRACED, job)
            self.alone[key] = alone_at_least(job)
        return self.alone[key]

    def _beside_kept(self, job: Job) -> int | None:
        """What the model's own step needs while that is there."""
        key = activations_key(job)
        if key not in self.saved:
            self.work.add(TRACED, job)
            self.saved[key] = beside_kept(job)
        return self.saved[key]

    def _held(self, job: Job) -> int:
        """In backward, with the smallest buckets: between steps, and secondary partitions (hpZ)."""
        s = job.strategy
        key = (s.stage, s.offload_optimizer, s.offload_param, s.hpz_partition_size, s.param_persistence_threshold)
        if key not in self.residents:
            lean = job.at(reduce_bucket_size=1, overlap_comm=False, contiguous_gradients=False)
            self.residents[key] = resident_at_least(lean) + least_secondary(job)
        return self.residents[key]

    def room_for_gathered(self, job: Job) -> int | None:
        """Elements that the card has room for, gathered, when forward ends; None: for any number.

        What is not gathered then was released, which made its secondary partition (hpZ).
        """
        found = self._beside_kept(job)
        if found is None or (left := self._left(job, self._held(job) + found)) is None:
            return None
        shared = secondary_ranks(job)
        return int(left // (gathered_width(job.strategy) * (1 - 1 / shared if shared else 1)))


def gathers(job: Job) -> bool:
    """Whether stage 3 has anything to bring together."""
    return job.strategy.stage == 3 and (job.ranks > 1 or job.strategy.offload_param is not None)


def least_secondary(job: Job) -> int:
    """Bytes of all secondary partitions, those of persistent parameters left out."""
    sizes, stay = secondary_sizes(job), set(persistent_tensors(job))
    elements = sum([size for index, size in enumerate(sizes) if index not in stay])
    return 0 if job.strategy.offload_param else elements * gathered_width(job.strategy)


def gathered_width(strategy: Strategy) -> int:
    """Bytes of a gathered element, at least."""
    return 1 if strategy.quantized_weights else 2 if strategy.autocast_dtype else strategy.element_bytes
