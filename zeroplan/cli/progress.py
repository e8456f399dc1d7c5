"""What a command is at, on standard error, for one that lasts: only where a terminal shows it, and erased at the end.

Nothing is imported or drawn in the first second, so a quick command is as quick as without.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from zeroplan.errors import printable
from zeroplan.progress import WATCHERS, part, tell

if TYPE_CHECKING:
    from zeroplan.report.progress import Drawn

__all__ = ["part", "tell", "watched"]
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

    def begin(self, name: str, number: int, of: int) -> None:
        self.part, self.detail = printable(f"{name} ({number} of {of})"), ""
        self.say()

    def tell(self, detail: str) -> None:
        self.detail = printable(detail)
        self.say()

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


@contextmanager
def watched(command: str) -> Iterator[None]:
    """Show what goes on inside, where standard error is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    watch = Watch(command)
    WATCHERS.append(watch)
    try:
        yield
    finally:
        WATCHERS.remove(watch)
        watch.end()
