"""The clock: seconds of an optimizer step, each term with the formula, the values and the rates that gave it."""

from collections.abc import Callable, Iterable
from typing import NamedTuple

from zeroplan.ledger import Provenance, provenance, worked_out
from zeroplan.specs.cluster import SourcedValue

COMPUTE, COMMUNICATION, OFFLOAD, OPTIMIZER = GROUPS = ("compute", "communication", "offload", "optimizer")
Timing = Callable[..., float]
"""A formula of seconds; its docstring is `equation -- meaning [Source place].`, as a ledger's is."""


class Term(NamedTuple):
    """Seconds under one name, and how they came about."""

    group: str
    name: str
    seconds: float
    """Seconds in one optimizer step, all times it comes together."""
    times: float
    """How often in a step."""
    rule: Timing
    symbols: dict[str, float]
    figures: tuple[SourcedValue, ...] = ()
    """The rates and shares it rests on."""

    @property
    def provenance(self) -> Provenance:
        return provenance(self.rule)

    @property
    def worked(self) -> str:
        """The equation of one call with its numbers."""
        return worked_out(self.provenance.equation, self.symbols)

    @property
    def evidence(self) -> str:
        """The weakest of its figures'."""
        return weakest(figure.evidence for figure in self.figures)


STRENGTH = ("assumed", "published", "datasheet", "measured")
"""Weakest first."""


def weakest(kinds: Iterable[str]) -> str:
    return min(kinds, key=lambda kind: STRENGTH.index(kind) if kind in STRENGTH else 0, default="assumed")


def term(group: str, name: str, rule: Timing, /, *figures: SourcedValue, times: float = 1.0, **symbols: float) -> Term:
    """Work a formula out for these values and keep both; `times` a step."""
    return Term(group, name, times * rule(**symbols), times, rule, symbols, figures)


class Interval(NamedTuple):
    """Seconds within which nine in ten published steps lie, and what makes it that wide."""

    low: float
    """Seconds at the lower end."""
    high: float
    """Seconds at the upper end."""
    reason: str
    """What makes it that wide."""


MFU, MFU_CAUSAL, HFU = "MFU", "MFU, causal", "HFU"


class Utilisation(NamedTuple):
    """Shares of the card's peak in this precision, each by a convention of its own."""

    name: str
    """MFU, MFU of causal attention, HFU."""
    convention: str
    value: float


class StepTime(NamedTuple):
    """One optimizer step: its terms follow each other, what is hidden behind others left out."""

    terms: tuple[Term, ...]

    def of(self, group: str) -> float:
        """Seconds of one group of terms."""
        return sum(entry.seconds for entry in self.terms if entry.group == group)

    @property
    def groups(self) -> dict[str, float]:
        """Seconds by group."""
        return {group: self.of(group) for group in dict.fromkeys((*GROUPS, *(entry.group for entry in self.terms)))}

    @property
    def compute(self) -> float:
        return self.of(COMPUTE)

    @property
    def exposed_communication(self) -> float:
        return self.of(COMMUNICATION)

    @property
    def offload(self) -> float:
        return self.of(OFFLOAD)

    @property
    def optimizer(self) -> float:
        return self.of(OPTIMIZER)

    @property
    def total(self) -> float:
        return sum(entry.seconds for entry in self.terms)


class Speed(NamedTuple):
    """A step, and what people compare by."""

    step: StepTime
    interval: Interval
    tokens: int
    """Tokens of one step, over all GPUs."""
    gpus: int
    utilisation: tuple[Utilisation, ...]
    """Model FLOPs and hardware FLOPs, with attention over all pairs of tokens and over the causal half; none where the
    card's peak is not known."""

    @property
    def tokens_per_gpu(self) -> float:
        """Tokens/s of one GPU."""
        return self.tokens / self.gpus / self.step.total
