"""Why a plan is not otherwise: the best strategy that has what was asked after, and line by line what sets it back."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from zeroplan.clock import COMPUTE
from zeroplan.errors import ContradictionError
from zeroplan.ledger import Ledger
from zeroplan.plan import RECOMPUTATION, sequences_per_gpu
from zeroplan.search import Candidate, best, nearest, space
from zeroplan.sizing import Lack, lack
from zeroplan.specs.job import Job
from zeroplan.specs.objective import FASTEST, LEAST_MEMORY
from zeroplan.specs.strategy import Strategy
from zeroplan.units import gib, seconds

AS_FAST = 1e-9
"""Seconds by which two steps that take as long may differ."""


class Constraint(NamedTuple):
    """One thing that a strategy is to have."""

    name: str
    """As it is typed behind --why."""
    fixes: dict[str, Any]
    """Fields of `Strategy` with the value wished for."""
    has: Callable[[Strategy], bool]
    """Whether a strategy has it already."""
    opens: tuple[str, ...] = ()
    """Settled fields that it opens again."""
    keeps: Callable[[dict[str, Any]], bool] = lambda _choice: True
    """Whether a branch of the space, by its choices, may have it."""

    def fixed(self, before: dict[str, Any]) -> dict[str, Any]:
        """What is fixed with it."""
        return {name: value for name, value in before.items() if name not in self.opens} | self.fixes


class LineDifference(NamedTuple):
    """One line of the step (seconds) or of what a place holds (bytes), of the plan and of the alternative."""

    name: str
    plan: float
    alternative: float

    @property
    def difference(self) -> float:
        return self.alternative - self.plan


class Why(NamedTuple):
    """What became of a constraint."""

    constraint: str
    is_plan: bool = False
    candidate: Candidate | None = None
    """The best strategy with it that fits (as the plan is the fastest or the leanest), else what is nearest to fitting;
    None: it is the plan, or cannot run."""
    lack: Lack | None = None
    """What is missing where none fits."""
    slower: float | None = None
    """Seconds of a step that it takes more than the plan, for as many sequences; less than zero: fewer."""
    seconds: tuple[LineDifference, ...] = ()
    """Lines of the step that differ, the largest difference first; `bytes` likewise."""
    bytes: tuple[LineDifference, ...] = ()
    """Lines at the peak of the place that is short, or of a GPU where none is."""
    of: str = "gpu"
    """The place: gpu, host or nvme."""
    cannot: str = ""
    """Why nothing has it, where something stands against it."""
    more: int | None = None
    """Bytes of a GPU that it needs more, where the plan is the leanest; less than zero: fewer."""

    @property
    def reason(self) -> str:
        """In one clause."""
        if self.is_plan:
            return "that is the plan"
        if self.candidate is None:
            return self.cannot or "no strategy with all that was asked for has it"
        if self.lack:
            return f"{self.candidate.fit.shortage}{_mostly(self.bytes, gib)}"
        needs = f"needs {gib(self.candidate.fit.gpu.needed)}"
        if self.more is not None:
            return _in_bytes(self, self.more, self.slower or 0.0)
        return f"fits, {needs}" if self.slower is None else _in_seconds(self, self.slower, needs)


def _in_bytes(result: Why, more: int, slower: float) -> str:
    speed = "as fast"
    if abs(slower) >= AS_FAST:
        speed = f"{seconds(abs(slower))} a step {'slower' if slower > 0 else 'faster'}"
    if more < 0:
        return f"needs {gib(-more)} less, {speed}: other options rule it out"
    return f"needs {gib(more)} more{_mostly(result.bytes, gib)}, {speed}" if more else f"needs as much, {speed}"


def _in_seconds(result: Why, slower: float, needs: str) -> str:
    if slower < -AS_FAST:
        return f"{seconds(-slower)} a step faster, {needs}: other options rule it out"
    if slower < AS_FAST:
        return f"as fast, {needs}: the simpler plan is taken"
    return f"{seconds(slower)} a step slower{_mostly(result.seconds, seconds)}, {needs}"


def why(
    job: Job, fixed: dict[str, Any], constraint: Constraint, plan: Candidate | None, *, reserve: float | None,
    objective: str = FASTEST,
) -> Why:  # fmt: skip
    """The best strategy that has what is wished for, beside the plan; None as plan: nothing fits as it was asked.

    Other fixed fields are kept, and so are the sequences of a step as far as a micro-batch divides them. Raises
    `ContradictionError` for a micro-batch that does not divide a batch that was stated.
    """
    if plan and constraint.has(plan.strategy):
        return Why(constraint.name, is_plan=True)
    each = _sequences_per_gpu(job, fixed, constraint)
    try:
        candidate = _best(job, fixed, constraint, each, reserve, objective)
    except ContradictionError as error:
        return Why(constraint.name, cannot=str(error))
    if candidate is None:
        return Why(constraint.name)
    short = lack([candidate])
    of = short.tier if short else "gpu"
    if plan is None:
        return Why(constraint.name, candidate=candidate, lack=short, of=of)
    share = plan.sequences / candidate.sequences
    times = _rows(_by_line(plan), {name: share * value for name, value in _by_line(candidate).items()})
    held = _rows(_held(plan, of), _held(candidate, of))
    more = candidate.fit.gpu.needed - plan.fit.gpu.needed if objective == LEAST_MEMORY and not short else None
    return Why(
        constraint.name, False, candidate, short, share * candidate.time.total - plan.time.total, times, held, of,
        more=more,
    )  # fmt: skip


def _best(
    job: Job, fixed: dict[str, Any], constraint: Constraint, each: int, reserve: float | None, objective: str
) -> Candidate | None:
    """The best that fits, or what is nearest to fitting; None when nothing has it."""
    if attention := constraint.fixes.get("attention"):
        job = job.at(attention=attention)
    free = space(job, constraint.fixed(fixed), each)
    free = free._replace(variants=tuple(one for one in free.variants if constraint.keeps(one.choice)))
    if not free.variants:
        return None
    if candidate := best(free, reserve, objective).best:
        return candidate
    failing = lack(nearest(free, reserve))
    return failing.candidate if failing else None


def _sequences_per_gpu(job: Job, fixed: dict[str, Any], constraint: Constraint) -> int:
    each, size = sequences_per_gpu(job, fixed), int(constraint.fixes.get("micro_batch", 1))
    if each % size == 0:
        return each
    if job.workload.global_batch:
        raise ContradictionError(
            f"--why {constraint.name}: found a micro-batch of {size}, expected one that divides the {each} sequences "
            f"that a GPU sees in a step; write --why micro-batch-{_divisor(each, size)}"
        )
    return max(1, round(each / size)) * size


def _divisor(each: int, size: int) -> int:
    """The one nearest to a size."""
    return min((one for one in range(1, each + 1) if each % one == 0), key=lambda one: abs(one - size))


def _by_line(candidate: Candidate) -> dict[str, float]:
    """Seconds of a step: what is computed, what is computed again, and each other term by its name."""
    totals: dict[str, float] = {}
    for entry in candidate.time.terms:
        again = entry.name.endswith(RECOMPUTATION)
        name = entry.name if entry.group != COMPUTE else RECOMPUTATION if again else COMPUTE
        totals[name] = totals.get(name, 0.0) + entry.seconds
    return totals


def _held(candidate: Candidate, of: str) -> dict[str, int]:
    """Bytes of a place at its fullest, by line, and of a GPU what a process takes beside PyTorch's allocator."""
    counted: Ledger = candidate.ledger
    lines = [*getattr(counted, of).peak.lines, *(candidate.fit.outside if of == "gpu" else ())]
    totals: dict[str, int] = {}
    for entry in lines:
        totals[entry.name] = totals.get(entry.name, 0) + entry.bytes
    return totals


def _rows(plan: dict[str, Any], other: dict[str, Any]) -> tuple[LineDifference, ...]:
    """The largest difference first; lines that are equal are left out."""
    rows = [LineDifference(name, plan.get(name, 0), other.get(name, 0)) for name in {**plan, **other}]
    return tuple(sorted((row for row in rows if row.difference), key=lambda row: -abs(row.difference)))


def _mostly(rows: Iterable[LineDifference], shown: Callable[[float], str]) -> str:
    """The line that grew most."""
    grown = max(rows, key=lambda row: row.difference, default=None)
    return f", {grown.name} {shown(grown.difference)} more" if grown and grown.difference > 0 else ""
