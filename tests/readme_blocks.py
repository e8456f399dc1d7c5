"""The README's examples: what each command prints now. `python -m tests.readme_blocks` rewrites them.

A block begins with ```console and `$ zeroplan ...`; `| head -N` after the command shows its first lines.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"
BLOCK = re.compile(r"```console\n\$ (zeroplan[^\n]*)\n(.*?)```", re.DOTALL)
COLUMNS = "100"


def output(command: str) -> str:
    """What a command prints at 100 columns, trailing spaces aside. `| head -N` is understood."""
    words, _, head = command.partition(" | head -")
    environment = {**os.environ, "COLUMNS": COLUMNS, "NO_COLOR": "1"}
    run = [sys.executable, "-m", *shlex.split(words)]
    ran = subprocess.run(run, capture_output=True, text=True, env=environment, cwd=README.parent, check=False)
    lines = [line.rstrip() for line in (ran.stdout + ran.stderr).splitlines()]
    return "\n".join(lines[: int(head)] if head else lines) + "\n"


def blocks() -> list[tuple[str, str]]:
    """Each command with the output that the README shows."""
    return BLOCK.findall(README.read_text(encoding="utf-8"))


def rewritten(text: str) -> str:
    return BLOCK.sub(lambda found: f"```console\n$ {found[1]}\n{output(found[1])}```", text)


if __name__ == "__main__":
    README.write_text(rewritten(README.read_text(encoding="utf-8")), encoding="utf-8")
