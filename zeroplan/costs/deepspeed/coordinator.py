"""Replay of stage 3's parameter coordinator: which gathers it issues, and what is gathered at each moment.

It follows runtime/zero/partitioned_param_coordinator.py of DeepSpeed 0.19.8 event by event: fetch what a module
misses, take its tensors off the fetch queue, prefetch from the queue's head, release on leaving. Decisions to release
are remembered from the first time they are taken (lru_cache), as there. Sizes are elements.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from zeroplan.costs.deepspeed.access_order import AccessOrder, Distances
from zeroplan.costs.deepspeed.decisions import Decisions
from zeroplan.costs.deepspeed.events import EventLog, GatheredMemory, MicroStep
from zeroplan.costs.deepspeed.gathered_storages import NOTHING, GatheredStorages
from zeroplan.costs.deepspeed.layer_skipping import LayerSkipper
from zeroplan.costs.deepspeed.thresholds import ReplayThresholds, Settings, Threshold, ThresholdRange
from zeroplan.specs.execution import ModuleHook

NEVER = -10_000_000_000


class Coordinator(GatheredStorages):
    """The state that one rank's coordinator keeps, some of it across micro-steps."""

    def __init__(self, sizes: Sequence[int], settings: Settings, access: AccessOrder) -> None:
        super().__init__(sizes, settings)
        self.hooks, self.trace, self.own, self.full = access.passes.hooks, access.trace, access.own, access.full
        self.last_user, self.never_left = access.last_user, access.never_left
        self.decisions = Decisions()
        self.bucket = Threshold(settings.prefetch_bucket_size)
        self.live = Threshold(settings.max_live_parameters)
        self.reach = Threshold(settings.max_reuse_distance)
        self.records = False  # the trace alone: nothing is prefetched, nothing kept for reuse
        self.repeats = LayerSkipper(self, access.passes.intervals if not settings.swapped else ())
        self._start()

    def _start(self) -> None:
        """What begins again with each micro-step (reset_step)."""
        self.begin()
        self.queue = deque(() if self.records else self.trace)
        self.recent: dict[int, int] = {}
        self.inside: dict[int, set[int]] = {}
        """Tensor -> modules that use it now; a module that recomputes enters twice and leaves once."""
        self.step = 0

    def gather_persistent(self) -> None:
        """After the optimizer's step: everything partitioned, then each persistent tensor gathered by itself."""
        for index in self.available:
            self.swapper.release(index)
        self.available, self.storage, self.buffers, self.gathered = set(self.persistent), {}, [], 0
        self.views, self.secondary, self.copied, self.most, self.waiting = set(), set(), 0, 0, NOTHING
        self.swapper.fetch(sorted(self.persistent))

    def micro_step(self, *, records: bool = False) -> MicroStep:
        """One forward and backward: gathers as they are issued, and what is held after each hook."""
        self.records = records
        self._start()
        self.repeats.begin()
        logs = EventLog[GatheredMemory](), EventLog[GatheredMemory]()
        for pass_index, (hooks, log) in enumerate(zip(self.hooks, logs, strict=True)):
            at = 0
            for number, interval in enumerate(self.repeats.intervals):
                if interval.pass_index == pass_index and interval.end > at:
                    self._replay(pass_index, at, hooks[at : interval.end], log)
                    at = self.repeats.intervals[number + self.repeats.skip(number, log)].end
            self._replay(pass_index, at, hooks[at:], log)
        self._finish()
        return MicroStep(self.gathers.blocks(), logs[0].blocks(), logs[1].blocks(), tuple(self.swapper.read))

    def _replay(self, pass_index: int, start: int, hooks: Sequence[ModuleHook], log: EventLog[GatheredMemory]) -> None:
        """Hooks one by one, from that number of the pass on."""
        before = -1
        for at, hook in enumerate(hooks, start):
            ready, tensors = self.gathered, hook.tensors
            if self.records and not tensors:
                continue
            if hook.enters:
                self.place = pass_index, at
                if tensors:  # half of the modules have none
                    self._fetch(hook)
                if self.queue:
                    self._look_ahead()
                self.step += 1
            elif tensors:
                if hook.backward and self.kept:
                    ready = self.let_go(hook)
                self._exit(hook, bool(pass_index))
            now = self.gathered + self.copied
            besides = self.most if self.most > now else now
            waiting, fewest = self.waiting
            most = waiting if waiting > besides else besides
            if tensors or most != before:
                less = most - (fewest if fewest > besides else besides) if most > besides else 0
                log.open.append(GatheredMemory(self.gathered, self.copied, most, ready, hook, at, less))
                before = now
            self.most, self.waiting = 0, NOTHING

    def _fetch(self, hook: ModuleHook) -> None:
        """Gather what is missing, wait for it, and take the module's tensors off the queue (fetch_sub_module)."""
        tensors = set(hook.tensors)
        missing = tensors - self.available - self.flying
        if missing:
            self.gather(missing)
        waited = tensors & self.flying
        if waited:
            self.consume(waited)
        pending, recent, queue = 0, self.recent, self.queue
        taken: set[int] = set()
        for index in tensors:
            self.inside.setdefault(index, set()).add(hook.module)
            pending += recent.get(index, NEVER) < self.step
        while queue and len(taken) < pending:
            index, used = queue.popleft()
            recent[index] = used
            taken.add(index)

    def _exit(self, hook: ModuleHook, backward: bool) -> None:
        """Release what no other module uses and nothing asks for soon (release_sub_module)."""
        inside, available = self.inside, self.available
        for index in hook.tensors:
            inside[index].discard(hook.module)
        for index in self._to_release(hook):
            if index in available and not inside.get(index):
                self.live_parameters -= self.sizes[index]
                if not hook.backward and self._is_kept(index, hook.module, recomputes=backward):
                    self.keep(index)
                self.drop(index)

    def _look_ahead(self) -> None:
        """Prefetch what comes next."""
        if not self.bucket.exceeds(0):
            return
        if self.live.exceeds(self.live_parameters) and (ahead := self._ahead()):
            self.gather(ahead)
        if self.swaps:
            flying = sum(self.sizes[index] for index in self.flying)
            self.swapper.fetch_ahead((index for index, _used in self.queue), self.sizes, flying)

    def _ahead(self) -> set[int]:
        """From the head of the queue while there is room under the bucket and the live limit; the last may exceed.

        It stops at a tensor whose partition is on NVMe.
        """
        queue, recent, swaps, count = self.queue, self.recent, self.swaps, self.live_parameters
        room = min(self.live.value - count, self.bucket.value)
        chosen: set[int] = set()
        elements = under = 0
        while queue and elements < room:
            under = elements
            index, used = queue[0]
            if swaps and self.swapper.absent(index):
                break
            queue.popleft()
            recent[index] = max(recent.get(index, NEVER), used)
            if index not in self.available and index not in self.flying and index not in chosen:
                chosen.add(index)
                elements += self.sizes[index]
        self.live.exceeds(count + under)
        self.bucket.exceeds(under)
        if elements >= room and self.live.exceeds(count + elements):
            self.bucket.exceeds(elements)
        return chosen

    def _to_release(self, hook: ModuleHook) -> frozenset[int]:
        """Not the persistent, not what a prefetch marked for later, not what comes again within the distance."""
        if self.records:
            return frozenset(hook.tensors)
        mark = (hook.module, self.step)
        if (known := self.decisions.get(mark)) is not None:
            return known
        distances, found = self.distances(hook), []
        for index in hook.tensors:
            if index in self.persistent or self.recent.get(index, NEVER) > self.step:
                continue
            if not self.is_near(distances.to_next_use(index, self.step)):
                found.append(index)
        released = frozenset(found)
        self.decisions.take(mark, released)
        return released

    def is_near(self, distance: int | None) -> bool:
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

    def distances(self, hook: ModuleHook) -> Distances:
        """What a release looks at."""
        return self.full if hook.module in self.settings.leaves else self.own

    def _is_kept(self, index: int, module: int, *, recomputes: bool) -> bool:
        """Whether autograd still holds a tensor's storage when forward releases it.

        Forward saves parameters as such, which follow their release, but views of them do not; what checkpointing
        saves as it recomputes is detached from the parameters, and never follows, unless it is reentrant. Of a tied
        tensor the head saves a view; the embedding, which runs first, looks its rows up and saves nothing of it.
        """
        if self.last_user[index] != module:
            return False
        if recomputes:
            return not self.settings.reentrant or index in self.settings.viewed
        return index in self.settings.viewed and index not in self.settings.checkpointed

    def _finish(self) -> None:
        """End of backward: modules whose exit never fired are released; before the next forward, what flies is."""
        for hook in self.never_left:
            for index in set(hook.tensors) - self.persistent:
                self.drop(index)
        for index in self.flying:
            self.drop(index)
        self.gathered -= sum(self.kept.values()) + sum(elements for _members, elements in self.buffers)
        self.kept, self.buffers = {}, [(m, elements) for m, elements in self.buffers if m & self.available]
        self.gathered += sum(elements for _members, elements in self.buffers)
