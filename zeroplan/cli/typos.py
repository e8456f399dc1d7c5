"""What an option that no command has, or a command that there is not, was meant to be."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher, get_close_matches

import click

from zeroplan.cli.aliases import ALIASES, SWITCHES
from zeroplan.cli.app import COMMANDS
from zeroplan.cli.command import Command
from zeroplan.cli.options import EVERYTHING
from zeroplan.errors import LONGEST_NAME, printable
from zeroplan.request.options import OPTIONS
from zeroplan.request.values import flag

ALIKE = 0.7
"""From 0 to 1, as difflib has it; --modle is 0.8 of --model, and 0.44 of --nvme."""
NEAR = 0.05
"""How much less alike than the best another may be, and still be named."""
MOST = 2


def unknown_option(error: click.NoSuchOption) -> str:
    """One line: what was typed, and the options that it is like."""
    typed, command = printable(error.option_name), error.ctx.command if error.ctx else None
    if not isinstance(command, Command):
        if error.option_name in map(flag, OPTIONS):
            return f"{typed}: found before any command, expected behind one; write zeroplan estimate {typed} ..."
        return f"{typed}: no option of zeroplan itself; zeroplan -h shows the commands"
    known = command.known_options()
    switches = (word for word, switch in SWITCHES.items() if switch.option in known)
    others = [f"--{word}" for option, words in ALIASES.items() if option in known for word in words]
    meant = alike(error.option_name, [*known, *others, *(f"--{word}" for word in switches)])
    write = f"write {' or '.join(meant)}, or see " if meant else "see "
    return f"{typed}: no option of zeroplan {command.name}; {write}zeroplan {command.name} {EVERYTHING}"


def unknown_command(word: str) -> str:
    """What was typed, and the commands that it is like."""
    meant = ", ".join(map(repr, get_close_matches(word, COMMANDS)))
    return f"No such command '{word}'.{f' Did you mean {meant}?' if meant else ''}"


def alike(typed: str, known: Iterable[str]) -> list[str]:
    """The known options that a typed one is most like; those that it begins are like it."""
    word = typed[:LONGEST_NAME].lstrip("-").replace("_", "-").lower()
    ratios = {name: _ratio(word, name.lstrip("-")) for name in known}
    best = max(ratios.values(), default=0.0)
    names = [name for name, ratio in ratios.items() if ratio >= ALIKE and ratio >= best - NEAR]
    return sorted(names, key=lambda name: -ratios[name])[:MOST]


def _ratio(word: str, name: str) -> float:
    ratio = SequenceMatcher(None, word, name).ratio()
    return max(ratio, ALIKE) if len(word) > 2 and name.startswith(word) else ratio
