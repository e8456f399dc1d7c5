"""A config beside a model, a card and a host: the job that it states there, and what the ledger says of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # a ledger is asked for of few files: what counts it is imported then
    from zeroplan.search import Candidate
    from zeroplan.specs.cluster import Cluster
    from zeroplan.specs.job import Job
    from zeroplan.specs.model import Model


@dataclass(frozen=True)
class Planned:
    """What `--model`, `--gpus`, `--gpu` and the like add to a config; the job is `zeroplan estimate --config`'s."""

    cluster: Cluster
    model: Model | None = None
    job: Job | None = None
    """None without a model, or where no ledger can be made; `hindrance` then says why."""
    reserve: float = 0.0
    """The share of each card that is kept free."""
    hindrance: str = ""
    accepts_tight: bool = False
    """As --accept has it: nothing is said of a tight plan then."""
    assumes_no_checkpointing: bool = False
    """Nobody said whether layers are checkpointed, which no config can: none are."""

    assumes_one_gpu: bool = False
    """Nobody said how many there are."""
    taken: tuple[str, ...] = ()
    """What of the job is as a launch script says it, or why its model is not counted, each a line."""

    @cached_property
    def candidate(self) -> Candidate:
        """The job counted and timed. Raises `ZeroplanError` where DeepSpeed would stop in `initialize` or a step."""
        assert self.job is not None
        return counted(self.job, self.reserve)

    @property
    def is_timed(self) -> bool:
        """Whether seconds are those of a card that was named, not of one that stands for its class."""
        from zeroplan.costs.timing import is_timed

        return self.job is not None and is_timed(self.job)

    def at(self, **changes: Any) -> Candidate:
        """The same under a changed strategy. Raises as `candidate`."""
        assert self.job is not None
        return counted(self.job.at(**changes), self.reserve)


def counted(job: Job, reserve: float | None) -> Candidate:
    """As it stands in the config: a search would choose NVMe buffers that nobody stated."""
    from zeroplan.costs.ledger import tiers
    from zeroplan.fit import fit
    from zeroplan.ledger import Detail
    from zeroplan.search import Candidate

    held = tiers(job, detail=Detail.WHOLE)
    return Candidate(job, held, fit(job, held, reserve=reserve))
