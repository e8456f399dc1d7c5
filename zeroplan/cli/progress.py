"""What a command is at, on standard error, for one that lasts: only where a terminal shows it, and erased at the end.

Nothing is imported or drawn in the first second, so a quick command is as quick as without.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from zeroplan.errors import printable

if TYPE_CHECKING:
    from zeroplan.report.progress import Drawn

DELAY = 1.0
"""Seconds before anything is drawn."""
IMPORTING = 1e-4
"""Seconds that the command's own thread works on while what draws is imported: after each file that this reads it waits
so long, and the usual 5 ms add up to a second.
"""


class Watch:
    """One command: what it is at, and the line that shows it once it has lasted."""

    def __init__(self, command: str) -> None:
        from threading import Lock, Timer

        self.command, self.part, self.detail = command, "", ""
        self.lock, self.ended = Lock(), False
        self.drawn: Drawn | None = None
        self.timer = Timer(DELAY, self.draw)
        self.timer.daemon = True
        self.timer.start()

    @property
    def text(self) -> str:
        return ", ".join(text for text in (self.command, self.part, self.detail) if text)

    def draw(self) -> None:
        usual = sys.getswitchinterval()
        sys.setswitchinterval(IMPORTING)
        from zeroplan.report.progress import Drawn

        sys.setswitchinterval(usual)
        with self.lock:
            if not self.ended:
                self.drawn = Drawn(self.text)

    def say(self) -> None:
        with self.lock:
            if self.drawn:
                self.drawn.say(self.text)

    def end(self) -> None:
        self.timer.cancel()
        with self.lock:
            self.ended = True
            if self.drawn:
                self.drawn.erase()


_watches: list[Watch] = []
"""The command that is watched, if any."""


@contextmanager
def watched(command: str) -> Iterator[None]:
    """Show what goes on inside, where standard error is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    watch = Watch(command)
    _watches.append(watch)
    try:
        yield
    finally:
        _watches.remove(watch)
        watch.end()


def part(name: str, number: int, of: int) -> None:
    """One of several parts begins: a card, a model, a row."""
    for watch in _watches:
        watch.part, watch.detail = printable(f"{name} ({number} of {of})"), ""
        watch.say()


def tell(detail: str) -> None:
    """What is tried now."""
    for watch in _watches:
        watch.detail = printable(detail)
        watch.say()
