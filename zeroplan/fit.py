"""A ledger against a cluster: what is needed, what is there, and by how much it fits or fails."""

from __future__ import annotations

from zeroplan.costs.outside import outside
from zeroplan.ledger import Ledger, Line, total
from zeroplan.record import NamedTuple
from zeroplan.specs.job import Job
from zeroplan.units import gib

PLACES = {"gpu": "GPU memory", "host": "host memory per node", "nvme": "NVMe per node"}


class TierFit(NamedTuple):
    """One tier: bytes needed, capacity and headroom (both None when the capacity is not known)."""

    needed: int
    capacity: int | None

    @property
    def headroom(self) -> int | None:
        return None if self.capacity is None else self.capacity - self.needed

    @property
    def fits(self) -> bool | None:
        return None if self.headroom is None else self.headroom >= 0


class Fit(NamedTuple):
    gpu: TierFit
    host: TierFit
    nvme: TierFit
    outside: tuple[Line, ...]
    """What a process takes on the card beside PyTorch's allocator."""

    @property
    def fits(self) -> bool | None:
        """False when any tier is too small, None when nothing is known that could fail."""
        verdicts = [tier.fits for tier in (self.gpu, self.host, self.nvme)]
        if False in verdicts:
            return False
        return True if self.gpu.fits else None

    @property
    def missing(self) -> dict[str, int]:
        """Bytes by tier, those that are short alone."""
        tiers: dict[str, TierFit] = {key: getattr(self, key) for key in PLACES}
        return {key: -tier.headroom for key, tier in tiers.items() if tier.headroom is not None and tier.headroom < 0}

    @property
    def shortage(self) -> str:
        """Why it does not fit, of all that is short; empty when nothing is."""
        short = [
            f"{gib(getattr(self, key).needed)}{'' if key == 'gpu' else f' of {PLACES[key]}'}, {gib(missing)} too many"
            for key, missing in self.missing.items()
        ]
        return f"needs {', and '.join(short)}" if short else ""


def fit(job: Job, ledger: Ledger, *, reserve: float = 0.0) -> Fit:
    """Peak, CUDA context and NCCL's buffers against the card, peaks against host memory and NVMe of a node.

    `reserve` is the share of the card to keep free.
    """
    return Fit(
        gpu_fit(job, total(ledger.gpu.peak.lines), reserve),
        TierFit(total(ledger.host.peak.lines), job.cluster.host_memory),
        TierFit(total(ledger.nvme.peak.lines), job.cluster.nvme),
        outside(job),
    )


def gpu_fit(job: Job, peak: int, reserve: float) -> TierFit:
    capacity = None if job.cluster.capacity is None else int(job.cluster.capacity * (1 - reserve))
    return TierFit(peak + total(outside(job)), capacity)
