"""What a page says of a plan, in rows: of memory, of a step, of traffic, of what was rejected, and of the grid."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from zeroplan.clock import GROUPS, Speed
from zeroplan.costs.step_timeline import Instant
from zeroplan.fit import PLACES, Fit
from zeroplan.ledger import Ledger, Line, total
from zeroplan.report.brief.card import parts
from zeroplan.report.timeline import in_columns
from zeroplan.specs.job import Job
from zeroplan.units import gb, gib, seconds

MEMORY, STEP, TIME, POINTS, SCALING, TRAFFIC = CHARTS = ("memory", "step", "time", "points", "scaling", "traffic")
COLUMNS = 240
"""Of the chart of a step, at most."""
VERDICT_WORDS = {"fits": "fits", "tight": "tight", "does_not_fit": "does not fit", None: "capacity not known"}


class Quantity(NamedTuple):
    """A number with its text."""

    value: float
    text: str


class Bar(NamedTuple):
    """A stacked bar: its name, its parts by name, and a verdict where it has one."""

    name: str
    parts: Mapping[str, Quantity]
    verdict: str = ""

    @property
    def whole(self) -> float:
        return sum(part.value for part in self.parts.values())


class Point(NamedTuple):
    """A strategy by the bytes of a GPU and by the seconds of as many tokens as a step of the plan has."""

    settings: str
    needed: Quantity
    seconds: Quantity
    stage: str
    checkpointing: str
    verdict: str
    is_plan: bool


class Scale(NamedTuple):
    """A stage on a number of GPUs."""

    gpus: int
    stage: str
    tokens: Quantity
    needed: Quantity
    verdict: str


class Formula(NamedTuple):
    """A number with the formula that it follows from, its values and its source."""

    name: str
    size: Quantity
    formula: str
    worked: str
    source: str


class Course(NamedTuple):
    """The step of one GPU in columns, each its fullest moment; the fullest of all, and where phases begin."""

    columns: tuple[Instant, ...]
    peak: int
    starts: Mapping[str, int]


class Figure(NamedTuple):
    """A number of one setting as the grid shows it."""

    name: str
    value: float | None
    text: str


class CellRow(NamedTuple):
    """One cell of the grid: its verdict, bars and figures, or why there is none."""

    at: tuple[int, ...]
    batch: str
    """The words of a command that say its accumulation, where it follows from the plan's batch."""
    verdict: str
    memory: Bar | None
    time: Bar | None
    figures: tuple[Figure, ...]
    refused: str


class AxisRow(NamedTuple):
    """A control of the grid: its name, the values it offers, and the plan's place among them."""

    name: str
    values: tuple[str, ...]
    words: tuple[str, ...]
    """Of a command, by value."""
    plan: int


class Content(NamedTuple):
    """Everything that a page shows."""

    title: str
    answer: str
    verdict: str
    scope: tuple[str, ...]
    command: str
    version: str
    settings: tuple[tuple[str, str], ...]
    capacity: Quantity | None
    memory: tuple[Bar, ...]
    course: Course
    course_notes: tuple[str, ...]
    time: tuple[Bar, ...]
    tokens: int
    """Of a step of the plan."""
    points: tuple[Point, ...]
    scaling: tuple[Scale, ...]
    traffic: tuple[Formula, ...]
    tiers: tuple[tuple[str, Quantity, tuple[Formula, ...]], ...]
    """Host memory and NVMe of a node: what is needed, and the lines of it."""
    rejected: tuple[tuple[str, str], ...]
    rejected_title: str
    outside: tuple[str, ...]
    """What another package, or lines of code in the training script, would gain."""
    ways_out: tuple[str, ...]
    files: Mapping[str, str]
    lines: tuple[Formula, ...]
    terms: tuple[Formula, ...]
    assumed: tuple[str, ...]
    trust: tuple[str, ...]
    axes: tuple[AxisRow, ...]
    cells: tuple[CellRow, ...]
    base: str
    """The command of a cell, without what its axes say."""


def size(value: int) -> Quantity:
    return Quantity(value, gib(value))


def duration(value: float) -> Quantity:
    return Quantity(value, seconds(value))


def memory_bar(name: str, counted: Ledger, verdict: Fit) -> Bar:
    """What a GPU needs, by what it is."""
    filled = {"gradients, buffers" if part.name == "initialize" else part.name: size(part.bytes)
              for part in parts(counted, verdict) if part.name != "free"}  # fmt: skip
    return Bar(name, filled, VERDICT_WORDS[verdict.verdict])


def time_bar(name: str, groups: Mapping[str, float], share: float = 1.0) -> Bar:
    """Where the seconds of a step go; `share`: of the plan's sequences in those of this step."""
    return Bar(name, {group: duration(share * groups[group]) for group in GROUPS if groups.get(group)})


def course(instants: Sequence[Instant]) -> Course:
    """A step in as many columns as a chart has room for."""
    drawn = in_columns(instants, COLUMNS)
    starts, at = {}, 0
    for phase, several in drawn.items():
        starts[phase] = at
        at += len(several)
    flat = tuple(instant for several in drawn.values() for instant in several)
    return Course(flat, max(range(len(flat)), key=lambda place: flat[place].bytes), starts)


def formulas(lines: Iterable[Line]) -> tuple[Formula, ...]:
    """Lines of memory, the largest first."""
    largest = sorted((entry for entry in lines if entry.bytes), key=lambda entry: -entry.bytes)
    return tuple(Formula(one.name, size(one.bytes), one.formula, one.worked, one.source) for one in largest)


def traffic(job: Job, counted: Ledger) -> tuple[Formula, ...]:
    """What one rank sends in an optimizer step, a row for each kind of collective."""
    steps = job.strategy.micro_steps
    rows = []
    for entry in counted.traffic:
        times = entry.times(steps)
        sent = entry.wire_bytes * times
        name = f"{entry.title}: {entry.calls * times:,} calls"
        rows.append(Formula(name, Quantity(sent, gb(sent)), entry.formula, entry.worked, entry.source))
    return tuple(sorted(rows, key=lambda row: -row.size.value))


def tiers(counted: Ledger, verdict: Fit) -> Iterator[tuple[str, Quantity, tuple[Formula, ...]]]:
    """Host memory and NVMe, where anything of them is needed."""
    for key, tier in (("host", counted.host), ("nvme", counted.nvme)):
        if verdict.tiers[key].needed:
            yield PLACES[key], size(verdict.tiers[key].needed), formulas(tier.peak.lines)


def terms(speed: Speed) -> tuple[Formula, ...]:
    """Terms of the step's time, the longest first."""
    longest = sorted(speed.step.terms, key=lambda entry: -entry.seconds)
    return tuple(
        Formula(f"{entry.group}: {entry.name}", duration(entry.seconds), entry.provenance.equation,
                f"{entry.times:,.4g} × ({entry.worked})", entry.provenance.cited)
        for entry in longest
    )  # fmt: skip


def figures(job: Job, counted: Ledger, verdict: Fit, speed: Speed | None) -> Iterator[Figure]:
    """Numbers of one setting, in the order in which a page shows them."""
    yield Figure("needed per GPU", verdict.gpu.needed, gib(verdict.gpu.needed))
    if verdict.gpu.capacity is not None:
        headroom = verdict.gpu.capacity - verdict.gpu.needed
        yield Figure("free" if headroom >= 0 else "missing", abs(headroom), gib(abs(headroom)))
    yield Figure("such runs took up to", verdict.gpu.most, gib(verdict.gpu.most))
    yield Figure("held between steps", held := total(counted.gpu.resident), gib(held))
    yield Figure("host memory per node", verdict.host.needed, gib(verdict.host.needed))
    if verdict.nvme.needed:
        yield Figure("NVMe per node", verdict.nvme.needed, gib(verdict.nvme.needed))
    sent = counted.sent(job.strategy.micro_steps)
    yield Figure("sent per GPU and step", sent, gb(sent))
    sequences = job.strategy.micro_batch * job.strategy.micro_steps * job.ranks
    batch = f"{job.strategy.micro_batch} × {job.strategy.micro_steps} × {job.ranks:,} = {sequences:,} sequences"
    yield Figure("micro-batch × accumulation × GPUs", sequences, batch)
    if speed:
        low, high = seconds(speed.interval.low), seconds(speed.interval.high)
        yield Figure("step", speed.step.total, f"{seconds(speed.step.total)} ({low} to {high})")
        yield Figure("tokens/s per GPU", speed.tokens_per_gpu, f"{speed.tokens_per_gpu:,.0f}")
        whole = speed.tokens_per_gpu * speed.gpus
        yield Figure("tokens/s", whole, f"{whole:,.0f}")
        if speed.utilisation:
            yield Figure("MFU", speed.utilisation[0].value, f"{speed.utilisation[0].value:.0%}")
