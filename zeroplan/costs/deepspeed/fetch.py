"""Replay of stage 3's parameter coordinator: which gathers it issues, and what is gathered at each moment.

It follows runtime/zero/partitioned_param_coordinator.py of DeepSpeed 0.19.8 event by event: fetch what a module
misses, take its tensors off the fetch queue, prefetch from the queue's head, release on leaving. The first
micro-step of a run records the trace (no prefetch, no reuse); the replay starts with the second, and decisions to
release are remembered from the first time they are taken (lru_cache), as there. Sizes are elements.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

from zeroplan.arithmetic import round_up
from zeroplan.costs.deepspeed.layout import persistent_tensors, tensor_sizes
from zeroplan.costs.deepspeed.once import once
from zeroplan.specs.job import Job
from zeroplan.specs.model import Visit
from zeroplan.specs.strategy import Strategy

NEVER = -10_000_000_000


def _decides(strategy: Strategy) -> Hashable:
    return (
        strategy.prefetch_bucket_size, strategy.max_live_parameters, strategy.max_reuse_distance,
        strategy.param_persistence_threshold, strategy.model_persistence_threshold,
        strategy.checkpointing == "full", min(strategy.grad_accum, 2),
    )  # fmt: skip


@once(_decides)
def steady_micro_step(job: Job) -> tuple[Gather | Held, ...]:
    """The first micro-step of the third optimizer step; later ones repeat it. Nothing is gathered with one rank."""
    if job.ranks == 1:
        return ()
    order, strategy = job.model.execution(), job.strategy
    settings = Settings(
        frozenset(persistent_tensors(job)), job.ranks, strategy.prefetch_bucket_size, strategy.max_live_parameters,
        strategy.max_reuse_distance, min(strategy.grad_accum, 2),
    )  # fmt: skip
    backward = order.recomputing if strategy.checkpointing == "full" else order.backward
    return _replayed(tuple(tensor_sizes(job)), settings, order.forward, backward)


class Settings(NamedTuple):
    """What decides the gathers, beside the model."""

    persistent: frozenset[int]
    ranks: int
    prefetch_bucket_size: int
    max_live_parameters: int
    max_reuse_distance: int
    grad_accum: int


def _replayed(
    sizes: tuple[int, ...], settings: Settings, forward: tuple[Visit, ...], backward: tuple[Visit, ...]
) -> tuple[Gather | Held, ...]:
    """Two optimizer steps, then the micro-step that is looked at. The run's first only records the trace.

    Without accumulation every later step starts from the same state, so the first replayed is the steady one.
    """
    coordinator = Coordinator(sizes, settings, forward, backward)
    warm_up = (settings.grad_accum - 1, settings.grad_accum) if settings.grad_accum > 1 else ()
    for micro_steps in warm_up:
        for _micro in range(micro_steps):
            deque(coordinator.micro_step(), maxlen=0)
        coordinator.gather_persistent()
    coordinator.gather_persistent()
    return tuple(coordinator.micro_step())


class Gather(NamedTuple):
    """One all-gather: its tensors, and the elements it gathers, each tensor padded to the ranks."""

    tensors: tuple[int, ...]
    elements: int
    backward: bool


class Held(NamedTuple):
    """Gathered elements alive right after a visit."""

    elements: int
    visit: Visit
    backward: bool


class Coordinator:
    """The state that one rank's coordinator keeps across micro-steps."""

    def __init__(
        self, sizes: Sequence[int], settings: Settings, forward: Sequence[Visit], backward: Sequence[Visit]
    ) -> None:
        self.sizes, self.settings = sizes, settings
        self.persistent, self.ranks = settings.persistent, settings.ranks
        self.visits = [*((visit, False) for visit in forward), *((visit, True) for visit in backward)]
        self.order = [visit.tensors for visit, _backward in self.visits if visit.enters]
        self.distances = [self._elements(tensors) for tensors in self.order]
        self.released: dict[tuple[int, int], frozenset[int]] = {}
        self.available: set[int] = set()
        self.storage: dict[int, int] = {}
        """Elements of each gathered tensor's own storage."""
        self.buffers: list[tuple[set[int], int]] = []
        """Receive buffers of coalesced gathers: members not consumed yet, elements."""
        self.held = 0
        """Elements in `storage` and `buffers`."""

    def gather_persistent(self) -> list[Gather]:
        """After the optimizer's step: everything partitioned, then each persistent tensor gathered by itself."""
        self.available, self.storage, self.buffers, self.held = set(self.persistent), {}, [], 0
        return [Gather((index,), round_up(self.sizes[index], self.ranks), False) for index in sorted(self.persistent)]

    def micro_step(self) -> Iterator[Gather | Held]:
        """One forward and backward: gathers as they are issued, and what is held after each visit."""
        queue = deque((index, step) for step, tensors in enumerate(self.order) for index in sorted(set(tensors)))
        recent: dict[int, int] = {}
        inside: dict[int, set[int]] = {}
        """Tensor -> modules that use it now; a module that recomputes enters twice and leaves once."""
        count, step = 0, 0
        flying: set[int] = set()
        for visit, backward in self.visits:
            tensors = set(visit.tensors)
            if visit.enters:
                missing = tensors - self.available - flying
                if missing:
                    yield self._gather(missing, backward)
                    count += self._elements(missing)
                    flying |= missing
                self._consume(tensors, flying)
                for index in tensors:
                    inside.setdefault(index, set()).add(visit.module)
                pending = {index for index in tensors if recent.get(index, NEVER) < step}
                taken: set[int] = set()
                while queue and len(taken) < len(pending):
                    index, used = queue.popleft()
                    recent[index] = used
                    taken.add(index)
                ahead = self._ahead(queue, recent, flying, count)
                if ahead:
                    yield self._gather(ahead, backward)
                    count += self._elements(ahead)
                    flying |= ahead
                step += 1
            else:
                for index in tensors:
                    inside[index].discard(visit.module)
                for index in self._to_release(visit, step, recent):
                    if index in self.available and not inside.get(index):
                        count -= self.sizes[index]
                        self._drop(index)
            yield Held(self.held, visit, backward)
        self._finish(flying)

    def _elements(self, tensors: Iterable[int]) -> int:
        return sum(self.sizes[index] for index in tensors)

    def _gather(self, tensors: set[int], backward: bool) -> Gather:
        elements = sum(round_up(self.sizes[index], self.ranks) for index in tensors)
        if len(tensors) == 1:
            (index,) = tensors
            self.storage[index] = elements  # received in place
        else:
            self.buffers.append((set(tensors), elements))
        self.held += elements
        return Gather(tuple(sorted(tensors)), elements, backward)

    def _consume(self, tensors: set[int], flying: set[int]) -> None:
        """Wait for a module's tensors: a coalesced gather is unpacked whole by the first member waited for."""
        waited = tensors & flying
        if not waited:
            return
        for members, _elements in self.buffers:
            if members & waited:
                for index in members & flying:
                    if index not in self.storage:
                        self.storage[index] = self.sizes[index]
                        self.held += self.sizes[index]
                    self.available.add(index)
        self.available |= waited
        flying -= waited
        for members, elements in self.buffers:
            members.difference_update(waited)
            if not members:
                self.held -= elements
        self.buffers = [(members, elements) for members, elements in self.buffers if members]

    def _ahead(self, queue: deque[tuple[int, int]], recent: dict[int, int], flying: set[int], count: int) -> set[int]:
        """Prefetch from the head of the queue while under the bucket and the live limit; the last may exceed."""
        settings = self.settings
        if settings.prefetch_bucket_size <= 0:
            return set()
        room = min(settings.max_live_parameters - count, settings.prefetch_bucket_size)
        chosen: set[int] = set()
        elements = 0
        while queue and elements < room:
            index, used = queue.popleft()
            recent[index] = max(recent.get(index, NEVER), used)
            if index not in self.available and index not in flying and index not in chosen:
                chosen.add(index)
                elements += self.sizes[index]
        return chosen

    def _to_release(self, visit: Visit, step: int, recent: dict[int, int]) -> frozenset[int]:
        """Not the persistent, not what a prefetch marked for later, not what comes again within the distance."""
        mark = (visit.module, step)
        if mark not in self.released:
            candidates = {i for i in visit.tensors if i not in self.persistent and recent.get(i, NEVER) <= step}
            travelled = 0
            for later in range(step, len(self.order)):
                if travelled >= self.settings.max_reuse_distance or not candidates:
                    break
                candidates.difference_update(self.order[later])
                travelled += self.distances[later]
            self.released[mark] = frozenset(candidates)
        return self.released[mark]

    def _drop(self, index: int) -> None:
        self.available.discard(index)
        self.held -= self.storage.pop(index, 0)

    def _finish(self, flying: set[int]) -> None:
        """End of backward: modules whose exit never fired are released; before the next forward, what flies is."""
        exited = {v.module for v, backward in self.visits if backward and not v.enters}
        for visit, backward in self.visits:
            if backward and visit.enters and visit.module not in exited:
                for index in set(visit.tensors) - self.persistent:
                    self._drop(index)
        for index in flying:
            self._drop(index)
        self.held -= sum(elements for _members, elements in self.buffers)
        self.buffers = []
