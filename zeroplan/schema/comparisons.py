"""`compare`, `matrix` and `diff` with --json: strategies, models and configs side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from zeroplan.deepspeed.effect import Effect
from zeroplan.outcome import Outcome
from zeroplan.schema.job import KeptFree, ModelObject, ScopeObject
from zeroplan.schema.json_object import MERGED, JsonDocument, JsonObject
from zeroplan.schema.memory import FitObject
from zeroplan.schema.step_time import StepTimeObject
from zeroplan.specs.strategy import Strategy


@dataclass(frozen=True, kw_only=True)
class CompareRow(JsonObject):
    """One combination."""

    changed: Mapping[str, str]
    """Value by option, of those that hold several."""
    stage: int
    """ZeRO stage."""
    gpus: int
    """All GPUs."""
    strategy: Strategy
    """What a ds_config.json and the launch decide."""
    fit: FitObject
    """What is needed against what is there."""
    time: StepTimeObject
    """Seconds of a step."""
    assumed: Sequence[str]
    """What nobody stated."""
    kept_free: KeptFree | None = None
    """With --headroom, what of each card is kept free."""


@dataclass(frozen=True, kw_only=True)
class FailedRow(JsonObject):
    """A combination that cannot run."""

    changed: Mapping[str, str]
    """Value by option, of those that hold several."""
    reason: str
    """Why it cannot run."""


@dataclass(frozen=True, kw_only=True)
class Compare(JsonDocument):
    """Combinations side by side."""

    command: Literal["compare"] = "compare"
    """The command that ran."""
    scope: ScopeObject
    """The job that the numbers are of."""
    model: ModelObject
    """The model of the first row."""
    rows: Sequence[CompareRow | FailedRow]
    """Each combination."""


@dataclass(frozen=True, kw_only=True)
class MatrixCell(JsonObject):
    """One strategy in plain numbers."""

    outcome: Outcome = field(metadata=MERGED)
    headroom: int | None
    """Bytes of a GPU that stay free; less than zero: that are missing; null where no card is named."""


@dataclass(frozen=True, kw_only=True)
class FailedCell(JsonObject):
    """A strategy that cannot run."""

    reason: str
    """Why it cannot run."""


@dataclass(frozen=True, kw_only=True)
class MatrixRowObject(JsonObject):
    """One model under each strategy."""

    model: ModelObject
    """The model."""
    strategies: Mapping[str, MatrixCell | FailedCell]
    """By the strategy's name."""


@dataclass(frozen=True, kw_only=True)
class MatrixDocument(JsonDocument):
    """Models by strategies."""

    command: Literal["matrix"] = "matrix"
    """The command that ran."""
    rows: Sequence[MatrixRowObject]
    """One for each model."""
    assumed: Sequence[str]
    """What nobody stated."""
    kept_free: KeptFree | None = None
    """With --headroom, what of each card is kept free."""


@dataclass(frozen=True, kw_only=True)
class CountedConfig(MatrixCell):
    """A config in numbers."""

    calls: int
    """Calls of collectives in an optimizer step."""
    copied: int
    """Bytes that one rank copies between GPU, host and NVMe in an optimizer step."""


@dataclass(frozen=True, kw_only=True)
class DiffKey(JsonObject):
    """A key that means something else in both configs."""

    key: str
    """The key with its sections."""
    a: Any
    """Its value in the first config as DeepSpeed reads it, defaults filled in."""
    b: Any
    """Its value in the second config likewise."""
    in_a: bool
    """Whether the first config has it written."""
    in_b: bool
    """Whether the second config has it written."""


@dataclass(frozen=True, kw_only=True)
class DiffKeys(JsonObject):
    """A change without a model to count it for."""

    keys: Sequence[DiffKey]
    """One key, or several that DeepSpeed takes only together."""


@dataclass(frozen=True, kw_only=True)
class DiffChange(DiffKeys):
    """A change in numbers."""

    alone: Effect | None
    """What it does to the first config; null where DeepSpeed refuses that."""
    last: Effect | None
    """What it does as the last change towards the second config; null where DeepSpeed refuses that without it."""
    refused_alone: str | None
    """Why DeepSpeed refuses it alone."""
    nothing: Sequence[str] | None
    """Why it changes no number; null where it does."""


@dataclass(frozen=True, kw_only=True)
class DiffDocument(JsonDocument):
    """What every form of diff has."""

    command: Literal["diff"] = "diff"
    """The command that ran."""
    files: Sequence[str]
    """Both files, as they were written."""
    assumed: Sequence[str]
    """What nobody stated."""


@dataclass(frozen=True, kw_only=True)
class KeysDiff(DiffDocument):
    """What differs in meaning."""

    changes: Sequence[DiffKeys]
    """Each key."""


@dataclass(frozen=True, kw_only=True)
class CountedDiff(DiffDocument):
    """What differs in meaning and, for a model, in numbers."""

    scope: ScopeObject
    """The job that the numbers are of."""
    model: ModelObject
    """The model."""
    a: CountedConfig
    """The first config."""
    b: CountedConfig
    """The second config."""
    together: Effect
    """What the second config has more than the first."""
    sum: Effect | None
    """The changes alone, added up; null where DeepSpeed refuses one of them alone."""
    kept_free: KeptFree | None = None
    """With --headroom, what of each card is kept free."""
    changes: Sequence[DiffChange]
    """Each change."""


Diff = KeysDiff | CountedDiff
