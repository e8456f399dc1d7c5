"""`zeroplan check --fix` and `--diff`: mended texts, written or shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import click

from zeroplan.check.finding import Finding
from zeroplan.deepspeed.files import write_all
from zeroplan.errors import printable

BLANKS = "\t\N{NO-BREAK SPACE}\N{ZERO WIDTH JOINER}\N{ZERO WIDTH NO-BREAK SPACE}"
MARK = "\N{ZERO WIDTH NO-BREAK SPACE}"
"""How a file begins that says it is UTF-8: it is read without, and written with it."""


class Changed(NamedTuple):
    """A file that was looked at."""

    path: str
    before: str
    after: str
    done: Sequence[Finding]
    left: Sequence[Finding]
    beside: Mapping[str, str] = {}
    """Texts of the files that it names, which findings may be in."""
    notes: Sequence[str] = ()
    """What it was taken for, where that is not plain."""


def write(files: Iterable[Changed]) -> None:
    """All that were changed, whole and together, or none."""
    changed = {file.path: _mark(file.path) + file.after for file in files if file.after != file.before}
    write_all(changed, force=True, named=lambda path: path)


def show(files: Sequence[Changed]) -> bool:
    """What would change, as a unified diff on standard output, how much on standard error; whether anything would."""
    for file in files:
        click.echo(_diff(file), nl=False)
    tell(files, "would mend")
    return any(file.after != file.before for file in files)


def tell(files: Sequence[Changed], word: str = "mended") -> None:
    """How much was mended and how much is left, on standard error: machines read the other."""
    done, left = sum(len(file.done) for file in files), sum(len(file.left) for file in files)
    count = sum(file.after != file.before for file in files)
    click.echo(f"{word} {done} of {done + left} findings in {count} file{'s' if count != 1 else ''}", err=True)


def _diff(file: Changed) -> str:
    import difflib
    from io import StringIO

    before, after = (list(StringIO(text)) for text in (file.before, file.after))
    name = printable(file.path)
    lines = difflib.unified_diff(before, after, name, name)
    return "".join(map(_shown, lines))


def _shown(line: str) -> str:
    """A line of the difference; of what is no plain text only blanks stay as they are, so that it can be applied."""
    text = line.removesuffix("\n").removesuffix("\r")
    end = line[len(text) :]
    return printable(text, keeps=BLANKS) + (end if end.endswith("\n") else f"{end}\n\\ No newline at end of file\n")


def _mark(path: str) -> str:
    with open(path, "rb") as stream:
        return MARK if stream.read(3) == MARK.encode() else ""
