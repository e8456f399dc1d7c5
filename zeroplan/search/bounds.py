"""What no choice of numbers changes: seconds that a strategy takes at least, beside whether it could fit at all.

A search leaves out what cannot win or cannot fit by these; tests hold them against the full models.
"""

from __future__ import annotations

from collections.abc import Hashable

from zeroplan.costs.deepspeed.offload_copies import copies, files_of_the_update
from zeroplan.costs.deepspeed.resident import DTYPE_BYTES
from zeroplan.costs.deepspeed.traffic import traffic
from zeroplan.costs.timing.computing import ComputePass, Computing, computing
from zeroplan.costs.timing.copies import hides_gradients
from zeroplan.costs.timing.disk import disk_terms
from zeroplan.costs.timing.hooks import hooks, waited
from zeroplan.costs.timing.offload import host_terms, updating
from zeroplan.costs.timing.rates import host_link
from zeroplan.costs.timing.step import software_of, update
from zeroplan.costs.timing.traffic import Gathers, of_gathers
from zeroplan.errors import ContradictionError
from zeroplan.ledger import Ledger, Tier
from zeroplan.search.candidate import Candidate, evaluate, timed
from zeroplan.search.least_copies import least_copied, own_elements
from zeroplan.search.least_traffic import Traffic, gathered_again, last_share, least_traffic
from zeroplan.search.room import Room
from zeroplan.search.work import BOUND, COUNTED, GATHERS, TIMED, TRACED, Work
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Strategy

ROUNDED = 1e-11
"""Of a step's seconds, what twelve digits of them leave out at most."""


class Bounds(Room):
    """Of one model and workload on one cluster; what several strategies share is worked out once."""

    def __init__(self, reserve: float | None, work: Work | None = None) -> None:
        super().__init__(reserve, work)
        self.computing: dict[Hashable, Computing] = {}
        self.traffic: dict[Hashable, Traffic] = {}
        self.beside: dict[Hashable, float] = {}
        self.gathers: dict[Strategy, tuple[Gathers, float]] = {}
        """And seconds beside the passes."""
        self.counted: dict[Strategy, Candidate | None] = {}
        """In full."""

    def seconds(
        self, job: Job, *, traced: bool = True, bucketed: bool = False, gathered: Gathers | None = None,
        beside: float | None = None,
    ) -> float:  # fmt: skip
        """Computing and the update as they are, traffic hidden as well as it can be, copies as few as there can be.

        Not `traced`: without matrix products that run again, which only a trace of the model counts. `bucketed`: the
        job's own buckets are meant, not only larger ones. `gathered`: as stage 3's coordinator does, and `beside` what
        that copies and the update; None: at least.
        """
        self.work.add(BOUND, job)
        strategy, found = job.strategy, self._computing(job, traced=traced)
        micro_steps = strategy.micro_steps
        room = self.room_for_gathered(job) if traced and strategy.stage == 3 else None
        least = self._traffic(job, room)
        shown = None
        if strategy.stage and strategy.overlaps:
            software = software_of(job)
            shown = (software.exposed_share_at_stage_3 if strategy.stage == 3 else software.exposed_share).value
            if bucketed and strategy.stage < 3 and software.in_order:
                least = least.reducing_last(last_share(job))
        reductions = micro_steps if strategy.stage == 3 or strategy.reduces_every_micro_step else 1
        forward, backward = found.forward.seconds, found.backward.seconds
        first, later = least.first.shows(forward, shown), least.forward.shows(forward, shown)
        in_forward = first + (micro_steps - 1) * later
        in_backward = reductions * least.backward.shows(backward, shown)
        if gathered:
            both = sum(
                each.times * least.gathering(each.seconds, each.slowed).shows(backward, shown) for each in gathered.sent
            )
            in_forward = max(in_forward, gathered.forward)
            in_backward = max(in_backward, gathered.backward, both)
        hooked = hooks(job, software_of(job))
        passes = max(micro_steps * forward + in_forward, micro_steps * hooked.forward)
        passes += max(micro_steps * backward + in_backward, micro_steps * hooked.backward)
        if beside is None:
            beside = self._beside(job, waited(job, software_of(job), found if traced else at_most(found)), room)
        return (passes + least.after + beside) * (1 - ROUNDED)

    def computing_alone(self, job: Job, *, traced: bool = True) -> float:
        """The same without traffic, the update and copies."""
        found = self._computing(job, traced=traced)
        return job.strategy.micro_steps * (found.forward.seconds + found.backward.seconds) * (1 - ROUNDED)

    def with_gathers(self, loose: Job, lean: Job) -> float:
        """The same with gathers as stage 3's coordinator issues them, and what they copy; of reductions what there is
        at least. `loose` moves least of the open buckets, `lean` has the smallest.
        """
        self.work.add(GATHERS, loose)
        found, sends = self._computing(loose), loose
        if not loose.strategy.scatters:  # a bucket's buffer is all-reduced, gradients in their own storage to one rank
            sends = loose.at(contiguous_gradients=False)
        counted = Ledger("deepspeed", Tier(), traffic=traffic(sends), copies=copies(loose))
        beside = [*update(loose), *host_terms(lean, counted, waited(loose, software_of(loose), found))]
        gathered = of_gathers(loose, counted, found, software_of(loose))
        self.gathers[loose.strategy] = gathered, sum(entry.seconds for entry in beside)
        return self.among(loose, loose)

    def among(self, job: Job, loose: Job) -> float:
        """The same of a job whose reductions are settled, which gathers like `loose`, of which that was asked."""
        gathered, beside = self.gathers[loose.strategy]
        return self.seconds(job, gathered=gathered, beside=beside)

    def _computing(self, job: Job, *, traced: bool = True) -> Computing:
        """Of one micro-step: offload and buckets do not change it, nor the linear function what is not traced."""
        s = job.strategy
        key = (traced and s.runs_zero_linear, s.micro_batch, s.checkpointing, s.attention, traced)
        if key not in self.computing:
            self.work.add(TRACED, job)
            self.computing[key] = computing(job, software_of(job), traced=traced)
        return self.computing[key]

    def _traffic(self, job: Job, room: int | None) -> Traffic:
        s = job.strategy
        key = (
            s.stage, s.hpz_partition_size, s.param_persistence_threshold, s.max_live_parameters, s.prefetch_bucket_size,
            s.max_reuse_distance, s.reduce_bucket_size, room,
        )  # fmt: skip
        if key not in self.traffic:
            self.traffic[key] = least_traffic(job, room)
        return self.traffic[key]

    def _beside(self, job: Job, found: Computing, room: int | None) -> float:
        """The update, on the GPU and on the CPUs, and what offload copies in any case; `room` as `_room`."""
        s = job.strategy
        again = gathered_again(job, room) if s.stage == 3 and s.offload_param else 0
        work = (found.forward.seconds, found.backward.seconds) if s.stage < 3 and s.offload_optimizer else None
        key = (s.stage, s.offload_optimizer, s.offload_param, s.micro_steps, s.param_persistence_threshold, work, again)
        if key not in self.beside:
            self.beside[key] = sum(entry.seconds for entry in update(job)) + self._offload(job, found, again)
        return self.beside[key] + self._gradients(job, found)

    def _offload(self, job: Job, found: Computing, again: int) -> float:
        """Below stage 3 no number changes what is copied; at stage 3 parameters are, when updated and when fetched."""
        strategy = job.strategy
        if not (strategy.offload_optimizer or strategy.offload_param):
            return 0.0
        if strategy.stage < 3:
            counted = Ledger("deepspeed", Tier(), copies=copies(job))
            return sum(entry.seconds for entry in host_terms(job, counted, found))
        on_cpus = sum(entry.seconds for entry in updating(job))
        files = Ledger("deepspeed", Tier(), copies=tuple(files_of_the_update(job)))
        on_disks = sum(entry.seconds for entry in disk_terms(job, files, on_cpus))
        return on_cpus + on_disks + least_copied(job, again) / host_link(job.cluster).value

    def _gradients(self, job: Job, found: Computing) -> float:
        """Stage 3 takes each micro-step's to the host and back, beside backward as far as that lasts."""
        strategy = job.strategy
        if strategy.stage < 3 or not strategy.offload_optimizer:
            return 0.0
        both_ways = 2 * DTYPE_BYTES[strategy.accumulation] * own_elements(job) / host_link(job.cluster).value
        beside = found.backward.seconds if hides_gradients(strategy) else 0.0
        return strategy.micro_steps * max(0.0, both_ways - beside)

    def fitting(self, job: Job) -> Candidate | None:
        """Counted in full; None where it does not fit or needs more than is looked for, or DeepSpeed stops in training.

        It stops at too few buffers for NVMe, in the run's first step.
        """
        if job.strategy not in self.counted:
            self.work.add(COUNTED, job)
            try:
                self.counted[job.strategy] = evaluate(job, self.reserve)
            except ContradictionError:
                self.counted[job.strategy] = None
        found = self.counted[job.strategy]
        if found is None or not found.fit.accepted or (self.most is not None and found.fit.gpu.needed > self.most):
            return None
        return found

    def timed(self, job: Job) -> float:
        """Seconds of a step, to twelve digits; see `candidate.timed`."""
        self.work.add(TIMED, job)
        return timed(job)

    def counts(self, job: Job) -> Candidate | None:
        """The same as `fitting`, asked only where no bound rules it out."""
        return self.fitting(job) if self.may_fit(job) and self.may_reduce(job) else None


def at_most(found: Computing) -> Computing:
    """With all of forward run again, so that the most of what offload copies hides."""
    return Computing(found.forward, ComputePass((*found.backward.terms, *found.forward.terms)))
