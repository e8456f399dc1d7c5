"""The memory that one run allocates: live bytes, their maximum, and the parameters it differentiates."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from zeroplan.autograd.checkpoint import Frame
    from zeroplan.autograd.tensor import Tensor


class Shaped(Protocol):
    """A parameter or buffer of a module."""

    @property
    def shape(self) -> tuple[int, ...]: ...


class Memory:
    """Live bytes now and at most, without parameters and inputs."""

    __slots__ = ("checkpoint", "hears", "live", "most", "parameters", "ready", "records", "scope", "sequence", "width")

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
        self.ready: Callable[[int, int], None] | None = None
        """Hears of a parameter's gradient: whose it is, by identity, and its bytes."""
        self.hears: Callable[[int], None] | None = None
        """Hears of every storage that is made."""
        self.scope = ""
        """Path of the module that runs."""

    def parameter(self, of: Shaped) -> Tensor:
        """The tensor that stands for a module's parameter."""
        found = self.parameters.get(of)
        if found is None:
            from zeroplan.autograd.graph import leaf

            found = self.parameters[of] = leaf(self, of)
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
