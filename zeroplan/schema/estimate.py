"""`estimate --json`: everything about one strategy, or about each ZeRO stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from zeroplan.schema.job import JobObject, KeptFree, ScopeObject
from zeroplan.schema.json_object import JsonDocument
from zeroplan.schema.memory import CopiedObject, FitObject, Held, MemoryObject, TransferObject
from zeroplan.schema.step_time import Compute, StepTimeObject, TimelineMoment


@dataclass(frozen=True, kw_only=True)
class StrategyEstimate(JobObject):
    """Everything about one strategy."""

    memory: MemoryObject
    """What GPU, host and NVMe hold."""
    compute: Compute | None
    """Operations of a micro-batch; null where the model's forward is not written out."""
    time: StepTimeObject | None
    """Seconds of a step; null where no card is named."""
    traffic: Sequence[TransferObject]
    """Collectives."""
    copies: Sequence[CopiedObject]
    """Copies between GPU, host and NVMe."""
    fit: FitObject
    """What is needed against what is there."""


@dataclass(frozen=True, kw_only=True)
class HeldEstimate(JobObject):
    """What still holds of a strategy of a job of which a part is not planned (--partial)."""

    held: Held
    """What GPU, host and NVMe hold between steps."""
    fit: None
    """Not known."""
    time: None
    """Not known."""


@dataclass(frozen=True, kw_only=True)
class EstimateDocument(JsonDocument):
    """What every form of estimate has."""

    command: Literal["estimate"] = "estimate"
    """The command that ran."""
    scope: ScopeObject
    """The job that the numbers are of."""
    assumed: Sequence[str]
    """What nobody stated."""
    kept_free: KeptFree | None = None
    """With --headroom, what of each card is kept free."""


@dataclass(frozen=True, kw_only=True)
class OneEstimate(StrategyEstimate, EstimateDocument):
    """One strategy."""

    timeline: Sequence[TimelineMoment] | None = None
    """With --timeline, moments of a step in order."""


@dataclass(frozen=True, kw_only=True)
class OneHeldEstimate(HeldEstimate, EstimateDocument):
    """One strategy of a job of which a part is not planned."""


@dataclass(frozen=True, kw_only=True)
class StagesEstimate(EstimateDocument):
    """ZeRO stages side by side."""

    stages: Sequence[StrategyEstimate] | Sequence[HeldEstimate]
    """Each stage that was asked for."""


AnyEstimate = OneEstimate | OneHeldEstimate | StagesEstimate
