"""Entry point: one-line errors, exit code 2 for bad input."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType

INTERRUPTED = 130
SOON = 0.001
"""Seconds."""
MOST_DIGITS = 4
"""Most digits of a width in columns."""


def main() -> None:
    """Run the command line; whatever a user can mend becomes one line on standard error."""
    _usable_environment()
    import click

    from zeroplan.cli.app import BAD_INPUT, app
    from zeroplan.errors import ZeroplanError

    _usable_streams()
    try:
        code = app.main(prog_name="zeroplan", standalone_mode=False)
        sys.stdout.flush()
    except ZeroplanError as error:
        code = _fail(str(error), BAD_INPUT)
    except click.exceptions.Abort:
        code = INTERRUPTED
    except click.ClickException as error:
        from zeroplan.cli.not_options import refusal

        code = _fail(refusal(error), BAD_INPUT)
    except BrokenPipeError:  # the reader has enough
        sys.stdout = open(os.devnull, "w", encoding="utf-8")
        code = 0
    except OSError as error:
        code = _fail(f"standard output: {(error.strerror or str(error)).lower()}", BAD_INPUT)
        sys.stdout = open(os.devnull, "w", encoding="utf-8")
    sys.exit(code or 0)


def interrupt(_signal: int, frame: FrameType | None) -> None:
    """End with exit code 130; a moment later where a `__del__` is running, of which Python drops what is raised."""
    while frame and hasattr(signal, "setitimer"):
        if frame.f_code.co_name == "__del__":
            signal.signal(signal.SIGALRM, interrupt)
            signal.setitimer(signal.ITIMER_REAL, SOON)
            return
        frame = frame.f_back
    sys.exit(INTERRUPTED)


def run() -> None:
    """`main` as a command: ctrl-C ends it with one line and exit code 130, behind all that cleans up."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # who started it may have it ignored
        signal.signal(signal.SIGINT, interrupt)
    if sys.warnoptions:  # -W error and its like are about the user's own code, not about what this command imports
        import warnings

        warnings.simplefilter("ignore")
    try:
        main()
    except SystemExit as ended:
        if ended.code == INTERRUPTED:
            _fail("interrupted", INTERRUPTED)
        raise


def _usable_environment() -> None:
    """Without widths that are no numbers, which rich and click read: int() takes no "²", which is a digit to str."""
    for name in ("COLUMNS", "LINES"):
        text = os.environ.get(name, "")
        if text and not (text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS):
            del os.environ[name]


def _usable_streams() -> None:
    """A closed stream swallows, and a terminal without Greek letters shows a replacement."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _fail(message: str, code: int) -> int:
    from zeroplan.errors import printable

    sys.stderr.write(f"zeroplan: {printable(message)}\n")
    return code


if __name__ == "__main__":
    run()
