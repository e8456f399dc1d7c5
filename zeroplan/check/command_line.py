"""The parts of a command that starts something: the launcher, its own options, the script, what that is given."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import dropwhile, islice
from typing import NamedTuple

from zeroplan.catalog.trainers.tools import LLAMA_FACTORY, SWIFT, TRL
from zeroplan.check.launch_options import options_of
from zeroplan.check.launcher_parsers import Parsed, parsed
from zeroplan.check.shell_alternatives import STARTS
from zeroplan.check.shell_script import Command
from zeroplan.check.shell_variables import Word

LAUNCHERS = (*STARTS, "accelerate-launch", "srun", "mpirun", "python", "python3")
PYTHON = re.compile(r"python3\.\d+")
FLAGS = ("-u", "-B", "-O", "-OO", "-s", "-E", "-I")
"""Options of Python's own in front of a module."""
MODULES = {
    "torch.distributed.run": "torchrun", "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate", "deepspeed.launcher.runner": "deepspeed",
}  # fmt: skip
TOOLS = {"swift": SWIFT, "trl": TRL, "llamafactory-cli": LLAMA_FACTORY}
"""Commands that take the Trainer's arguments with defaults of their own."""


class CommandLine(NamedTuple):
    """The parts of a command that starts something."""

    at: int
    """Which of its words is the launcher."""
    launcher: str
    parsed: Parsed
    """The launcher's own options, as its parser has them."""
    own: dict[str, Word]
    """Those options by name, as they stand on the line where the parser refuses it, or cannot tell where they end."""
    script: Word | None
    script_words: list[Word]
    """What follows the script, or what srun or mpirun starts."""

    @property
    def command(self) -> str:
        """The word behind a tool."""
        return (self.script_words[0].text or "") if self.launcher in TOOLS and self.script_words else ""

    @classmethod
    def of(cls, command: Command) -> CommandLine | None:
        words = command.words
        at = _first_launcher(words)
        if at == len(words):
            return None
        launcher, rest = (words[at].text or "").rpartition("/")[2], words[at + 1 :]
        if launcher in ("srun", "mpirun"):
            own = dict(options_of(rest[: _first_launcher(rest)]))
            return cls(at, launcher, Parsed({}), own, None, rest)
        launcher, rest = _by_another_name(launcher, rest)
        if not launcher:
            return None
        parts = parsed(launcher, rest)
        script = _script(rest) if parts.script is None else parts.script
        stated, behind = (rest, rest) if script is None else (rest[:script], rest[script + 1 :])
        where, own = None if script is None else rest[script], dict(options_of(stated))
        if parts.is_whole:
            own = {f"--{name}": Word(value, 0, 0) for name, value in parts.options.items()}
        return cls(at, launcher, parts, own, where, behind)


def _by_another_name(launcher: str, rest: list[Word]) -> tuple[str, list[Word]]:
    """The launcher, and what follows it, of `python -m` and a module, and of `accelerate launch`; "" for its others."""
    if launcher.startswith("python"):
        rest = list(dropwhile(lambda word: word.text in FLAGS, rest))
    if launcher.startswith("python") and [word.text for word in rest[:1]] == ["-m"] and rest[1:]:
        module = MODULES.get(rest[1].text or "")
        return (launcher, rest) if module is None else (module, rest[2:])
    if launcher == "accelerate-launch":
        return "accelerate", rest
    if launcher == "accelerate":
        return (launcher if rest and rest[0].text == "launch" else ""), rest[1:]
    return launcher, rest


def _first_launcher(words: Sequence[Word]) -> int:
    """Where what srun or mpirun starts begins."""
    named = ((at, (word.text or "").rpartition("/")[2]) for at, word in enumerate(words))
    return next((at for at, name in named if name in LAUNCHERS or PYTHON.fullmatch(name)), len(words))


def _script(words: Sequence[Word]) -> int | None:
    """Where the training script, or the module that is run as one, stands behind a launcher's own options."""
    scripts = (at for at, word in enumerate(words) if (word.text or "").endswith(".py"))
    modules = (at + 1 for at, word in enumerate(words) if word.text in ("-m", "--module"))
    return min((*islice(scripts, 1), *islice(modules, 1)), default=None)
