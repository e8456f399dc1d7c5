"""The ledger: what is held where and when, and what is moved, each entry with the formula that gave it.

A formula is a function whose docstring begins `equation -- meaning [Source place].`; a line keeps the function and
the values it was given, so whoever asks why can read equation, symbols and source off the number itself. Where bytes
were counted and no equation gives them, a category says in its place what they are.
"""

import re
import sys
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from functools import cache
from typing import NamedTuple

from zeroplan.categories import ActivationCategory, Category
from zeroplan.errors import ContradictionError
from zeroplan.sources import SOURCES
from zeroplan.symbols import SYMBOLS

RESIDENT = "resident"
PHASES = ("init", "forward", "backward", "step")
FIRST = ("first_forward", "first_backward")
"""Phases of the run's first optimizer step, where it needs more than the later ones."""
Rule = Callable[..., int]
"""A formula, or the category of what was counted."""

DTYPE_BYTES = {
    "float64": 8, "float32": 4, "int64": 8, "int32": 4, "float16": 2, "bfloat16": 2, "bool": 1, "uint8": 1, "int8": 1,
    "mixed": 1,
}  # fmt: skip
"""Bytes of an element of each dtype, as torch names it; tensors of several together are `mixed`, counted in bytes."""


class Detail(IntEnum):
    """How far activations are told apart."""

    WHOLE = 0
    KINDS = 1
    """By what keeps them."""
    EQUATIONS = 2
    """And each kind as an equation in the model's sizes."""


class Provenance(NamedTuple):
    equation: str
    """Empty for a category."""
    meaning: str
    source: str
    place: str
    note: str

    @property
    def cited(self) -> str:
        """The source's title, and the place in it."""
        return f"{SOURCES[self.source].title} {self.place}".strip()


@cache
def provenance(rule: Callable[..., float]) -> Provenance:
    """Equation, meaning and source of a formula, read from its docstring, or of a category.

    Raises `ContradictionError` where Python keeps no docstrings.
    """
    if isinstance(rule, Category):
        source, _, place = rule.source.partition(" ")
        return Provenance("", rule.meaning, source, place, rule.note)
    if sys.flags.optimize > 1:
        raise ContradictionError(
            "found Python without docstrings (-OO, PYTHONOPTIMIZE=2), expected those that formulas are read from; "
            "write PYTHONOPTIMIZE=1, or ask for the answer alone with -q"
        )
    first, _, rest = (rule.__doc__ or "").strip().partition("\n\n")
    match = re.fullmatch(r"(.+?) -- (.+) \[(\S+?)(?: (.+))?\]\.", " ".join(first.split()))
    if match is None or match[3] not in SOURCES:
        raise AssertionError(f"{rule.__name__}: docstring is not 'equation -- meaning [Source place].'")
    return Provenance(match[1], match[2], match[3], match[4] or "", " ".join(rest.split()))


def rule_name(rule: Rule) -> str:
    """The name of a formula or category, in words."""
    return rule.name if isinstance(rule, Category) else rule.__name__.replace("_", " ")


def expression(rule: Rule, symbols: Mapping[str, int]) -> str:
    """The equation, or what was counted, in words."""
    if not isinstance(rule, Category):
        return provenance(rule).equation
    (counted,) = symbols.keys() - {"w"}
    meaning = SYMBOLS[counted].meaning
    return f"bytes of one × {meaning}" if "w" in symbols else meaning


def worked(rule: Rule, symbols: Mapping[str, int]) -> str:
    """The equation with values in place of its letters, or the count with its units."""
    if not isinstance(rule, Category):
        return worked_out(provenance(rule).equation, symbols)
    amounts = sorted(symbols.items(), key=lambda symbol: symbol[0] != "w")
    return " × ".join(_amount(value, SYMBOLS[name].unit) for name, value in amounts)


def _amount(value: int, unit: str) -> str:
    return f"{value:,} {unit.removesuffix('s') if value == 1 else unit}"


def worked_out(equation: str, symbols: Mapping[str, float]) -> str:
    """The equation with values in place of its letters."""
    values = {SYMBOLS[name].letter: _figures(value) for name, value in symbols.items()}
    letters = "|".join(map(re.escape, values))
    return re.sub(rf"(?<!\w)({letters})(?!\w)", lambda match: values[match[0]], equation) if letters else equation


def _figures(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.4g}"


class Line(NamedTuple):
    """Bytes under one name, and how they came about."""

    name: str
    bytes: int
    rule: Rule
    symbols: dict[str, int]
    dtype: str = ""
    """As torch names it; empty where several are mixed."""
    equation: str = ""
    """In the model's sizes, where bytes were counted operator by operator and their equation was asked for."""

    @property
    def formula(self) -> str:
        return self.equation or expression(self.rule, self.symbols)

    @property
    def worked(self) -> str:
        return self.equation or worked(self.rule, self.symbols)

    @property
    def source(self) -> str:
        return provenance(self.rule).cited

    @property
    def evidence(self) -> str:
        return SOURCES[provenance(self.rule).source].kind


def line(name: str, rule: Rule, dtype: str = "", /, **symbols: int) -> Line:
    """Work a formula out for these values and keep both."""
    return Line(name, rule(**symbols), rule, symbols, dtype)


def total(lines: Iterable[Line]) -> int:
    return sum(entry.bytes for entry in lines)


class Moment(NamedTuple):
    """Everything alive at one moment of a phase; a phase's peak is its largest moment."""

    phase: str
    place: str
    """The module at work, by its path, or what else happens."""
    lines: tuple[Line, ...]

    @property
    def layer(self) -> int | None:
        """The number of the layer that the module lies in."""
        return next((int(part) for part in self.place.split(".") if part.isdecimal()), None)

    @property
    def largest(self) -> list[Line]:
        """Its three largest lines."""
        return sorted(self.lines, key=lambda entry: -entry.bytes)[:3]


class Tier(NamedTuple):
    """One place that holds bytes: a GPU, a node's host memory, a node's NVMe."""

    resident: tuple[Line, ...] = ()
    """What stays between steps."""
    moments: tuple[Moment, ...] = ()

    def worst(self, phase: str) -> Moment:
        """The moment of a phase at which most is alive (nothing but the residents when none is listed)."""
        candidates = [moment for moment in self.moments if moment.phase == phase]
        return max(candidates, key=lambda m: total(m.lines), default=Moment(phase, phase, self.resident))

    @property
    def peak(self) -> Moment:
        return max((self.worst(phase) for phase in self.phases), key=lambda moment: total(moment.lines))

    @property
    def phases(self) -> list[str]:
        return [*PHASES, *(phase for phase in FIRST if any(moment.phase == phase for moment in self.moments))]

    def beside(self, moment: Moment) -> list[Line]:
        """A moment's lines that do not stay between steps."""
        resident = {id(entry) for entry in self.resident}
        return [entry for entry in moment.lines if id(entry) not in resident]

    def lines(self) -> list[tuple[Line, list[str]]]:
        """Each line once, with the phases it counts in: summed over a phase they give its peak."""
        phases: dict[int, tuple[Line, list[str]]] = {}
        for name, lines in [(RESIDENT, self.resident), *((p, self.worst(p).lines) for p in self.phases)]:
            for entry in lines:
                phases.setdefault(id(entry), (entry, []))[1].append(name)
        return list(phases.values())


def is_activation(entry: Line) -> bool:
    """Whether the model's own operators made it: activations, logits, the loss."""
    return isinstance(entry.rule, ActivationCategory) or entry.rule.__module__.endswith(".activations")


def less_activations(tier: Tier, phase: str) -> int:
    """A phase's most, without activations: largest over its moments."""
    moments = [moment for moment in tier.moments if moment.phase == phase]
    return max(total(entry for entry in moment.lines if not is_activation(entry)) for moment in moments)


class Checked(NamedTuple):
    """A predicted number beside a measured one."""

    group: str
    """What is compared: held on the GPU, collectives of a step, ..."""
    name: str
    """The line, collective or phase."""
    unit: str
    """bytes or calls."""
    predicted: int
    """In that unit."""
    measured: int
    """In that unit."""
    within: float
    """The share of the measured that they may differ by; 0 where they must be equal."""
    less: int = 0
    """By how much the measured may be below what is predicted, which is the most: addresses decide."""

    @property
    def difference(self) -> int:
        return self.predicted - self.measured

    @property
    def holds(self) -> bool:
        share = self.within * self.measured
        return -share <= self.difference <= share + self.less


class Transfer(NamedTuple):
    """One kind of collective: `calls` of it move `bytes` in all (the full tensors) each time `when` comes."""

    when: str
    collective: str
    dtype: str
    calls: int
    bytes: int
    ranks: int
    group: str
    rule: Rule
    symbols: dict[str, int]

    @property
    def name(self) -> str:
        return self.collective

    @property
    def title(self) -> str:
        """Which of the collectives of that name."""
        return f"{self.collective}, {self.when.replace('_', '-')}, {self.dtype}"

    def times(self, grad_accum: int) -> int:
        """How often it comes in an optimizer step."""
        return grad_accum if self.when == "micro_step" else 1

    @property
    def wire_bytes(self) -> int:
        """What one rank sends on a ring: (N-1)/N of the bytes, twice that for an all-reduce."""
        passes = 2 if self.collective == "all_reduce" else 1
        return passes * self.bytes * (self.ranks - 1) // self.ranks

    @property
    def formula(self) -> str:
        return expression(self.rule, self.symbols)

    @property
    def worked(self) -> str:
        return worked(self.rule, self.symbols)

    @property
    def source(self) -> str:
        return provenance(self.rule).cited


class Copied(NamedTuple):
    """Bytes that one rank copies from one tier to another in an optimizer step."""

    source: str
    """gpu, host or nvme; `target` likewise."""
    target: str
    line: Line
    pinned: bool = True
    """From or to page-locked memory, as CUDA knows it."""
    concurrent: str = ""
    """What runs meanwhile: `backward`, the optimizer's `update`, or nothing."""
    pieces: int = 1
    """Parts in which it is made, where something runs meanwhile."""
    every_micro_step: bool = False
    """In each micro-step a part of it; else all in the last, or after it."""


class Activations(NamedTuple):
    """Bytes of the model's own operators over what is held before forward, without DeepSpeed beside them."""

    saved: int
    """Alive when forward has returned and only the loss is kept."""
    forward_peak: int
    """Most bytes in forward."""
    backward_peak: int
    """Most bytes in backward."""


class Tiers(NamedTuple):
    """What one strategy holds, without what it moves."""

    gpu: Tier
    host: Tier = Tier()
    nvme: Tier = Tier()


class Ledger(NamedTuple):
    """All tiers and transfers of one strategy under one accounting."""

    accounting: str
    gpu: Tier
    host: Tier = Tier()
    nvme: Tier = Tier()
    traffic: tuple[Transfer, ...] = ()
    copies: tuple[Copied, ...] = ()
    closed_forms: tuple[Line, ...] = ()
    """Activations as papers count them, under the paper's accounting; no moment has them in it."""

    @property
    def held(self) -> Tiers:
        return Tiers(self.gpu, self.host, self.nvme)

    def sent(self, micro_steps: int) -> int:
        """Bytes that one rank sends in an optimizer step of so many micro-steps."""
        return sum(transfer.wire_bytes * transfer.times(micro_steps) for transfer in self.traffic)
