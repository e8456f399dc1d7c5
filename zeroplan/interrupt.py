"""What ctrl-C does to a command: one line and exit code 130, at any moment, and no file that is half written.

Python's own way, an exception, shows a traceback while modules are loaded, and is lost where it arises in a callback of
the import system's or of the garbage collector's.
"""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # what `signal` itself imports takes 3 ms, in which ctrl-C would show a traceback
import os
import sys

CODE = 130
LINE = b"zeroplan: interrupted\n"
CLEARED = b"\r\x1b[2K\x1b[?25h"
"""Erases the line that the cursor is in, and shows the cursor."""

_drawing = False


def install(before: object = None) -> None:
    """From now on ctrl-C ends the process, unless whoever started it has it ignored. `before`: what did so till now."""
    if signal.getsignal(signal.SIGINT) in (signal.default_int_handler, before):
        signal.signal(signal.SIGINT, _end)


def drawing(on: bool) -> None:
    """Whether a line of progress is on the terminal."""
    global _drawing  # noqa: PLW0603
    _drawing = on


class Whole:
    """A stretch of code that ctrl-C ends after, not in; one that waits for nothing."""

    def __enter__(self) -> None:
        self.came, self.before = False, signal.getsignal(signal.SIGINT)
        try:
            if self.before is not None:  # None: of another language than Python
                signal.signal(signal.SIGINT, self._note)
        except ValueError:  # in a thread, which ctrl-C does not disturb
            self.before = None

    def __exit__(self, *_error: object) -> None:
        if self.before is not None:
            signal.signal(signal.SIGINT, self.before)
        if self.came:
            signal.raise_signal(signal.SIGINT)

    def _note(self, *_signal: object) -> None:
        self.came = True


class Unwound:
    """A stretch that cleans up behind itself: ctrl-C raises in it, where elsewhere it ends the process."""

    def __enter__(self) -> None:
        self.installed = signal.getsignal(signal.SIGINT) is _end
        if self.installed:
            signal.signal(signal.SIGINT, _raise)

    def __exit__(self, *_error: object) -> None:
        if self.installed:
            signal.signal(signal.SIGINT, _end)


def _say() -> None:
    try:
        os.write(2, CLEARED + LINE if _drawing else LINE)
    except OSError:
        return


def _end(*_signal: object) -> None:
    _say()
    os._exit(CODE)


def _raise(*_signal: object) -> None:
    """A second time it ends the process: cleaning up may wait for something."""
    _say()
    signal.signal(signal.SIGINT, lambda *_again: os._exit(CODE))
    sys.exit(CODE)
