"""A sequence that is made when something in it is first asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


class OnDemand(Sequence[T]):
    """What `make` gives, called once at most; equal to any sequence of the same items."""

    __slots__ = ("_made", "_make")

    def __init__(self, make: Callable[[], Sequence[T]]) -> None:
        self._make = make
        self._made: Sequence[T] | None = None

    @property
    def made(self) -> Sequence[T]:
        if self._made is None:
            self._made = self._make()
        return self._made

    def __getitem__(self, at: Any) -> Any:
        return self.made[at]

    def __len__(self) -> int:
        return len(self.made)

    def __iter__(self) -> Iterator[T]:
        return iter(self.made)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))
