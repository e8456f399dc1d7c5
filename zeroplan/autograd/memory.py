"""The memory that one run allocates: live bytes, their maximum, and the parameters it differentiates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol
from weakref import WeakSet

if TYPE_CHECKING:
    from zeroplan.autograd.checkpoint import Frame
    from zeroplan.autograd.tensor import Tensor


FORWARD, BACKWARD, RECOMPUTING = "forward", "backward", "recomputing"
ENTER, LEAVE, RAN, READY = "enter", "leave", "ran", "ready"


class Beat(NamedTuple):
    """The end of a stretch of a step."""

    kind: str
    """A module enters or leaves forward, one of its nodes' backward has run, or a parameter's gradient is ready."""
    of: int
    """The module or parameter, by identity."""
    layer: int
    most: int
    now: int


class Watch:
    """Catches what is alive when a stretch of a pass holds this much, or at its end."""

    def __init__(self, phase: str, stretch: int, size: int) -> None:
        self.phase, self.stretch, self.size = phase, stretch, size
        self.caught: Counter[Alive] | None = None

    def at_most(self, memory: Memory) -> None:
        if self.caught is None and memory.live == self.size and self._is_here(memory, self.stretch):
            self.caught = memory.alive()

    def at_end(self, memory: Memory, given: int) -> None:
        if self.caught is None and memory.live - given == self.size and self._is_here(memory, self.stretch + 1):
            self.caught = memory.alive()
            self.caught[Alive("", BACKWARD, memory.layer)] -= given

    def _is_here(self, memory: Memory, beats: int) -> bool:
        forward = memory.phase == FORWARD
        return memory.beats is not None and len(memory.beats) == beats and forward == (self.phase == FORWARD)


class Alive(NamedTuple):
    """What storages are: kept by an operator for its backward or not, made in which phase and layer."""

    kept_by: str
    phase: str
    layer: int


class Shaped(Protocol):
    """A parameter or buffer of a module."""

    @property
    def shape(self) -> tuple[int, ...]: ...


class Memory:
    """Live bytes now and at most, without parameters and inputs."""

    __slots__ = (
        "beats", "checkpoint", "hears", "layer", "live", "living", "most", "parameters", "phase", "records", "scope",
        "sequence", "watch", "width", "zero_linear",
    )  # fmt: skip

    def __init__(self, width: int) -> None:
        self.width = width
        """Bytes of an element of the parameters."""
        self.live = self.most = 0
        self.records = True
        """Whether operators build the graph."""
        self.sequence = 0
        """Of nodes: backward takes the latest first."""
        self.checkpoint: Frame | None = None
        """Stands between the graph and the tensors it saves, inside a checkpointed layer."""
        self.parameters: dict[Shaped, Tensor] = {}
        """By identity."""
        self.hears: Callable[[int], None] | None = None
        """Hears of every storage that is made."""
        self.zero_linear = False
        """Linear layers run as DeepSpeed's own function (stage 3)."""
        self.scope = 0
        """The module that runs, by identity."""
        self.layer = 0
        """And the layer that it lies in; 0 outside of all."""
        self.phase = FORWARD
        self.beats: list[Beat] | None = None
        """What happens when, if anyone asks."""
        self.living: WeakSet[Any] | None = None
        """The storages, if anyone asks."""
        self.watch: Watch | None = None

    def parameter(self, of: Shaped) -> Tensor:
        """The tensor that stands for a module's parameter."""
        found = self.parameters.get(of)
        if found is None:
            from zeroplan.autograd.graph import leaf

            found = self.parameters[of] = leaf(self, of)
        return found

    def beat(self, kind: str, of: int, given: int = 0) -> None:
        """Something ends here: the most that was live since the last, and what is now, less what is given away."""
        if self.beats is not None:
            self.beats.append(Beat(kind, of, self.layer, self.most, self.live - given))
            if self.watch is not None:
                self.watch.at_end(self, given)
            self.most = self.live - given

    def alive(self) -> Counter[Alive]:
        """Live bytes by what they are."""
        found: Counter[Alive] = Counter()
        for storage in self.living or ():
            found[Alive(storage.kept_by, storage.phase, storage.layer)] += storage.bytes
        return found

    @contextmanager
    def no_grad(self) -> Iterator[None]:
        """Operators build no graph meanwhile (torch.no_grad)."""
        before, self.records = self.records, False
        try:
            yield
        finally:
            self.records = before

    def look_again(self) -> None:
        """Start to look for the largest moment of a phase."""
        self.most = self.live
