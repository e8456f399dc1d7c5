"""Replay of stage 3's parameter coordinator: which gathers it issues, and what is gathered at each moment.

It follows runtime/zero/partitioned_param_coordinator.py of DeepSpeed 0.19.8 event by event: fetch what a module
misses, take its tensors off the fetch queue, prefetch from the queue's head, release on leaving. Decisions to release
are remembered from the first time they are taken (lru_cache), as there. `AccessOrder` is what it meets in a micro-step:
hooks, uses of tensors (the queue is what the trace has from `head` on), and how far away the next use is
(stage3_max_reuse_distance). Sizes are elements.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from copy import copy
from itertools import accumulate
from types import MappingProxyType
from typing import NamedTuple

from zeroplan.costs.deepspeed.events import GatheredTimeline, MicroStep
from zeroplan.costs.deepspeed.gathered_storages import (
    NOTHING,
    GatheredStorages,
    ReplayThresholds,
    Settings,
    Threshold,
    ThresholdRange,
)
from zeroplan.specs.execution import ModuleHook


class TraceError(Exception):
    """A module fetches other tensors than those that come next in the trace: DeepSpeed stops (tracing error)."""


class Coordinator(GatheredStorages):
    """The state that one rank's coordinator keeps, some of it across micro-steps."""

    def __init__(self, sizes: Sequence[int], settings: Settings, access: AccessOrder) -> None:
        super().__init__(sizes, settings)
        self.passes, self.trace, self.ends, self.places = access.passes, access.trace, access.ends, access.places
        self.own, self.full, self.recomputed = access.own, access.full, access.recomputed
        self.last_user, self.never_left, self.differs = access.last_user, access.never_left, access.differs
        self.frozen = settings.frozen
        self.released: dict[tuple[int, int], tuple[int, ...]] = {}
        """What is released as a module is left, by the module and the coordinator's step: decided once (lru_cache)."""
        self._set(settings)
        self.records = False  # the trace alone: nothing is prefetched, nothing kept for reuse
        self._start()

    def _set(self, settings: Settings) -> None:
        self.settings = settings
        self.bucket = Threshold(settings.prefetch_bucket_size)
        self.live = Threshold(settings.max_live_parameters)
        self.reach = Threshold(settings.max_reuse_distance)

    def under(self, settings: Settings) -> Coordinator:
        """What the recorded micro-step has left behind, for other thresholds; nothing is on NVMe."""
        other = copy(self)
        for name in (
            "available", "storage", "lies_in", "views", "joined_low_precision", "kept", "secondary", "released",
        ):  # fmt: skip
            setattr(other, name, getattr(self, name).copy())
        other.buffers = {number: (members.copy(), elements) for number, (members, elements) in self.buffers.items()}
        other._set(settings)
        return other

    def _start(self) -> None:
        """What begins again with each micro-step (reset_step)."""
        self.begin()
        self.head = len(self.trace) if self.records else 0
        """How many uses of the trace are off the fetch queue."""
        self.inside: defaultdict[int, set[int]] = defaultdict(set)
        """Tensor -> modules that use it now; a module that recomputes enters twice and leaves once."""
        self.captured: set[int] = set()
        """Packed weights of which a node of forward holds what is gathered now, whenever that is released."""
        self.step = 0

    def gather_persistent(self) -> None:
        """After the optimizer's step: everything partitioned, then each persistent tensor gathered by itself."""
        for index in self.available:
            self.swapper.release(index)
        self.available, self.buffers = set(self.persistent), {}
        self.storage = {index: self.received[index] for index in self.settings.persistent_to_replace}
        self.gathered = sum(self.storage.values())
        self.lies_in, self.views, self.copied, self.most, self.most_from_host = {}, set(), 0, 0, 0
        self.waiting = NOTHING
        self.secondary &= self.frozen
        self.swapper.fetch(sorted(self.persistent))

    def micro_step(self, *, records: bool = False) -> MicroStep:
        """One forward and backward: gathers as they are issued, and what is held after each hook."""
        self.records = records
        self._start()
        forward, backward = (self._replay(pass_index, hooks) for pass_index, hooks in enumerate(self.passes))
        self._finish()
        return MicroStep(self.gathers, forward, backward, tuple(self.swapper.read))

    def _replay(self, pass_index: int, hooks: Sequence[ModuleHook]) -> GatheredTimeline:
        """Hooks one by one; the first is reported, and each that changes what is held."""
        rows: list[int] = []
        elements = secondary = -1
        prefetches, uses = not self.records and self.bucket.exceeds(0), len(self.trace)
        owned = self.recomputed.owned if pass_index else ()
        for at, (enters, module, tensors, backward) in enumerate(hooks):
            ready = self.gathered
            if not tensors and at not in owned and (rows or not (backward and self.frozen)):  # as half of the modules
                if not enters:
                    continue
                self.step += 1
                if not prefetches or self.head == uses or not (self.swaps or self.live.exceeds(self.live_parameters)):
                    continue
                self.place = pass_index, at
                self._look_ahead()
            elif enters:
                self.place = pass_index, at
                self._fetch(module, tensors)
                if prefetches and self.head < uses:
                    self._look_ahead()
                self.step += 1
            else:
                if backward and self.kept:
                    ready = self.let_go(tensors)
                self.place = pass_index, at
                self._exit(module, tensors, backward=backward)
            there, apart, wait = self.gathered, self.copied, self.waiting
            besides = max(self.most, there + apart)
            most = wait.most if wait.most > besides else besides
            if there != elements or apart != secondary or most > there + apart or ready != elements:
                elements, secondary = there, apart
                less, from_host = wait.less(besides), max(besides, self.most_from_host)
                rows += (
                    at, ready, most, elements, secondary, less,
                    max(wait.most, from_host), wait.less(from_host),
                )  # fmt: skip
            self.most, self.most_from_host, self.waiting = 0, 0, NOTHING
        return GatheredTimeline.of(rows)

    def _fetch(self, module: int, tensors: Sequence[int]) -> None:
        """Gather what is missing, wait for it, and take the module's tensors off the queue (fetch_sub_module)."""
        if not self.available.issuperset(tensors) and (missing := set(tensors) - self.available - self.flying):
            self.gather(missing)
        if waited := self.flying.intersection(tensors):
            self.consume(waited)
        inside, (in_backward, at) = self.inside, self.place
        for index in tensors:
            inside[index].add(module)
        if in_backward and at in self.recomputed.owner:
            for index in self.frozen.intersection(tensors):
                inside[index].add(self.recomputed.owner[at])
        if self.head < (end := self.ends[self.step]):
            self.head = self._behind(tensors, end) if self.differs else end

    def _behind(self, tensors: Sequence[int], end: int) -> int:
        """Where the queue goes on behind a module's tensors, of which the trace, up to `end`, has more."""
        start = self.ends[self.step - 1] if self.step else 0
        pending = set(self.trace[max(self.head, start) : end]).intersection(tensors)
        if pending != set(self.trace[self.head : self.head + len(pending)]):
            raise TraceError
        return self.head + len(pending)

    def _exit(self, module: int, tensors: Sequence[int], *, backward: bool) -> None:
        """Release what no other module uses and nothing asks for soon (release_sub_module)."""
        inside, available, (pass_index, at) = self.inside, self.available, self.place
        for index in tensors:
            inside[index].discard(module)
            if index in self.settings.replaced and not backward:
                self.gathered -= self.storage.pop(index, 0)
        released: Iterable[int] = self._to_release(module, tensors) if tensors else ()
        if self.settings.held and not (backward or pass_index):
            self.captured.update(index for index in tensors if self._is_captured(index, module))
        if backward and (owned := self.recomputed.owned.get(at)):
            for index in owned:
                inside[index].discard(module)
            released = frozenset(released) | (owned - self.persistent)
        for index in released:
            if index in available and not inside[index]:
                self.live_parameters -= self.sizes[index]
                if index in self.captured:
                    self.captured.discard(index)
                    self.keep(index)
                elif not backward and self._is_kept(index, module, recomputes=bool(pass_index)):
                    self.keep(index)
                self.drop(index)

    def _look_ahead(self) -> None:
        """Prefetch what comes next."""
        if self.live.exceeds(self.live_parameters) and (ahead := self._ahead()):
            self.gather(ahead)
        if self.swaps:
            flying = sum(self.sizes[index] for index in self.flying)
            queue = (self.trace[at] for at in range(self.head, len(self.trace)))
            self.swapper.fetch_ahead(queue, self.sizes, flying)

    def _ahead(self) -> set[int]:
        """From the head of the queue while there is room under the bucket and the live limit; the last may exceed.

        It stops at a tensor whose partition is on NVMe.
        """
        count, available, flying, trace = self.live_parameters, self.available, self.flying, self.trace
        room = min(self.live.value - count, self.bucket.value)
        chosen: set[int] = set()
        elements = under = 0
        while self.head < len(trace) and elements < room:
            under = elements
            index = trace[self.head]
            if self.swaps and self.swapper.absent(index):
                break
            self.head += 1
            if index not in available and index not in flying and index not in chosen:
                chosen.add(index)
                elements += self.sizes[index]
        self.live.exceeds(count + under)
        self.bucket.exceeds(under)
        if elements >= room and self.live.exceeds(count + elements):
            self.bucket.exceeds(elements)
        return chosen

    def _to_release(self, module: int, tensors: Sequence[int]) -> Sequence[int]:
        """Not the persistent, not what a prefetch marked for later, not what comes again within the distance."""
        if self.records:
            return tensors if len(tensors) == 1 else tuple(frozenset(tensors))
        step = self.step
        if (known := self.released.get((module, step))) is None:
            distances = self.full if module in self.settings.leaves else self.own
            known = self.released[module, step] = tuple(frozenset([
                index for index in tensors
                if index not in self.persistent and not self._is_taken_early(index)
                and not self._is_near(distances.to_next_use(index, step))
            ]))  # fmt: skip
        return known

    def _is_taken_early(self, index: int) -> bool:
        """Whether a use of the tensor that is yet to come is off the queue."""
        after = self.ends[self.step]
        if self.head <= after:
            return False
        uses = self.places[index]
        at = bisect_left(uses, after)
        return at < len(uses) and uses[at] < self.head

    def _is_near(self, distance: int | None) -> bool:
        """Whether what comes again that far away stays gathered until then."""
        return distance is not None and self.reach.exceeds(distance)

    @property
    def holds(self) -> ReplayThresholds:
        """The thresholds under which all would have gone as it did; partitions on NVMe are looked at by themselves."""
        settings = self.settings
        if self.swaps:
            here = (settings.prefetch_bucket_size, settings.max_live_parameters, settings.max_reuse_distance)
            return ReplayThresholds(*(ThresholdRange(number - 1, number) for number in here))
        return ReplayThresholds(self.bucket.span, self.live.span, self.reach.span)

    def _is_captured(self, index: int, module: int) -> bool:
        """Whether forward leaves a node that holds the tensor as no saved one; in a reentrant layer it leaves none."""
        settings = self.settings
        if index not in settings.held or self.last_user[index] != module:
            return False
        return not (settings.reentrant and index in settings.checkpointed)

    def _is_kept(self, index: int, module: int, *, recomputes: bool) -> bool:
        """Whether autograd still holds a tensor's storage when forward releases it.

        Forward saves parameters as such, which follow their release, but views of them do not; what checkpointing
        saves as it recomputes is detached from the parameters, and never follows, unless it is reentrant. Of a tied
        tensor the head saves a view; the embedding, which runs first, looks its rows up and saves nothing of it.
        """
        if self.last_user[index] != module or index in self.settings.held:
            return False
        if recomputes:
            return not self.settings.reentrant or index in self.settings.viewed
        return index in self.settings.viewed and index not in self.settings.checkpointed

    def _finish(self) -> None:
        """End of backward: modules whose exit never fired are released; before the next forward, what flies is."""
        for hook in self.never_left:
            for index in (self.recomputed.left.get(hook.module, frozenset()).union(hook.tensors)) - self.persistent:
                self.drop(index)
        for index in self.flying:
            self.drop(index)
        self.inside.clear()  # the recorded one is kept, with a set of each tensor
        self.gathered -= sum(self.kept.values())
        self.kept = {}
        for number, (members, _elements) in list(self.buffers.items()):
            if not members & self.available:
                self.leave_buffer(number, set(members))


class Distances:
    """Elements of the hooks between two uses of a tensor.

    For the release of a leaf module DeepSpeed counts at each hook all tensors below the module entered, for any other
    the module's own (partitioned_param_coordinator.py:__params_to_release).
    """

    def __init__(self, order: Sequence[Sequence[int]], sizes: Sequence[int]) -> None:
        """`order`: the tensors of each hook, by index into `sizes`."""
        uses: defaultdict[int, list[int]] = defaultdict(list)
        elements = [0] * len(order)
        for step, tensors in enumerate(order):
            if tensors:
                elements[step] = sum([sizes[index] for index in tensors])
                for index in tensors:
                    uses[index].append(step)
        self.uses = {index: tuple(steps) for index, steps in uses.items()}
        self.travelled = [*accumulate(elements, initial=0)]

    def to_next_use(self, index: int, step: int) -> int | None:
        """What the hooks from `step` to the tensor's next use hold; None: it is not used again."""
        uses = self.uses.get(index, ())
        at = bisect_left(uses, step)
        return self.travelled[uses[at]] - self.travelled[step] if at < len(uses) else None


class AccessOrder(NamedTuple):
    """The same in every micro-step, whatever the coordinator's settings."""

    passes: tuple[Sequence[ModuleHook], Sequence[ModuleHook]]
    """Hooks of forward, and of backward."""
    trace: list[int]
    """The tensor of each use."""
    ends: list[int]
    """How many uses there are with those of each module entered; once more behind the last."""
    places: dict[int, tuple[int, ...]]
    """Where in the trace each tensor is."""
    own: Distances
    full: Distances
    """What the release of a leaf module looks at."""
    last_user: dict[int, int]
    """The last module in forward that uses each tensor."""
    never_left: list[ModuleHook]
    """Modules that backward enters and whose exit never fires."""
    differs: bool
    """The trace has tensors that hooks in forward do not see."""
    recomputed: RecomputedTensors


class RecomputedTensors(NamedTuple):
    """Frozen tensors that are gathered to run a layer again inside a module's backward: they stay until its end, and go
    then, whatever asks for them next (ds_recompute_parameters).
    """

    owner: dict[int, int]
    """The module, by the hook of backward under which they are gathered."""
    owned: dict[int, frozenset[int]]
    """Those that go, by the hook of backward."""
    left: dict[int, frozenset[int]]
    """Those of modules whose exit never fires."""


def recomputed_tensors(backward: Sequence[ModuleHook], frozen: frozenset[int]) -> RecomputedTensors:
    """What a layer that runs again gathers and does not train is that module's which backward has entered last of those
    that it has not left (update_recompute_parameters).
    """
    entered: dict[int, None] = {}
    gathered: defaultdict[int, frozenset[int]] = defaultdict(frozenset)
    result = RecomputedTensors({}, {}, gathered)
    for at, hook in enumerate(backward if frozen else ()):
        if hook.backward and hook.enters:
            entered[hook.module] = None
        elif hook.backward:
            entered.pop(hook.module, None)
            if hook.module in gathered:
                result.owned[at] = gathered.pop(hook.module)
        elif hook.enters and entered and (again := frozen.intersection(hook.tensors)):
            result.owner[at] = owner = next(reversed(entered))
            gathered[owner] |= again
    return result


def access_order(
    sizes: Sequence[int], passes: tuple[Sequence[ModuleHook], Sequence[ModuleHook]],
    leaves: frozenset[int] = frozenset(), subtrees: Sequence[tuple[int, ...]] = (),
    parametrized: Mapping[int, tuple[int, ...]] = MappingProxyType({}), added: Container[int] = (),
    frozen: frozenset[int] = frozenset(),
) -> AccessOrder:  # fmt: skip
    """`leaves`: modules that are gathered whole; `subtrees`: all tensors below each module, when there are any;
    `added`: tensors that DeepSpeed numbers after the others, and sorts as it does (ds_id); `frozen`: those that do not
    train.

    Between steps DeepSpeed reads the trace of tensors off the modules, which have their `parametrized` ones again then.
    """
    forward, backward = passes
    entered_hooks = [hook for hooks in (forward, backward) for hook in hooks if hook.enters]
    if parametrized:
        entered_hooks = [_with_parametrized(hook, parametrized) for hook in entered_hooks]
    left = {hook.module for hook in backward if not hook.enters}

    def number(index: int) -> tuple[bool, int]:
        return index in added, index

    used = [sorted(set(read), key=number) if len(read := hook.tensors) > 1 else read for hook in entered_hooks]
    trace = [index for read in used for index in read]
    places: defaultdict[int, list[int]] = defaultdict(list)
    for place, index in enumerate(trace):
        places[index].append(place)
    own = Distances([() if hook.module in leaves else hook.tensors for hook in entered_hooks], sizes)
    return AccessOrder(
        passes, trace, [*accumulate(map(len, used)), len(trace)],
        {index: tuple(uses) for index, uses in places.items()},
        own, Distances([subtrees[hook.module] for hook in entered_hooks], sizes) if leaves else own,
        {index: hook.module for hook in forward if hook.tensors for index in hook.tensors},
        [hook for hook in backward if hook.enters and hook.module not in left], bool(parametrized),
        recomputed_tensors(backward, frozen),
    )  # fmt: skip


def _with_parametrized(hook: ModuleHook, parametrized: Mapping[int, tuple[int, ...]]) -> ModuleHook:
    if hook.backward or hook.module not in parametrized:
        return hook
    return hook._replace(tensors=(*hook.tensors, *parametrized[hook.module]))
