"""A ledger against a cluster: what is needed, what is there, and one of three verdicts.

`does_not_fit`: what is counted is more than there is. `tight`: it is not, but such runs have taken more than is there.
`fits`: what such runs took at most is there too. The line between the last two follows from evidence, which
benchmarks/verdicts.py sets out: runs that others published or reported, on either side of it.
"""

from __future__ import annotations

from typing import NamedTuple

from zeroplan.costs.outside import outside
from zeroplan.formulas import hosted
from zeroplan.formulas.outside import at_most
from zeroplan.ledger import Ledger, Line, Tier, Tiers, line, total
from zeroplan.specs.job import Job
from zeroplan.specs.optimizer import paper_state_bytes
from zeroplan.units import GiB, gib

PLACES = {"gpu": "GPU memory", "host": "host memory per node", "nvme": "NVMe per node"}
FITS, TIGHT, DOES_NOT_FIT = VERDICTS = ("fits", "tight", "does_not_fit")
"""From the best to the worst."""

RESERVED_PERCENT = 116
"""Percent of the allocated peak that PyTorch reserves on a full card. Published runs of torch 2 that reserve three
quarters of a card or more lie at 95 to 112, DeepSpeed's stage 2 at 114 and 124; and of the reported jobs that ran out
none is below this line (`benchmarks/verdicts.py`)."""
OUTSIDE_OF_ONE, OUTSIDE_OF_MORE = int(1.1 * GiB), int(2.31 * GiB)
"""The most that one process was seen to hold on a card outside PyTorch's allocator: a context on a V100; and with NCCL,
in two reported runs on several nodes, 2.05 and 2.31 GiB."""
EACH_PROCESS = 4080 << 20
"""Bytes of host memory of one training process before it trains (huggingface/peft#76)."""
FILE_SYSTEM_PERCENT = 105
"""Percent of the files that a disk needs: ext4 keeps 5 % of a disk for root unless told otherwise (mke2fs -m)."""


class TierFit(NamedTuple):
    """One tier: bytes counted, what such runs have taken at most, and what is there (None where it is not known)."""

    needed: int
    most: int
    capacity: int | None
    """Less what a stated headroom keeps free."""
    room: int | None
    """All that is there."""
    least: int
    """Less than `needed` where the model is an approximation."""

    @property
    def headroom(self) -> int | None:
        return None if self.capacity is None else self.capacity - self.needed

    @property
    def enough(self) -> bool:
        """Whether what is counted is there, as far as is known."""
        return self.capacity is None or self.needed <= self.capacity

    @property
    def verdict(self) -> str | None:
        if self.capacity is None or self.room is None:
            return None
        if self.least > self.capacity:
            return DOES_NOT_FIT
        return TIGHT if self.most > self.room or self.needed > self.capacity else FITS

    @property
    def fits(self) -> bool | None:
        return None if self.verdict is None else self.verdict == FITS


class Fit(NamedTuple):
    gpu: TierFit
    host: TierFit
    nvme: TierFit
    outside: tuple[Line, ...]
    """What a process takes on the card beside PyTorch's allocator."""
    beside: tuple[Line, ...] = ()
    """What a node's memory may hold beside what is counted."""
    comfortable: bool = False
    """Counted for a search that takes what fits alone, and not what is tight."""

    @property
    def tiers(self) -> dict[str, TierFit]:
        return {key: getattr(self, key) for key in PLACES}

    @property
    def verdict(self) -> str | None:
        """The worst of the tiers'; None where nothing is known that could fail."""
        verdicts = [tier.verdict for tier in self.tiers.values()]
        worst = next((verdict for verdict in reversed(VERDICTS) if verdict in verdicts), None)
        return None if worst == FITS and self.gpu.verdict is None else worst

    @property
    def fits(self) -> bool | None:
        """True for the verdict `fits` alone."""
        return None if self.verdict is None else self.verdict == FITS

    @property
    def possible(self) -> bool:
        """Whether what is counted is there, as far as is known: it fits or is tight."""
        return self.verdict != DOES_NOT_FIT

    @property
    def accepted(self) -> bool:
        """Whether the search that it was counted for takes it."""
        return all(map(self._accepts, self.tiers.values()))

    @property
    def gpu_accepted(self) -> bool:
        return self._accepts(self.gpu)

    def _accepts(self, tier: TierFit) -> bool:
        return tier.fits is not False if self.comfortable else tier.enough

    @property
    def missing(self) -> dict[str, int]:
        """Bytes by tier, of those that are too small."""
        return {key: -tier.headroom for key, tier in self.tiers.items()
                if tier.verdict == DOES_NOT_FIT and tier.headroom is not None}  # fmt: skip

    @property
    def tight(self) -> dict[str, int]:
        """Bytes by tier by which such runs have taken more than is there, of those that are tight."""
        return {key: max(tier.most - tier.room, tier.needed - tier.capacity) for key, tier in self.tiers.items()
                if tier.verdict == TIGHT and tier.room is not None and tier.capacity is not None}  # fmt: skip

    @property
    def lacking(self) -> dict[str, int]:
        """Bytes by tier that the search it was counted for would ask for beside what is there."""
        return self.missing or (self.tight if self.comfortable else {})

    @property
    def shortage(self) -> str:
        """Why it does not fit, or is tight, of all tiers that are short; empty where it fits."""
        clauses = [f"{need(self, key)}, {gib(missing)} too many" for key, missing in self.missing.items()]
        if not clauses:
            clauses = [f"{need(self, key)} and is tight (up to {gib(self.tiers[key].most)})" for key in self.tight]
        return f"needs {', and '.join(clauses)}" if clauses else ""


def need(verdict: Fit, key: str) -> str:
    """Bytes that a tier must have, with its name where it is not the GPU."""
    return f"{gib(verdict.tiers[key].needed)}{'' if key == 'gpu' else f' of {PLACES[key]}'}"


def fit(job: Job, held: Ledger | Tiers, *, reserve: float | None = 0.0) -> Fit:
    """Peak, CUDA context and NCCL's buffers against the card, peaks against host memory and NVMe of a node.

    `reserve`: the share of the card to keep free; None: as much as the verdict `fits` asks for.
    """
    return Fit(
        gpu_fit(job, total(held.gpu.peak.lines), reserve), host_fit(job, held.host),
        nvme_fit(job, total(held.nvme.peak.lines)), outside(job), beside_on_host(job), reserve is None,
    )  # fmt: skip


def gpu_fit(job: Job, peak: int, reserve: float | None) -> TierFit:
    """The fit of a peak of PyTorch's allocated bytes."""
    needed, room = peak + total(outside(job)), job.cluster.capacity
    capacity = None if room is None else int(room * (1 - (reserve or 0.0)))
    most = max(needed, at_most(peak, reserved_percent(job), most_outside(job)))
    return TierFit(needed, most, capacity, room, _least(job, needed))


def gpu_limit(job: Job, reserve: float | None) -> int | None:
    """Allocated bytes up to which a search takes a job; None for any number."""
    room = job.cluster.capacity
    if room is None:
        return None
    if reserve is not None:
        return int(room * (1 - reserve)) - total(outside(job))
    return min((room - most_outside(job)) * 100 // reserved_percent(job), room - total(outside(job)))


def reserved_percent(job: Job) -> int:
    """More where the model's memory is an approximation."""
    return round(RESERVED_PERCENT * (1 + job.model.approximate))


def most_outside(job: Job) -> int:
    """Bytes that one process has been seen to hold on a card outside PyTorch's allocator."""
    here = total(outside(job))
    return max(here, OUTSIDE_OF_MORE if job.ranks > 1 else OUTSIDE_OF_ONE) if here else 0


def host_fit(job: Job, tier: Tier) -> TierFit:
    """The fit of what a node's memory holds, as counted, and may hold beside it: processes always, what is saved and
    cached beside what is held between steps.
    """
    room, peak = job.cluster.host_memory, total(tier.peak.lines)
    processes, *saving = beside_on_host(job)
    most = processes.bytes + max(peak, total(tier.resident) + total(saving))
    return TierFit(peak, most, room, room, _least(job, peak))


def beside_on_host(job: Job) -> tuple[Line, ...]:
    """What a node may hold beside what is counted: its processes, a model being saved, and where its memory keeps
    states the page cache of files, for which little is left then. Data loaders' workers are not in it.
    """
    strategy, ranks, psi = job.strategy, job.cluster.gpus_per_node, job.model.parameters
    w = strategy.element_bytes
    processes = line("training processes", hosted.processes, size=EACH_PROCESS, ranks=ranks)
    if strategy.stage == 3:
        saved = line("weights being saved", hosted.gathered_by_first, strategy.dtype, psi=psi, w=w)
    else:
        saved = line("weights being saved", hosted.cloned_by_each, strategy.dtype, psi=psi, w=w, ranks=ranks)
    if not any(part and part.device == "cpu" for part in (strategy.offload_optimizer, strategy.offload_param)):
        return processes, saved
    k, nodes = paper_state_bytes(strategy.optimizer, strategy.precision), job.cluster.nodes
    trained, frozen = job.model.trainable_parameters, job.model.frozen_parameters
    cached = line("page cache", hosted.cached_files, psi=trained, frozen=frozen, w=w, k=k, nodes=nodes)
    return processes, saved, cached


def nvme_fit(job: Job, files: int) -> TierFit:
    """The fit of one node's swap files."""
    room = job.cluster.nvme
    return TierFit(files, files * FILE_SYSTEM_PERCENT // 100, room, room, _least(job, files))


def _least(job: Job, needed: int) -> int:
    return int(needed * (1 - job.model.approximate))
