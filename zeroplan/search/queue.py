"""The configurations of a space in the order of a lower bound of what is minimised, as far as there is room for them.

The bound is known more and more closely: seconds of the operators, of the passes with what runs again, and of a step
with the fastest numbers, whether they fit or not; or bytes of the GPU that are held, and those of activations or of
gathered parameters beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from functools import partial
from heapq import heappop, heappush
from itertools import count
from math import inf
from typing import Any

from zeroplan.costs.ledger import resident
from zeroplan.costs.outside import outside
from zeroplan.costs.timing.computing import layers_again
from zeroplan.ledger import total
from zeroplan.search.candidate import Evaluator, passes_seconds
from zeroplan.search.refinement import GAIN
from zeroplan.search.room import fits_by_bound, fits_held, has_room, least_needed, those_with_room
from zeroplan.search.space import Configuration, Space
from zeroplan.specs.job import Job
from zeroplan.specs.objective import LEAST_MEMORY

HARDLY_FASTER = 1 - 2 * GAIN
"""Share of a step that it may take at least with more layers that run again, beside which more traffic hides."""
MANY_FAILED = 4
"""Configurations that came up and do not fit, after which the next are not expected to."""


class _Family:
    """Configurations that differ in how many layers run again, from those that run most: the last comes up first."""

    def __init__(self, members: list[Configuration]) -> None:
        self.members = members
        self.lacks_room = False
        """One that came up has none."""

    @property
    def last(self) -> Configuration:
        return self.members[-1]


class ConfigurationQueue:
    """What of a space may be best, by its bound; whoever looks at it lowers `limit` and counts what `failed`."""

    def __init__(self, space: Space, evaluator: Evaluator, objective: str, limit: float = inf) -> None:
        self.space, self.evaluator, self.objective = space, evaluator, objective
        self.limit = limit
        """What is minimised of which nothing above is worth looking at."""
        self.failed = 0
        """Configurations that came up and do not fit, before any that does."""
        self.without_room = 0
        """Configurations left out."""
        self.computing: dict[Any, float] = {}
        """Seconds of the passes alone, by what decides them."""

    def __iter__(self) -> Iterator[tuple[float, Configuration]]:
        """Configurations that have room, in the order of what is minimised, with the numbers that are best for it.

        None above `limit`. What is minimised is known more and more closely as a configuration comes up. The same with
        more layers that run again is hardly faster, and comes up afterwards.
        """
        lean = self.objective == LEAST_MEMORY
        by_seconds = self.operators, self._passes_with_room, self._fastest_step
        closer: tuple[Callable[[Configuration], float | None], ...]
        closer = (self.held, self._leanest_bytes) if lean else by_seconds
        turn = count()
        waiting: list[tuple[float, tuple[Any, ...], int, int, _Family]] = []

        def wait(family: _Family, bound: float) -> None:
            if family.members:
                heappush(waiting, (bound, family.last.tie_break(family.last.at()), next(turn), 0, family))

        for members in [[one] for one in self.space.configurations()] if lean else families(self.space):
            wait(_Family(members), 0.0)
        while waiting:
            bound, simplest, _turn, level, family = heappop(waiting)
            if bound > self.limit:
                return
            if level == len(closer) - 1 and family.lacks_room:
                wait(_Family(self._with_room(family.members)), bound)
                continue
            if level < len(closer) and (closest := closer[level](family.last)) is not None:
                heappush(waiting, (max(bound, closest), simplest, next(turn), level + 1, family))
                continue
            configuration = family.members.pop()
            if level == len(closer):
                yield bound, configuration
            else:
                family.lacks_room = True
            wait(family, HARDLY_FASTER * bound)

    @property
    def _is_crowded(self) -> bool:
        """Whether the card seems too small: what comes next is counted before it is timed."""
        return self.failed >= MANY_FAILED

    def operators(self, configuration: Configuration) -> float:
        """Seconds of forward's operators and backward's, without what checkpointing runs again."""
        return self._computing(configuration, traced=False)

    def passes(self, configuration: Configuration) -> float:
        """Seconds of the passes, without traffic, offload and update."""
        return self._computing(configuration, traced=True)

    def _passes_with_room(self, configuration: Configuration) -> float | None:
        """Seconds of the passes; None, and no trace for them, where there is no room for what is held between steps."""
        if not fits_held(configuration.minimum_memory, self.evaluator.reserve):
            self.without_room += 1
            return None
        return self.passes(configuration)

    def _computing(self, configuration: Configuration, *, traced: bool) -> float:
        key = (*configuration.computes, traced)
        if key not in self.computing:
            self.computing[key] = passes_seconds(configuration.at(), traced=traced)
        return self.computing[key]

    def _fastest_step(self, configuration: Configuration) -> float | None:
        """Seconds of a step with the fastest numbers; None where there is no room for the leanest."""
        if not self.has_room(configuration) or (self._is_crowded and not self.evaluator.first_lean(configuration)):
            return None
        return min(map(self.evaluator.timed, self.fast(configuration)))

    def fast(self, configuration: Configuration) -> Iterator[Job]:
        """With the numbers that may be fastest, whether they fit or not."""
        return configuration.fast(partial(fits_by_bound, reserve=self.evaluator.reserve))

    def held(self, configuration: Configuration) -> float:
        """Bytes that a GPU holds between steps, and what a process takes beside PyTorch's allocator."""
        job = configuration.minimum_memory
        return total(resident(job)) + total(outside(job))

    def _leanest_bytes(self, configuration: Configuration) -> float | None:
        """Bytes that a GPU needs at least, with the model's own activations or gathered parameters; None where there is
        no room for them.
        """
        return least_needed(configuration.minimum_memory) if self.has_room(configuration) else None

    def has_room(self, configuration: Configuration) -> bool:
        """Whether there is room with the numbers that hold least; counts those without."""
        there = has_room(configuration, self.evaluator.reserve)
        self.without_room += not there
        return there

    def _with_room(self, family: list[Configuration]) -> list[Configuration]:
        there = those_with_room(family, self.evaluator.reserve)
        self.without_room += len(family) - len(there)
        return there


def families(space: Space) -> list[list[Configuration]]:
    """Configurations that differ in how many layers run again, from those that run most."""
    alike: dict[Hashable, list[Configuration]] = {}
    for configuration in space.configurations():
        alike.setdefault(configuration.family, []).append(configuration)
    for family in alike.values():
        family.sort(key=lambda one: -layers_again(one.at()))
    return list(alike.values())
