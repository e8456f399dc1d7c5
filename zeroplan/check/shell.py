"""Commands of a shell script, each word with its place: enough of bash for scripts that start a training run.

Variables that the script itself sets are put in; what else a shell would put in (an argument, the output of most
commands, the environment) leaves a word unknown, and so does a variable to which a condition or a loop gives another
value. Nothing runs, and of loops and conditions each command is seen once.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import MappingProxyType

from zeroplan.check.shell_alternatives import alternatives
from zeroplan.check.shell_script import SHELLS, Command, ShellScript
from zeroplan.check.shell_variables import Variables, Word

OF_A_TEXT = re.compile("-[a-z]*c")
"""The options behind which a shell is given a text to run."""
OF_TEXTS = ("ssh", "tmux", "screen", "pdsh", "eval")
"""Commands that run a text which is one of their words."""
CUT = re.compile(
    r"(?:[ \t]+\$\{?\w+\}?)*[ \t]*"
    r"(?:\\(?:[ \t]+\r?\n|\r?\n(?=[ \t]*(?:#|\r?\n)))(?:[ \t]*(?:#[^\n]*)?\r?\n)*[ \t]*(--?[A-Za-z]\S*|\S+\.py)"
    r"|(?:#[^\n]*)?\r?\n[ \t]*(--[A-Za-z]\S*))"
)
"""How what was meant for a command goes on behind its end, and behind variables that are empty."""


def commands(
    text: str, stated: Mapping[str, str] | None = None, watched: Collection[str] = (),
    read: Callable[[str], str | None] = lambda _name: None, handed: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Command]:  # fmt: skip
    """Each command that is no assignment, once for each config that it may name. `stated`: variables that are set
    before; `watched`: those whose values a command is to be given with; `read`: the text of a file whose variables
    `source` sets; `handed`: what the script that starts this one hands on.
    """
    variables = Variables({**(stated or {}), **handed})
    variables.exported |= dict.fromkeys(handed)
    for command in ShellScript(variables, text, watched, read).commands():
        yield from (command._replace(words=words) for words in alternatives(command.words) if words)


def inner_commands(command: Command, watched: Collection[str]) -> Iterator[Command]:
    """The commands of a text that another shell is given: srun bash -c "torchrun ...", each at its place."""
    here = [command.here] if command.here is not None and _reads_commands(command.words) else []
    for word in (*here, *_texts(command.words)):
        for one in commands(word.pieces, command.exported, watched):
            placed = [each._replace(start=word.start, end=word.end) for each in one.words]
            folder = posixpath.join(command.folder, one.folder)
            yield Command(placed, {**command.environment, **one.environment}, folder)


def _reads_commands(words: Sequence[Word]) -> bool:
    """Whether it runs what it reads."""
    named = [(word.text or "").rpartition("/")[2] for word in words]
    return any(name in (*SHELLS, "ssh", "sbatch") for name in named[:2])


def _texts(words: Sequence[Word]) -> Iterator[Word]:
    """What follows `bash -c`, and of `ssh`, `tmux` and the like each word that has several in it."""
    named = [(word.text or "").rpartition("/")[2] for word in words]
    if any(name in OF_TEXTS for name in named[:2]):
        yield from (word for word in words if " " in word.pieces)
        return
    for name, option, word in zip(named, words[1:], words[2:], strict=False):
        if name in SHELLS and OF_A_TEXT.fullmatch(option.text or "") and word.pieces:
            yield word


def cut_off(text: str, command: Command) -> str:
    """The option that was meant for a command, and stands behind a blank, a comment or an empty line that ends it; ""
    where none does.
    """
    last = command.words[-1]
    match = CUT.match(text, last.start if (last.text or "").isspace() else last.end)
    return match[1] or match[2] if match else ""
