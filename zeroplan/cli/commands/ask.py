"""`zeroplan ask`, which has no options."""

from __future__ import annotations

from zeroplan.cli.command import command


@command()
def ask() -> int:
    """Five questions, each with a usual answer in brackets; then the zeroplan recommend that they make, and its answer.

    A line of standard input is an answer too, an empty one the usual one.
    """
    from zeroplan.cli.ask import run

    return run()
