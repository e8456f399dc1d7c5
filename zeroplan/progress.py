"""What is worked on, said while it lasts, for whoever watches: a terminal's line, or nobody."""

from __future__ import annotations

from typing import Protocol


class Watcher(Protocol):
    def begin(self, name: str, number: int, of: int) -> None:
        """One of several parts begins."""

    def tell(self, detail: str) -> None:
        """Something else is tried."""


WATCHERS: list[Watcher] = []


def part(name: str, number: int, of: int) -> None:
    """One of several parts begins: a card, a model, a row."""
    for watcher in WATCHERS:
        watcher.begin(name, number, of)


def tell(detail: str) -> None:
    """What is tried now."""
    for watcher in WATCHERS:
        watcher.tell(detail)
