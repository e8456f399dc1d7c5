"""The examples of README.md, docs/*.md and docs/how-to/*.md: what each command prints now. `python -m tests.readme_blocks` rewrites them.

A block begins with ```console; each line of it that begins with `$ ` is a command, and what follows is its output. A
command is `zeroplan ...`; `| head -N` behind it shows its first lines, `; echo $?` its exit code on a last line. `printf
'...' | ` before `zeroplan ask` answers it, alone in its block. The commands of one block run in one folder, in turn; tests/
and docs/ can be read from there, and what they write is dropped. Commands of README.md are processes of their own, as a
user starts them; those of docs/ run in this one.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.typed import Typed, typed

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
FILES = (README, *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs" / "how-to").glob("*.md")))
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.DOTALL | re.MULTILINE)
STEP = re.compile(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", re.MULTILINE)
ASKED = re.compile(r"\$ (.* \| zeroplan ask)\n((?:.*\n)*)")
"""Its screen has a line that looks like a command."""
PIPED = re.compile(r"printf '([^']*)' \| (?=zeroplan ask)")
COMMAND = re.compile(rf"((?:{PIPED.pattern})?zeroplan .*?)(?: \| head -(\d+))?(; echo \$\?)?")
COLUMNS = 100


class Command(NamedTuple):
    bare: str
    """Without `| head` and `echo`."""
    head: int | None
    code: bool
    """Whether the exit code is shown."""


class Ran(NamedTuple):
    lines: tuple[str, ...]
    code: int


def command(written: str) -> Command:
    found = COMMAND.fullmatch(written)
    assert found, f"{written}: expected zeroplan ..., and perhaps | head -N or ; echo $?"
    return Command(found[1], int(found[3]) if found[3] else None, bool(found[4]))


@cache
def session(bare: tuple[str, ...]) -> tuple[Ran, ...]:
    """What commands print at 100 columns, trailing spaces aside, in a folder of their own, one after the other."""
    run = started if bare in of_readme() else typed
    ran = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for linked in ("tests", "docs"):
            (folder / linked).symlink_to(ROOT / linked)
        for words in bare:
            piped = PIPED.match(words)
            answers = piped[1].replace(r"\n", "\n") if piped else ""
            _zeroplan, *options = shlex.split(PIPED.sub("", words))
            done = run(options, folder, COLUMNS, answers, together=True)
            ran.append(Ran(tuple(line.rstrip() for line in done.out.splitlines()), done.code))
    return tuple(ran)


@cache
def of_readme() -> set[tuple[str, ...]]:
    """The commands of each of its blocks."""
    return {tuple(command(one).bare for one, _shown in block) for file, block in blocks() if file == README}


def started(words: list[str], folder: Path, columns: int, answers: str, *, together: bool) -> Typed:
    """As `typed`, in a process of its own."""
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "COLUMNS": str(columns), "NO_COLOR": "1", "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "zeroplan", *words], input=answers, stdout=subprocess.PIPE, text=True, env=environment,
        stderr=subprocess.STDOUT if together else subprocess.PIPE, cwd=folder, check=False,
    )  # fmt: skip
    return Typed(done.returncode, done.stdout, done.stderr or "")


def outputs(written: tuple[str, ...]) -> tuple[str, ...]:
    """What a block shows below each of its commands."""
    asked = [command(one) for one in written]
    return tuple(
        "".join(f"{line}\n" for line in (*ran.lines[: one.head], *([str(ran.code)] if one.code else [])))
        for one, ran in zip(asked, session(tuple(one.bare for one in asked)), strict=True)
    )


def steps(block: str) -> list[tuple[str, str]]:
    """Each command of a block with the output that it shows."""
    asked = ASKED.fullmatch(block)
    found = [(asked[1], asked[2])] if asked else STEP.findall(block)
    assert "".join(f"$ {one}\n{shown}" for one, shown in found) == block, f"no command: {block[:60]}"
    return found


def blocks() -> Iterator[tuple[Path, list[tuple[str, str]]]]:
    """The blocks of all files, each with its commands and their output."""
    for file in FILES:
        for block in BLOCK.findall(file.read_text(encoding="utf-8")):
            yield file, steps(block)


def rewritten(text: str) -> str:
    def now(found: re.Match[str]) -> str:
        written = tuple(one for one, _shown in steps(found[1]))
        shown = "".join(f"$ {one}\n{out}" for one, out in zip(written, outputs(written), strict=True))
        return f"```console\n{shown}```"

    return BLOCK.sub(now, text)


if __name__ == "__main__":
    for file in FILES:
        file.write_text(rewritten(file.read_text(encoding="utf-8")), encoding="utf-8")
