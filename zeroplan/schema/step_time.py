"""Seconds and operations of a step, and its course moment by moment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from zeroplan.clock import Interval
from zeroplan.costs.step_timeline import Instant
from zeroplan.schema.json_object import MERGED, JsonObject
from zeroplan.specs.account import Flops
from zeroplan.specs.cluster import SourcedValue


@dataclass(frozen=True, kw_only=True)
class Compute(JsonObject):
    """Operations of matrix products of one micro-batch on one GPU."""

    flops: Flops
    """Attention over all pairs of tokens, as torch's FlopCounterMode counts."""
    flops_causal: Flops
    """Attention over a token and those before it, as fused causal kernels compute it."""
    convention: str
    """How operations are counted."""


@dataclass(frozen=True, kw_only=True)
class TermObject(JsonObject):
    """Seconds under one name, and how they came about."""

    group: str
    """compute, communication, offload or optimizer."""
    name: str
    """As tables name the term."""
    seconds: float
    """Seconds in one optimizer step, all times it comes together."""
    times: float
    """How often it comes in a step."""
    formula: str
    """The equation that gave the seconds of one time."""
    symbols: Mapping[str, float]
    """Values by letter that the formula was worked out with."""
    source: str
    """Where the formula is from."""
    evidence: str
    """The weakest of its figures': assumed, published, datasheet or measured."""
    figures: Sequence[SourcedValue]
    """Rates and shares that it rests on."""


@dataclass(frozen=True, kw_only=True)
class UtilisationObject(JsonObject):
    """A share of the card's peak in this precision."""

    convention: str
    """Which operations are counted."""
    value: float
    """Share of the peak, 1 being all of it."""


@dataclass(frozen=True, kw_only=True)
class StepTimeObject(JsonObject):
    """Seconds of one optimizer step, and where they go."""

    step: float
    """Seconds of one optimizer step."""
    interval: Interval
    """Seconds within which nine in ten published steps lie."""
    tokens: int
    """Tokens of one step, over all GPUs."""
    tokens_per_s_per_gpu: float
    """Tokens per second of one GPU."""
    utilisation: Sequence[UtilisationObject]
    """Shares of the card's peak; empty where the peak is not known."""
    groups: Mapping[str, float]
    """Seconds by group: compute, communication, offload and optimizer."""
    terms: Sequence[TermObject]
    """Terms that sum up to the step."""


@dataclass(frozen=True, kw_only=True)
class TimelineMoment(JsonObject):
    """A moment of a step."""

    instant: Instant = field(metadata=MERGED)
    bytes: int
    """Bytes of one GPU at that moment: the sum of held, beside and activations."""
