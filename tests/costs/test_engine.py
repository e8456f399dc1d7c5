"""A second engine: what one is asked for is all that memory, time and search know of it.

torch's DistributedDataParallel in fp32 holds parameters and two moments on each rank (12 bytes a parameter); backward
adds gradients and the buckets that they are reduced in (8 more), which stay to the end of the update.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest

from tests.jobs import job
from zeroplan.categories import Category
from zeroplan.clock import COMMUNICATION
from zeroplan.costs.engine import (
    BACKWARD,
    LAST,
    REDUCE,
    Choice,
    IssueOrder,
    Numbers,
    OptimizerUpdate,
    PhaseTransfer,
    Start,
    TrainingEngine,
    Values,
)
from zeroplan.costs.engines import ENGINES
from zeroplan.costs.ledger import ledger
from zeroplan.costs.memory import PhaseMemory
from zeroplan.costs.timing.step import step_time
from zeroplan.formulas import states, volume
from zeroplan.ledger import Copied, Line, Tier, Transfer, line, total
from zeroplan.search import best, evaluate, space
from zeroplan.specs.cluster import SourcedValue
from zeroplan.specs.job import EngineVersion, Job
from zeroplan.specs.software import Software

BUCKET_BYTES = 25 << 20
BUCKETS = Category("gradient buckets", "torch nn/parallel/distributed.py", "gradients side by side, to be reduced")


class DataParallel:
    """Parameters, gradients and states whole on each rank; buckets are all-reduced while backward runs."""

    larger_is_faster: tuple[str, ...] = ()
    gains_by_room: tuple[str, ...] = ()
    makes_room: tuple[str, ...] = ()

    def check(self, job: Job) -> None: ...

    def completed(self, job: Job) -> Job:
        return job

    def resident(self, job: Job) -> list[Line]:
        psi = job.model.parameters
        return [
            line("parameters", states.whole_parameters, "float32", psi=psi, w=4),
            line("optimizer states", states.optimizer_states, "float32", psi=psi, k=8, n_d=1),
        ]

    def initialize(self, job: Job) -> tuple[Line, ...]:
        return (line("parameters", states.whole_parameters, "float32", psi=job.model.parameters, w=4),)

    def phase_memory(self, job: Job) -> PhaseMemory:
        gradients = line("gradients", states.gradients, "float32", psi=job.model.parameters, g=4, n_d=1)
        buckets = line("gradient buckets", BUCKETS, "float32", alive=job.model.parameters, w=4)
        return PhaseMemory((), (), (gradients, buckets), (gradients, buckets))

    def gathered(self, job: Job) -> int:
        return 0

    def host(self, job: Job) -> Tier:
        return Tier()

    def nvme(self, job: Job) -> Tier:
        return Tier()

    def traffic(self, job: Job) -> tuple[Transfer, ...]:
        symbols = {"moved": job.model.parameters, "w": 4}
        size = volume.replayed(**symbols)
        calls = -(-size // BUCKET_BYTES)
        sent = Transfer("step", "all_reduce", "float32", calls, size, job.ranks, "dp", volume.replayed, symbols)
        return (sent,) if job.ranks > 1 else ()

    def copies(self, job: Job) -> tuple[Copied, ...]:
        return ()

    def in_phases(self, job: Job, transfers: Sequence[Transfer]) -> Iterator[PhaseTransfer]:
        return (PhaseTransfer(BACKWARD, sent, LAST) for sent in transfers)

    def issue_order(self, job: Job, *, first: bool = False) -> IssueOrder:
        """Buckets as if spread evenly over backward."""
        hooks, (sent,) = len(job.backward_hooks), self.traffic(job)
        ends = [hooks * number // sent.calls for number in range(1, sent.calls + 1)]
        return IssueOrder((), tuple((REDUCE, at, 1 / sent.calls, number) for number, at in enumerate(ends)))

    def exposed_share(self, job: Job, software: Software) -> SourcedValue | None:
        return software.exposed_share

    def hooked(self, job: Job) -> bool:
        return False

    def update(self, job: Job) -> OptimizerUpdate:
        return OptimizerUpdate(on_gpu=job.model.parameters, moved=28, norm=0, on_host=0)

    def choices(self, job: Job, fixed: Values) -> Iterator[Choice]:
        yield {"stage": 0, "offload_optimizer": None, "offload_param": None}

    def numbers(self, job: Job, choice: Choice, fixed: Values) -> Numbers:
        return {}

    def lean(self, choice: Choice, numbers: Numbers) -> Iterator[Values]:
        yield {}

    def fast(self, job: Job, numbers: Numbers, has_room: Callable[[Values], bool]) -> Iterator[Values]:
        yield {}

    def starts(self, choice: Choice, numbers: Numbers) -> Iterator[Start]:
        yield Start([[{}]], monotone=True)


@pytest.fixture
def data_parallel(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Job]:
    engine: TrainingEngine = DataParallel()
    monkeypatch.setitem(ENGINES, "ddp", engine)

    def made(**of: object) -> Job:
        one = job("llama-3.2-1b", precision="fp32", **of)  # type: ignore[arg-type]
        return one._replace(engine=EngineVersion("ddp", "2.13"))

    return made


def test_memory_is_the_engines_beside_the_models(data_parallel):
    """12 bytes of each of 1,235,814,400 parameters between steps; 20 in the update, and tokens of 8 bytes."""
    counted = ledger(data_parallel())
    assert counted.accounting == "ddp"
    assert total(counted.gpu.resident) == 12 * 1_235_814_400
    assert total(counted.gpu.worst("step").lines) == 20 * 1_235_814_400 + 2048 * 8
    assert counted.gpu.peak.phase in ("backward", "step")


def test_time_has_its_collectives_beside_backward(data_parallel):
    """189 buckets of 4.9 GB in all; on one GPU there are none."""
    eight, alone = data_parallel(), data_parallel(gpus=1)
    sent = [term for term in step_time(eight, ledger(eight)).terms if term.group == COMMUNICATION]
    assert [term.name for term in sent] == ["all_reduce, backward"]
    assert ledger(eight).traffic[0].calls == 189
    assert not [term for term in step_time(alone, ledger(alone)).terms if term.group == COMMUNICATION]
    assert step_time(eight, ledger(eight)).total > step_time(alone, ledger(alone)).total


def test_a_search_chooses_among_what_the_engine_lets_one_choose(data_parallel):
    """No stage and no bucket, but micro-batch, checkpointing and attention: the fastest of all that fit, to 0.1 %.

    20 bytes a parameter do not fit in 24 GB.
    """
    whole = space(data_parallel(capacity=80_000_000_000), {}, 4)
    every = [evaluate(configuration.at(), 0.0) for configuration in whole.configurations()]
    fastest = min(one.time.total for one in every if one.fit.accepted)
    found = best(whole, 0.0).best
    assert found is not None
    assert found.time.total <= 1.001 * fastest
    assert {one.strategy.stage for one in every} == {0}
    assert best(space(data_parallel(capacity=24_000_000_000), {}, 4), 0.0).best is None
