"""`verify`, `observe` and `calibrate` with --json: what ran, beside what was predicted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from zeroplan.calibrate.findings import Measurement
from zeroplan.ledger import Checked
from zeroplan.observe.comparison import Observed
from zeroplan.schema.job import ModelObject, ScopeObject
from zeroplan.schema.json_object import MERGED, JsonDocument, JsonObject


@dataclass(frozen=True, kw_only=True)
class VerifyRow(JsonObject):
    """A predicted number beside a measured one."""

    checked: Checked = field(metadata=MERGED)
    difference: int
    """Predicted less measured, in the row's unit."""
    holds: bool
    """Whether they differ by no more than they may."""


@dataclass(frozen=True, kw_only=True)
class VerifyRun(JsonObject):
    """One run of DeepSpeed."""

    stage: int
    """ZeRO stage."""
    rank: int | None
    """The rank that ran; null: the one that needs most."""
    versions: Mapping[str, str]
    """Version by package."""
    date: str
    """Day of the run."""
    rows: Sequence[VerifyRow]
    """Each number."""


@dataclass(frozen=True, kw_only=True)
class Verify(JsonDocument):
    """Runs of DeepSpeed beside the prediction."""

    command: Literal["verify"] = "verify"
    """The command that ran."""
    scope: ScopeObject
    """The job that the numbers are of."""
    runs: Sequence[VerifyRun]
    """One for each stage."""
    assumed: Sequence[str]
    """What nobody stated."""


@dataclass(frozen=True, kw_only=True)
class ObserveRow(JsonObject):
    """A number of the log beside its prediction."""

    row: Observed = field(metadata=MERGED)
    difference: float | None
    """Predicted less observed, 0 within `half`; null where nothing is predicted."""


@dataclass(frozen=True, kw_only=True)
class Observe(JsonDocument):
    """The log of a run beside the prediction."""

    command: Literal["observe"] = "observe"
    """The command that ran."""
    scope: ScopeObject
    """The job that the numbers are of."""
    log: str
    """The file, as it was written."""
    lines: int
    """Lines of the file."""
    runs: int
    """Runs that it holds, of which the last is observed."""
    first_line: int
    """First line of that run, from 1."""
    steps: int
    """Optimizer steps that it tells of, 0: none."""
    model: ModelObject
    """The model that is predicted."""
    contradictions: Sequence[str]
    """Where the log's run is another than that predicted."""
    observed: Sequence[ObserveRow]
    """Each number."""
    notes: Sequence[str]
    """What is to be known of the numbers."""
    assumed: Sequence[str]
    """What nobody stated."""


@dataclass(frozen=True, kw_only=True)
class Calibrate(JsonDocument):
    """Figures of this machine."""

    command: Literal["calibrate"] = "calibrate"
    """The command that ran."""
    date: str
    """Day of the measurement."""
    machine: str
    """What was measured."""
    gpu: str | None
    """The card's preset; null where none stands for it, or there is no GPU."""
    gpus_per_node: int | None
    """GPUs of this machine; null without any."""
    figures: Sequence[Measurement]
    """Each figure of the node's file."""
    observations: Sequence[str]
    """Rates by shape and size, for people."""
    left_out: Sequence[str]
    """What could not be measured, and why."""
    written: str | None
    """The file that was written; null for none."""
