"""Completion: the script that has a shell ask this command what may follow, and where the shell reads it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import click
from click.shell_completion import get_completion_class

from zeroplan.deepspeed.files import write_all
from zeroplan.errors import SpecError, UnknownNameError, shown

PROGRAM = "zeroplan"
VARIABLE = "_ZEROPLAN_COMPLETE"
"""Set by the script when it asks, as click has it."""


class ScriptPlace(NamedTuple):
    """Where a shell reads a completion script."""

    script: Path
    startup_file: Path | None = None
    """The file that an interactive shell reads when it starts; None: it looks for scripts by itself."""
    line: str = ""
    """What has to stand in it."""


def _of_bash(home: Path) -> ScriptPlace:
    script = home / ".bash_completions" / f"{PROGRAM}.sh"
    quoted = str(script).replace("'", "'\\''")
    return ScriptPlace(script, home / ".bashrc", f"source '{quoted}'")


def _of_zsh(home: Path) -> ScriptPlace:
    startup_file = Path(os.environ.get("ZDOTDIR") or home) / ".zshrc"
    line = "fpath+=~/.zfunc; autoload -Uz compinit; compinit"
    return ScriptPlace(home / ".zfunc" / f"_{PROGRAM}", startup_file, line)


def _of_fish(home: Path) -> ScriptPlace:
    settings = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config")
    return ScriptPlace(settings / "fish" / "completions" / f"{PROGRAM}.fish")


SHELLS: dict[str, Callable[[Path], ScriptPlace]] = {"bash": _of_bash, "zsh": _of_zsh, "fish": _of_fish}


def script(command: click.Command, typed: str) -> str:
    """The script for a shell; of an empty name, for that of the environment. Raises `ZeroplanError`."""
    shell_class = get_completion_class(_shell(typed, "--show-completion"))
    assert shell_class is not None
    return shell_class(command, {}, PROGRAM, VARIABLE).source().strip()


def install(command: click.Command, typed: str) -> str:
    """Write the script to where the shell reads it, and say where that is. Raises `ZeroplanError`."""
    shell = _shell(typed, "--install-completion")
    text = script(command, shell)
    try:
        place = SHELLS[shell](Path.home())
        if place.script.exists() and VARIABLE not in place.script.read_text(encoding="utf-8", errors="replace"):
            raise SpecError(str(place.script), "a file of something else", "none, or the completion of zeroplan")
        place.script.parent.mkdir(parents=True, exist_ok=True)
        write_all({str(place.script): f"{text}\n"}, force=True, named=shown)
        if place.startup_file:
            _append(place.startup_file, place.line)
    except OSError as error:
        found, write = (error.strerror or str(error)).lower(), f"zeroplan --show-completion {shell}"
        raise SpecError(str(error.filename or "--install-completion"), found, "a place to write to", write) from error
    read = click.style(f"{shell} completion installed in {place.script}", fg="green")
    return f"{read}\nCompletion will take effect once you restart the terminal"


def _shell(typed: str, option: str) -> str:
    known = f"{', '.join([*SHELLS][:-1])} or {[*SHELLS][-1]}"
    shell = typed or Path(os.environ.get("SHELL", "")).name
    if not shell:
        raise SpecError(option, "no shell in $SHELL", known, f"{option} bash")
    if shell not in SHELLS:
        raise UnknownNameError("shell", shell, SHELLS, f"write {option} {known}")
    return shell


def _append(path: Path, line: str) -> None:
    """A line at the end of a file, which stays as it is where it has that line."""
    before = path.read_bytes() if path.exists() else b""
    if line.encode() not in before:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(b"\n" * bool(before and not before.endswith(b"\n")) + line.encode() + b"\n")
