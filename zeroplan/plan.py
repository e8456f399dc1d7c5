"""A plan: the fastest strategy that fits, or the leanest; what its neighbours lost by; ways out when nothing fits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

from zeroplan.clock import COMPUTE
from zeroplan.errors import ContradictionError
from zeroplan.search import (
    Candidate,
    Front,
    SearchSummary,
    Space,
    best,
    closest,
    evaluate,
    fits_any,
    front,
    nearest,
    nearest_fitting,
    neighbours,
    space,
)  # fmt: skip
from zeroplan.search.neighbours import leanest_of_each, words
from zeroplan.search.room import has_room
from zeroplan.specs.cluster import Gpu
from zeroplan.specs.job import Job
from zeroplan.specs.objective import FASTEST, LEAST_MEMORY
from zeroplan.specs.strategy import FLASH
from zeroplan.specs.target import CODE
from zeroplan.units import gib, seconds

LEAST = 0.00005
"""Share of a step under which nothing is said to be slower or faster."""
WHOLE = 0.01
"""Shares of a step from here on are shown in whole per cent."""
RECOMPUTATION = "recomputation"
WORTH_SAYING = 0.001
"""Shares of a plan's bytes or seconds from which on another package's gain is said."""
OFFLOADS = ("offload_optimizer", "offload_param")
USUAL_BATCH = 256
"""Sequences per step when no global batch is asked for."""


class Rejected(NamedTuple):
    """A neighbour of the chosen plan and why it lost, or what is nearest to fitting and by how much it does not."""

    candidate: Candidate
    reason: str
    change: str
    """What sets it apart from the plan."""


class Suggestion(NamedTuple):
    """A single change after which something fits."""

    change: str
    candidate: Candidate


class Neighbours(NamedTuple):
    """What is one change away from a plan: counted where somebody reads it."""

    space: Space
    chosen: Candidate
    reserve: float | None
    objective: str

    def every(self) -> tuple[Rejected, ...]:
        """Each, and what it lost by; those that fit come first, of these what lost least."""
        lost = map(self._rejected, neighbours(self.space, self.chosen, self.reserve))
        return tuple(sorted(lost, key=_leanest_first if self.objective == LEAST_MEMORY else _by_loss))

    def closest(self, count: int) -> tuple[Rejected, ...]:
        """The first of them; all are counted where bytes are what is minimised."""
        if self.objective == LEAST_MEMORY:
            return self.every()[:count]
        return tuple(map(self._rejected, closest(self.space, self.chosen, self.reserve, count)))

    def _rejected(self, changed: tuple[str, Candidate]) -> Rejected:
        change, other = changed
        reason = _in_bytes if self.objective == LEAST_MEMORY else _in_seconds
        return Rejected(other, reason(other, self.chosen) if other.fit.accepted else other.fit.shortage, change)


@dataclass(frozen=True, eq=False)
class Plan:
    """What a search chose and what it rejected."""

    chosen: Candidate | None
    searched: SearchSummary
    objective: str = FASTEST
    neighbours: Neighbours | None = None
    nearest: tuple[Rejected, ...] = ()
    """What is nearest to fitting where nothing does."""

    @cached_property
    def rejected(self) -> tuple[Rejected, ...]:
        """Neighbours of the plan and what they lost by, or what is nearest to fitting."""
        return self.neighbours.every() if self.neighbours else self.nearest

    def closest(self, count: int) -> tuple[Rejected, ...]:
        """The first of those."""
        return self.neighbours.closest(count) if self.neighbours else self.nearest[:count]


def label(candidate: Candidate) -> str:
    """A strategy in a few words: ZeRO-2, micro-batch 8, full checkpointing, optimizer on cpu."""
    strategy = candidate.strategy
    parts = [f"ZeRO-{strategy.stage}", f"micro-batch {strategy.micro_batch}"]
    if strategy.checkpointing != "none":
        parts.append(f"{strategy.checkpointing} checkpointing")
    if strategy.attention == "eager" and candidate.job.model.has_sdpa:
        parts.append("eager attention")
    parts += [words(name, getattr(strategy, name)) for name in OFFLOADS if getattr(strategy, name)]
    return ", ".join(parts)


def usual_batch(job: Job) -> int:
    """Sequences per step when none is asked for: near 256, and a multiple of the GPUs."""
    return max(1, round(USUAL_BATCH / job.ranks)) * job.ranks


def plan(
    job: Job, fixed: dict[str, Any], *, reserve: float | None, objective: str = FASTEST, compared: bool = False
) -> Plan:
    """The fastest strategy that fits `job`'s cluster; of equally fast ones the simplest. Fixed fields are kept.

    `LEAST_MEMORY` as the objective: that which needs fewest bytes of a GPU; of equally lean ones the fastest.

    `compared`: with its neighbours.
    """
    free = free_space(job, fixed)
    summary = best(free, reserve, objective)
    around = Neighbours(free, summary.best, reserve, objective) if summary.best and compared else None
    return Plan(summary.best, summary, objective, around)


def nearest_to_fitting(job: Job, fixed: dict[str, Any], reserve: float | None) -> tuple[Rejected, ...]:
    """Where nothing fits, what needs least of each stage and offload, and by how much it does not; what lacks least
    comes first.
    """
    failing = sorted(nearest(free_space(job, fixed), reserve), key=_shortest_first)
    return tuple(Rejected(candidate, candidate.fit.shortage, label(candidate)) for candidate in failing)


def _shortest_first(candidate: Candidate) -> tuple[int, int]:
    """Sort key: the bytes that all tiers lack together."""
    return sum(candidate.fit.lacking.values()), candidate.fit.gpu.needed


def with_flash(chosen: Candidate, reserve: float | None) -> Rejected | None:
    """The plan with flash_attention_2, which needs a package of its own; None where it gains nothing."""
    other = evaluate(chosen.job.at(attention=FLASH), reserve)
    less, faster = chosen.fit.gpu.needed - other.fit.gpu.needed, -slower(other, chosen)
    gains = [f"{gib(less)} less"] * (less > WORTH_SAYING * chosen.fit.gpu.needed)
    gains += [f"{seconds(faster)} a step less"] * (faster > WORTH_SAYING * chosen.time.total)
    reason = f"would take {' and '.join(gains)}: install flash-attn and write --attention {FLASH}"
    return Rejected(other, reason, FLASH) if gains else None


def with_code(chosen: Candidate, fixed: dict[str, Any], reserve: float | None) -> Rejected | None:
    """The fastest plan with checkpointing that takes lines of the training script; None where it gains nothing."""
    job, script = chosen.job, chosen.job.workload.script
    if script.code or "checkpointing" in fixed:
        return None
    free = free_space(job._replace(workload=job.workload._replace(script=script._replace(code=True))), fixed)
    variants = tuple(one for one in free.variants if not script.runs(one.choice["checkpointing"]))
    enough = (1 - WHOLE) * chosen.time.total
    other = best(free._replace(variants=variants), reserve, below=enough).best if variants else None
    if other is None or other.time.total >= enough:
        return None
    faster = other.throughput / chosen.throughput - 1
    return Rejected(other, f"would be {faster:.0%} faster ({label(other)}): write --allow {CODE}", "lines of code")


def front_of(job: Job, fixed: dict[str, Any], *, reserve: float | None, apart: float) -> Front:
    """Plans of which none is both faster and leaner; see `front`. Fixed fields are kept."""
    return front(free_space(job, fixed), reserve, apart)


def free_space(job: Job, fixed: dict[str, Any]) -> Space:
    """What the fixed fields leave free. Raises `ContradictionError` where that is nothing."""
    free = _left_free(job, fixed)
    if not free.variants:
        raise ContradictionError(
            "nothing to choose from: no strategy has all that was asked for; leave out --stage or an --offload option"
        )
    return free


def _left_free(job: Job, fixed: dict[str, Any]) -> Space:
    """As `free_space`, without a variant where nothing is."""
    return space(job, fixed, sequences_per_gpu(job, fixed))


def leanest(job: Job, fixed: dict[str, Any], reserve: float | None) -> list[Candidate]:
    """The strategy that needs least, of each stage and offload left free by the fixed fields; empty when none runs."""
    free = _left_free(job, fixed)
    return nearest(free, reserve) if free.variants else []


def leanest_fitting(job: Job, fixed: dict[str, Any], reserve: float | None) -> Candidate | None:
    """The first of them that fits, which is counted for those alone that have room for what they hold."""
    return next(nearest_fitting(_left_free(job, fixed), reserve), None)


def leanest_has_room(job: Job, fixed: dict[str, Any], reserve: float | None) -> bool:
    """Whether one of them may fit, by what is counted most easily."""
    return any(has_room(one, reserve) for one in leanest_of_each(_left_free(job, fixed)))


def has_any(job: Job, fixed: dict[str, Any], reserve: float | None) -> bool:
    """Whether any strategy fits: one of the leanest, or else one that the search finds."""
    if leanest_fitting(job, fixed, reserve):
        return True
    return fits_any(_left_free(job, fixed), reserve)


def _by_loss(rejected: Rejected) -> tuple[bool, float]:
    candidate = rejected.candidate
    return not candidate.fit.accepted, -candidate.throughput


def _leanest_first(rejected: Rejected) -> tuple[bool, float]:
    candidate = rejected.candidate
    return not candidate.fit.accepted, candidate.fit.gpu.needed


def sequences_per_gpu(job: Job, fixed: dict[str, Any]) -> int:
    """Sequences one GPU sees per step: as asked, or as many micro-steps as come nearest to the usual batch."""
    total = job.workload.global_batch or usual_batch(job)
    if "micro_batch" in fixed:
        micro = int(fixed["micro_batch"])
        return micro * int(fixed.get("grad_accum", max(1, round(total / (micro * job.ranks)))))
    return max(total // job.ranks, int(fixed.get("grad_accum", 1)))


def slower(candidate: Candidate, chosen: Candidate) -> float:
    """Seconds that it takes more for as many sequences as a step of the chosen one has; less than zero: fewer."""
    per_sequence, reference = (one.time.total / one.sequences for one in (candidate, chosen))
    return (per_sequence - reference) * chosen.sequences


def _in_bytes(candidate: Candidate, chosen: Candidate) -> str:
    more, lost = candidate.fit.gpu.needed - chosen.fit.gpu.needed, slower(candidate, chosen)
    share = abs(lost) / chosen.time.total
    if share < LEAST:
        beside = "as fast"
    else:
        by = f"{share:.0%}" if share >= WHOLE else f"{share:.2%}"
        beside = f"{seconds(abs(lost))} a step {'slower' if lost > 0 else 'faster'} ({by})"
    if more:
        return f"needs {gib(more)} more, {beside}"
    return f"needs as much, {beside}{': the simpler plan is taken' * (share < LEAST)}"


def _in_seconds(candidate: Candidate, chosen: Candidate) -> str:
    lost = slower(candidate, chosen)
    share = lost / chosen.time.total
    if lost <= 0:
        return f"as fast, needs {gib(candidate.fit.gpu.needed)}: the simpler plan is taken"
    line = slowest_part(candidate, chosen)
    more = f"+{share:.0%}" if share >= WHOLE else f"+{share:.2%}"
    return f"{seconds(lost)} a step slower ({more}: {line}), needs {gib(candidate.fit.gpu.needed)}"


def slowest_part(candidate: Candidate, chosen: Candidate) -> str:
    """The part of the step that grew most, for as many sequences."""
    share = chosen.sequences / candidate.sequences
    before, after = _parts(chosen), _parts(candidate)
    return max(after, key=lambda name: share * after[name] - before[name])


def _parts(candidate: Candidate) -> dict[str, float]:
    """Seconds of a step: computing without what checkpointing runs again, that, and what shows of all else."""
    time = candidate.time
    again = sum(entry.seconds for entry in time.terms if entry.group == COMPUTE and entry.name.endswith(RECOMPUTATION))
    return {**time.groups, COMPUTE: time.compute - again, RECOMPUTATION: again}


def ways_out(
    job: Job, fixed: dict[str, Any], reserve: float | None, cards: Sequence[Gpu], *, of_host: bool
) -> tuple[Suggestion, ...]:
    """Where nothing fits, single changes after which something does: that which trains most tokens a second on each
    GPU first. `cards`: larger ones, to try; `of_host`: it may lack memory.
    """
    from zeroplan.suggestions import suggestions

    def fits(changed: Job, free: dict[str, Any]) -> bool:
        return has_any(changed, free, reserve)

    def fastest(changed: Job, free: dict[str, Any]) -> Candidate | None:
        return plan(changed, free, reserve=reserve).chosen

    ways = sorted(suggestions(job, fixed, fits, fastest, of_host=of_host, cards=cards), key=lambda way: -_rate(way[1]))
    return tuple(suggestion(said, one) for said, one in ways)


def suggestion(change: str, candidate: Candidate) -> Suggestion:
    """A change with the plan that fits then."""
    needs = f"needs {gib(candidate.fit.gpu.needed)}, {_rate(candidate):,.0f} tokens/s per GPU"
    return Suggestion(f"{change}: {label(candidate)}; {needs}", candidate)


def _rate(candidate: Candidate) -> float:
    """Tokens a second on each GPU."""
    return candidate.throughput * candidate.job.workload.seq / candidate.job.ranks
