"""Whether there is room for a strategy at all: what is held between steps, and beside it the model's own activations,
or the parameters that a pass gathers.

All are parts of the exact count, so nothing is left out that would fit; what remains is counted in full. That a model
needs no less with fewer layers that run again is taken from drawn spaces (tests/search), not proven.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator

from zeroplan.costs.engines import engine_of
from zeroplan.costs.ledger import resident
from zeroplan.costs.outside import outside
from zeroplan.costs.passes import timeline_request
from zeroplan.errors import ContradictionError
from zeroplan.fit import TierFit, gpu_limit, host_fit, nvme_fit
from zeroplan.ledger import total
from zeroplan.search.space import Configuration
from zeroplan.specs.job import Job

TRACED_FIRST = 2
"""Configurations with most layers that run again, traced before the others: on a card that is nearly full these alone
may have room.
"""


def lower_bound(job: Job) -> int:
    """Bytes of PyTorch's that a GPU needs at least; where activations are closed forms, what is held and gathered.

    Raises `ContradictionError` where the engine stops.
    """
    job = engine_of(job).completed(job)
    return total(resident(job)) + max(_activations(job), engine_of(job).gathered(job))


def _activations(job: Job) -> int:
    """The model's own bytes at their fullest; 0 where they are not written out."""
    return max(job.model.profile.alone(timeline_request(job), job.leaves) or (0,))


def least_needed(job: Job) -> int | None:
    """Bytes that a GPU needs at least: `lower_bound`, and what a process takes beside PyTorch's allocator; None where
    the engine stops in training.
    """
    try:
        return lower_bound(job) + total(outside(job))
    except ContradictionError:
        return None


def fits_held(job: Job, reserve: float | None) -> bool:
    """Whether the card has room for what is held between steps, which takes no trace of the model."""
    limit = gpu_limit(job, reserve)
    return limit is None or total(resident(job)) <= limit


def fits_by_bound(job: Job, reserve: float | None) -> bool:
    """Whether the card has room for so much."""
    limit, held = gpu_limit(job, reserve), total(resident(job))
    return limit is None or (held <= limit and held + _activations(job) <= limit)  # the last takes a trace of the model


def fits_gathered(job: Job, reserve: float | None) -> bool:
    """Whether the card has room for what is gathered too, which takes a replay of the gathers; not where the engine
    stops in training.
    """
    engine, limit = engine_of(job), gpu_limit(job, reserve)
    try:
        return limit is None or total(resident(job)) + engine.gathered(engine.completed(job)) <= limit
    except ContradictionError:
        return False


def has_room(configuration: Configuration, reserve: float | None) -> bool:
    """Whether card, host and disks have room for so much, with the numbers that hold least on each."""
    return _has_host(configuration, reserve) and fits_by_bound(configuration.minimum_memory, reserve)


def those_with_room(family: list[Configuration], reserve: float | None) -> list[Configuration]:
    """The configurations that have room, of some that differ in how many layers run again, most of them first.

    With fewer layers that do, a model's activations are no smaller at their fullest: few are traced.
    """
    hosted = [one for one in family if _has_host(one, reserve)]

    def is_full(configuration: Configuration) -> bool:
        return not fits_by_bound(configuration.minimum_memory, reserve)

    least = next((place for place, one in enumerate(hosted[:TRACED_FIRST]) if is_full(one)), None)
    return hosted[: bisect_left(hosted, True, lo=TRACED_FIRST, key=is_full) if least is None else least]


def _has_host(configuration: Configuration, reserve: float | None) -> bool:
    """Whether host and disks have room with the numbers that hold least there."""
    job = configuration.minimum_memory
    return fits_beside_gpu([job, *configuration.with_less_on_host(job)][-1], reserve)


def fits_beside_gpu(job: Job, reserve: float | None) -> bool:
    """Whether host and disks have room, as far as it is known what is there."""
    return all(tier.fits is not False if reserve is None else tier.enough for tier in _beside_gpu(job))


def _beside_gpu(job: Job) -> Iterator[TierFit]:
    engine = engine_of(job)
    if job.cluster.host_memory is not None:
        yield host_fit(job, engine.host(job))
    if job.cluster.nvme is not None:
        yield nvme_fit(job, total(engine.nvme(job).peak.lines))
