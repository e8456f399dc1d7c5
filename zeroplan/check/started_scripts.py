"""Other scripts that a shell script starts, with what they are handed on: arguments and exported variables."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from zeroplan.check.shell import inner_commands
from zeroplan.check.shell_script import SCRIPTS, SHELLS, Command
from zeroplan.check.shell_variables import SEPARATOR, UNKNOWN, Word

STARTERS = (
    *SHELLS, "srun", "sbatch", "qsub", "nohup", "env", "timeout", "ssh", "mpirun", "mpiexec", "ds_ssh",
    "pdsh", "sudo", "singularity", "apptainer", "docker",
)  # fmt: skip
"""Commands that start a script which is one of their words."""
MOST = 20
"""Scripts that one starts."""


class StartedScript(NamedTuple):
    """A script that another starts."""

    name: str
    """As the command names it."""
    start: int
    """Where the command stands."""
    folder: str
    """Where it is started, seen from where the script is that starts it."""
    handed: Mapping[str, str]
    """Its arguments, by their numbers, and the variables that it has; `UNKNOWN` for a part that no line sets."""


def started_scripts(commands: Iterable[Command]) -> Iterator[StartedScript]:
    """Those that commands of a script start."""
    run = (command for command in commands if not command.is_left_out)
    several = (one for command in run for one in (command, *inner_commands(command, ())))
    yield from islice(filter(None, map(_started, several)), MOST)


def _started(command: Command) -> StartedScript | None:
    first = (command.words[0].text or "").rpartition("/")[2]
    words = command.words if first in STARTERS else command.words[:1]
    at = next((at for at, word in enumerate(words) if word.pieces.endswith(SCRIPTS)), None)
    if at is None:
        return None
    name = words[at].pieces.rpartition(UNKNOWN)[2].lstrip("/") if words[at].text is None else words[at].text or ""
    handed = {**command.exported, **_arguments(command.words[at + 1 :])}
    return StartedScript(posixpath.normpath(name), words[at].start, command.folder, handed)


def _arguments(words: Sequence[Word]) -> dict[str, str]:
    numbered = {str(number): word.pieces for number, word in enumerate(words, 1)}
    every = SEPARATOR.join(numbered.values())
    return {**numbered, "#": str(len(words)), **({"@": every, "*": every} if words else {})}
