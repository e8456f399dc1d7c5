"""The memory that one run allocates: bytes now, their maximum, and the parameters it differentiates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

from zeroplan.autograd.log import EVENT, FORWARD, Log

ENTER, LEAVE, RAN, READY = "enter", "leave", "ran", "ready"


class AllocationEvent(NamedTuple):
    """The end of an interval of a step."""

    kind: str
    """A module enters or leaves forward, one of its nodes' backward has run, or a parameter's gradient is ready."""
    identity: int
    """The module or parameter, by identity."""
    layer: int
    max_allocated: int
    allocated: int


class Shaped(Protocol):
    """A parameter or buffer of a module."""

    @property
    def shape(self) -> tuple[int, ...]: ...


class SavedTensorHooks(Protocol):
    """What stands between the graph and the tensors it saves (torch.autograd.graph.saved_tensors_hooks)."""

    @property
    def runs_again(self) -> bool:
        """Whether a tensor is packed as itself."""

    def pack(self, tensor: Any) -> Any: ...

    def unpack(self, packed: Any) -> Any: ...

    def product(self, compute: Callable[[], tuple[Any, ...]]) -> tuple[Any, ...]:
        """The results of a product: made, or as they were kept."""


class Memory:
    """Bytes allocated now and at most, without parameters and inputs."""

    __slots__ = (
        "allocated",
        "autocast",
        "cast_cache",
        "checkpoint",
        "events",
        "flops",
        "forgotten",
        "frozen",
        "grad_enabled",
        "layer",
        "log",
        "made",
        "max_allocated",
        "parameters",
        "phase",
        "scope",
        "sequence",
        "until_loss",
        "wide",
        "width",
        "zero_linear",
    )  # fmt: skip

    def __init__(self, width: int) -> None:
        self.width = width
        """Bytes of an element of the parameters."""
        self.allocated = self.max_allocated = self.made = 0
        self.log: Log = []
        """What happened to storages, which are numbered as they are made."""
        self.grad_enabled = True
        """Whether operators build the graph."""
        self.sequence = 0
        """The number of the latest node: backward takes the latest first."""
        self.checkpoint: SavedTensorHooks | None = None
        """Inside a checkpointed layer its frame."""
        self.until_loss: list[Any] = []
        """What lives as long as the loss does."""
        self.parameters: dict[Shaped, Any] = {}
        """The tensor that stands for each, by identity."""
        self.frozen: frozenset[int] = frozenset()
        """Those that do not train, by identity."""
        self.wide: frozenset[int] = frozenset()
        """Those in fp32 whatever the others are in, by identity."""
        self.autocast = 0
        """Bytes of an element of what torch.autocast computes in; 0: it is off."""
        self.cast_cache: dict[int, Any] = {}
        """Parameters in that dtype, while it is on."""
        self.forgotten: list[int] = []
        """Numbers of the storages of those that were there when it was last left."""
        self.zero_linear = False
        """Linear layers run as DeepSpeed's own function (stage 3)."""
        self.scope = 0
        """The module that runs, by identity."""
        self.layer = 0
        """Number of the layer that it lies in; 0 outside of all."""
        self.phase = FORWARD
        self.flops: Counter[tuple[str, int, bool]] = Counter()
        """FLOPs of products by phase, layer, and whether a causal kernel may leave out half of the pairs of tokens."""
        self.events: list[AllocationEvent] | None = None
        """What is allocated and freed in order; None where nobody records it."""

    def add_flops(self, multiplications: int, *, causal: bool = False) -> None:
        """A product of so many multiplications, each with its addition, runs now."""
        self.flops[self.phase, self.layer, causal] += 2 * multiplications

    def record_event(self, kind: str, of: int, given: int = 0) -> None:
        """Record an event: the most allocated since the last one, and what is now, less what is given away."""
        if self.events is not None:
            self.events.append(AllocationEvent(kind, of, self.layer, self.max_allocated, self.allocated - given))
            self.log.append((EVENT, given, self.layer))
            self.max_allocated = self.allocated - given

    @contextmanager
    def no_grad(self) -> Iterator[None]:
        """Operators build no graph meanwhile (torch.no_grad)."""
        before, self.grad_enabled = self.grad_enabled, False
        try:
            yield
        finally:
            self.grad_enabled = before

    @contextmanager
    def running_again(self) -> Iterator[None]:
        """What runs again meanwhile has a list of its own of what waits for the loss."""
        outer, self.until_loss = self.until_loss, []
        try:
            yield
        finally:
            self.until_loss = outer

    def reset_peak(self) -> None:
        """Forget the peak: a phase begins (torch.cuda.reset_peak_memory_stats)."""
        self.max_allocated = self.allocated
