"""`explain --json`: lines, keys, quantities, sums, levels and terms under one word, or a rule of check."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from zeroplan.deepspeed.keys.key import Key
from zeroplan.schema.check import RuleObject
from zeroplan.schema.job import ScopeObject
from zeroplan.schema.json_object import MERGED, JsonDocument, JsonObject
from zeroplan.schema.memory import Collective, LineObject, MemoryLevel
from zeroplan.schema.step_time import TermObject


@dataclass(frozen=True, kw_only=True)
class EntryObject(JsonObject):
    """A line of memory or a collective, worked out."""

    stage: int
    """ZeRO stage."""
    name: str
    """As tables name it."""
    bytes: int
    """Bytes of the line, or of the collective's full tensors."""
    formula: str
    """The equation; of what was counted, in words what was."""
    worked: str
    """The equation with values in place of its letters; of what was counted, the count with its units."""
    symbols: Mapping[str, int]
    """Values by symbol."""
    source: str
    """Where the formula is from."""
    note: str
    """What the source says beside it; empty for nothing."""


@dataclass(frozen=True, kw_only=True)
class KeyCost(JsonObject):
    """One value of a key, and what the job then holds and moves."""

    value: Any
    """The key's value."""
    gpu: int
    """Bytes that a GPU holds between steps."""
    host: int
    """Bytes that a node's memory holds between steps."""
    nvme: int
    """Bytes that a node's NVMe holds between steps."""
    copied: int
    """Bytes that one rank copies between GPU, host and NVMe in an optimizer step."""
    step: float | None
    """Seconds of an optimizer step; null where no card is named."""
    phases_less_activations: Mapping[str, int]
    """Bytes of each phase's peak on a GPU without activations."""
    traffic: Sequence[Collective]
    """Collectives."""


@dataclass(frozen=True, kw_only=True)
class RefusedValue(JsonObject):
    """A value of a key at which DeepSpeed stops."""

    value: Any
    """The key's value."""
    refused: str
    """Why DeepSpeed stops."""


@dataclass(frozen=True, kw_only=True)
class CostedKey(JsonObject):
    """A key of ds_config.json, and what its values cost."""

    known: Key = field(metadata=MERGED)
    costs: Sequence[KeyCost | RefusedValue]
    """Several values of the key; empty where no memory or traffic depends on it."""


@dataclass(frozen=True, kw_only=True)
class QuantityObject(JsonObject):
    """What tables sum up of a job, with its formula."""

    stage: int
    """ZeRO stage."""
    name: str
    """As tables name it."""
    unit: str
    """bytes, tokens/s, s, or empty for a share."""
    value: float
    """Its value, in that unit."""
    formula: str
    """The equation."""
    worked: str
    """The equation with values in place of its letters."""
    symbols: Mapping[str, float]
    """Values by letter."""
    source: str
    """Where the formula is from."""
    evidence: str
    """How far it is to be trusted."""
    note: str
    """What the source says beside it; empty for nothing."""
    said: str
    """Where it is, or what it rests on; empty for nothing."""


@dataclass(frozen=True, kw_only=True)
class PartObject(JsonObject):
    """A part of a sum."""

    name: str
    """As it can be explained."""
    value: float
    """In the unit of the sum."""


@dataclass(frozen=True, kw_only=True)
class SumObject(JsonObject):
    """A row of a table that is a sum."""

    stage: int
    """ZeRO stage."""
    name: str
    """As tables name it."""
    unit: str
    """bytes or s."""
    value: float
    """The sum, in that unit."""
    meaning: str
    """What is summed."""
    parts: Sequence[PartObject]
    """What is added up."""
    evidence: str
    """How far it is to be trusted."""
    said: str
    """Where it is; empty for nothing."""


@dataclass(frozen=True, kw_only=True)
class StageLevel(MemoryLevel):
    """Bytes of one GPU by one instrument, at one stage."""

    stage: int
    """ZeRO stage."""
    name: str
    """The instrument."""


@dataclass(frozen=True, kw_only=True)
class SavedByOperatorObject(JsonObject):
    """What an operator of one module keeps for backward."""

    module: str
    """The module's path, in the layer or in the model."""
    operator: str
    """The operator."""
    part: str
    """Part of a layer: attention, scores, mlp, norms or dropout."""
    bytes: int
    """Bytes that are kept."""
    formula: str
    """The same in the model's sizes."""


@dataclass(frozen=True, kw_only=True)
class ReasonObject(JsonObject):
    """Why counted and published bytes differ."""

    text: str
    """The reason."""
    bytes: int
    """Bytes that it makes up."""


@dataclass(frozen=True, kw_only=True)
class KorthikantiPart(JsonObject):
    """A part of a layer beside Korthikanti's form of it."""

    part: str
    """Part of a layer."""
    bytes: int
    """Bytes counted."""
    published: int
    """Bytes by Korthikanti's form."""
    because: Sequence[ReasonObject]
    """What makes the difference."""


@dataclass(frozen=True, kw_only=True)
class SavedByLayerObject(JsonObject):
    """What each of some layers of one make keeps."""

    path: str
    """Path of the first."""
    layers: int
    """Layers of this make."""
    bytes: int
    """Bytes that one of them keeps."""
    formula: str
    """The same in the model's sizes."""
    kept: Sequence[SavedByOperatorObject]
    """Operator by operator."""
    beside_korthikanti: Sequence[KorthikantiPart]
    """Part by part; empty where there is no such form."""


@dataclass(frozen=True, kw_only=True)
class ActivationKind(JsonObject):
    """Activations of one kind."""

    name: str
    """The kind."""
    bytes: int
    """Bytes at that moment."""
    formula: str
    """The same in the model's sizes."""


@dataclass(frozen=True, kw_only=True)
class ActivationPeak(JsonObject):
    """The largest moment of a pass, DeepSpeed aside."""

    place: str
    """The module at work; empty for the loss."""
    kinds: Sequence[ActivationKind]
    """What is allocated."""


@dataclass(frozen=True, kw_only=True)
class CountedActivations(JsonObject):
    """Activations counted operator by operator."""

    saved: int
    """Bytes that forward keeps for backward."""
    symbols: Mapping[str, int]
    """Values of the letters of all formulas."""
    layers: Sequence[SavedByLayerObject]
    """Each make of layer."""
    rest: Sequence[SavedByOperatorObject]
    """Outside of the layers, and shared by them."""
    peaks: Mapping[str, ActivationPeak]
    """The largest moments of forward and backward."""


@dataclass(frozen=True, kw_only=True)
class ExplainedActivations(JsonObject):
    """What forward keeps for backward, beside papers' closed forms."""

    stage: int
    """ZeRO stage."""
    closed_forms: Sequence[LineObject]
    """As Korthikanti and ZeRO-Infinity count them."""
    counted: CountedActivations | None
    """Counted operator by operator; null where the model's forward is not written out."""


@dataclass(frozen=True, kw_only=True)
class ExplainDocument(JsonDocument):
    """What every form of explain has."""

    command: Literal["explain"] = "explain"
    """The command that ran."""


@dataclass(frozen=True, kw_only=True)
class ExplainedTerm(ExplainDocument):
    """All that one word stands for."""

    term: str
    """The word, as it was written."""
    scope: ScopeObject
    """The job that the numbers are of."""
    entries: Sequence[EntryObject]
    """Lines of memory and collectives, at each stage."""
    keys: Sequence[CostedKey]
    """Keys of ds_config.json."""
    quantities: Sequence[QuantityObject]
    """What tables sum up by a formula, at each stage."""
    sums: Sequence[SumObject]
    """Rows of tables that are sums, at each stage."""
    levels: Sequence[StageLevel]
    """What other instruments show, at each stage."""
    terms: Sequence[TermObject]
    """Terms of a step's time."""
    activations: ExplainedActivations | None = None
    """Of the term activations."""


@dataclass(frozen=True, kw_only=True)
class ExplainedRule(ExplainDocument):
    """A rule of check."""

    rule: RuleObject
    """The rule."""


Explain = ExplainedTerm | ExplainedRule
