"""Entry point: one-line errors, exit code 2 for bad input."""

from __future__ import annotations

import _signal as signal  # type: ignore[import-not-found]  # `signal` takes 3 ms, in which ctrl-C shows a traceback
import atexit
import gc
import os
import sys


def _stopped(*_signal: object) -> None:
    """Ctrl-C while modules are loaded; `zeroplan.interrupt` takes over from it."""
    os.write(2, b"zeroplan: interrupted\n")
    os._exit(130)


if __name__ == "__main__" and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    signal.signal(signal.SIGINT, _stopped)

FEW_COLLECTIONS = 3_000_000
"""Objects between garbage collections: a command ends before its garbage matters, and start-up makes few cycles."""

MOST_DIGITS = 4
"""Most digits of a width in columns."""


def main() -> None:
    """Run the command line; whatever a user can mend becomes one line on standard error."""
    gc.set_threshold(FEW_COLLECTIONS)
    _usable_environment()
    import click

    from zeroplan.cli.app import BAD_INPUT, app
    from zeroplan.errors import ZeroplanError

    _usable_streams()
    try:
        code = app(sys.argv[1] if sys.argv[1:] else "")(standalone_mode=False)
        sys.stdout.flush()
    except ZeroplanError as error:
        code = _fail(str(error), BAD_INPUT)
    except click.exceptions.Abort:
        code = _fail("interrupted", 130)
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


def run() -> None:
    """`main` in a process of its own, which ends with it: taking apart all that is alive is a fifteenth of a command.

    Not where something is to be done at the end, or somebody watches (coverage, a profiler, a debugger).
    """
    from contextlib import suppress

    from zeroplan import interrupt

    interrupt.install(_stopped)
    if sys.warnoptions:  # -W error and its like are about the user's own code, not about what this command imports
        import warnings

        warnings.simplefilter("ignore")
    try:
        main()
    except SystemExit as ended:
        if atexit._ncallbacks() or _watched():
            raise
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError):
                stream.flush()
        os._exit(ended.code if isinstance(ended.code, int) else 1)


def _watched() -> bool:
    """By a debugger, a profiler or coverage, in any of the ways that Python has for them."""
    tools = getattr(sys, "monitoring", None)  # since 3.12
    monitored = tools is not None and any(tools.get_tool(number) for number in range(6))
    return bool(monitored or sys.gettrace() or sys.getprofile() or sys.flags.interactive)


def _usable_environment() -> None:
    """Without widths that are no numbers, which rich and typer read: int() takes no "²", which is a digit to str."""
    for name in ("COLUMNS", "LINES", "TERMINAL_WIDTH"):
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
