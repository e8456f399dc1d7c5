"""DeepSpeed 0.19.8 as an engine: which file of this folder says what.

- layout: parameter groups, and their flat tensors at stages 1 and 2; partitions: shards and sub-groups of stage 3.
- stage_0, stages_1_2, bf16_optimizer, stage_3: what is resident and what each phase allocates. Event by event:
  initialize, stages_1_2_backward and stage_3_backward. optimizer_states: what optimizers keep.
- reduction: which gradients share a bucket, what a flush sends, when gradients are ready (the bucket's bytes:
  stages_1_2_backward, stage_3). coordinator, with gathered_storages and events: what
  stage 3 gathers; fetch: its replays, and with which thresholds they hold.
- host, nvme_swap: memory of the host, swap buffers and files. offload_copies: what crosses PCIe and goes to disk.
- traffic: collectives; phases: in which phases they run; issue_order: in which order; quantized_collectives: ZeRO++'s.
- muon, muon_update, muon_gather, muon_offload; zenflow, zenflow_backward: the two optimizers with steps of their own.
- update: what a step updates, for its time. search_space: what a search may choose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from zeroplan.costs.deepspeed import (
    fetch,
    host,
    initialize,
    muon,
    nvme_swap,
    offload_copies,
    optimizer_states,
    partitions,
    stage_0,
    stage_3,
    stages_1_2,
    traffic,
)
from zeroplan.costs.memory import PhaseMemory
from zeroplan.errors import ContradictionError
from zeroplan.ledger import Copied, Line, Tier, Transfer
from zeroplan.specs.job import Job

if TYPE_CHECKING:
    from zeroplan.costs.engine import Choice, IssueOrder, Numbers, OptimizerUpdate, PhaseTransfer, Start, Values
    from zeroplan.specs.cluster import SourcedValue
    from zeroplan.specs.software import Software

STAGES: dict[int, Any] = {0: stage_0, 1: stages_1_2, 2: stages_1_2, 3: stage_3}
INITIALIZE = {
    0: initialize.init_stage_0, 1: initialize.init_stages_1_2,
    2: initialize.init_stages_1_2, 3: initialize.init_stage_3,
}  # fmt: skip


class DeepSpeed:
    """`zeroplan.costs.engine.TrainingEngine` as DeepSpeed 0.19.8 is.

    What only a clock or a search asks is imported when they ask: an estimate without a card starts sooner.
    """

    def check(self, job: Job) -> None:
        optimizer_states.check_adagrad(job)
        muon.check(job)
        if job.strategy.stage == 3:
            if refused := partitions.refusal(job):
                raise ContradictionError(refused)
            nvme_swap.check_buffers(job)
            nvme_swap.check_read_twice(job)

    def completed(self, job: Job) -> Job:
        return fetch.with_room(job)

    def resident(self, job: Job) -> list[Line]:
        lines: list[Line] = STAGES[job.strategy.stage].resident(job)
        return lines

    def initialize(self, job: Job) -> tuple[Line, ...]:
        return INITIALIZE[job.strategy.stage](job)

    def phase_memory(self, job: Job) -> PhaseMemory:
        result: PhaseMemory = STAGES[job.strategy.stage].phase_memory(job)
        return result

    def gathered(self, job: Job) -> int:
        return stage_3.gathered(job) if job.strategy.stage == 3 else 0

    def host(self, job: Job) -> Tier:
        return host.tier(job)

    def nvme(self, job: Job) -> Tier:
        return host.nvme(job)

    def traffic(self, job: Job) -> tuple[Transfer, ...]:
        return traffic.traffic(job)

    def copies(self, job: Job) -> tuple[Copied, ...]:
        return offload_copies.copies(job)

    def in_phases(self, job: Job, transfers: Sequence[Transfer]) -> Iterator[PhaseTransfer]:
        from zeroplan.costs.deepspeed.phases import in_phases

        return in_phases(job, transfers)

    def issue_order(self, job: Job, *, first: bool = False) -> IssueOrder:
        from zeroplan.costs.deepspeed.issue_order import issue_orders

        return issue_orders(job)[0 if first else -1]

    def exposed_share(self, job: Job, software: Software) -> SourcedValue | None:
        if not (job.strategy.overlaps and job.strategy.stage):
            return None
        return software.exposed_share_at_stage_3 if job.strategy.stage == 3 else software.exposed_share

    def hooked(self, job: Job) -> bool:
        return job.strategy.stage == 3

    def update(self, job: Job) -> OptimizerUpdate:
        from zeroplan.costs.deepspeed.update import update

        return update(job)

    def choices(self, job: Job, fixed: Values) -> Iterator[Choice]:
        from zeroplan.costs.deepspeed.search_space import choices

        return choices(job, fixed)

    def numbers(self, job: Job, choice: Choice, fixed: Values) -> Numbers:
        from zeroplan.costs.deepspeed.search_space import numbers

        return numbers(job, choice, fixed)

    def lean(self, choice: Choice, numbers: Numbers) -> Iterator[Values]:
        from zeroplan.costs.deepspeed.search_space import lean

        return lean(choice, numbers)

    def fast(self, job: Job, numbers: Numbers, has_room: Callable[[Values], bool]) -> Iterator[Values]:
        from zeroplan.costs.deepspeed.search_space import fast

        return fast(job, numbers, has_room)

    def starts(self, choice: Choice, numbers: Numbers) -> Iterator[Start]:
        from zeroplan.costs.deepspeed.search_space import starts

        return starts(choice, numbers)

    @property
    def larger_is_faster(self) -> tuple[str, ...]:
        from zeroplan.costs.deepspeed.search_space import LARGER_IS_FASTER

        return LARGER_IS_FASTER

    @property
    def gains_by_room(self) -> tuple[str, ...]:
        from zeroplan.costs.deepspeed.search_space import GAINS_BY_ROOM

        return GAINS_BY_ROOM

    @property
    def makes_room(self) -> tuple[str, ...]:
        from zeroplan.costs.deepspeed.search_space import MAKES_ROOM

        return MAKES_ROOM
