"""A command as typed in a folder, on a screen of so many columns, run in this process: what a process of its own prints,
without what it takes to start one, and with what other tests have counted.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from typing import NamedTuple
from unittest import mock

from zeroplan.__main__ import main


class Typed(NamedTuple):
    code: int
    out: str
    err: str


def typed(words: list[str], folder: Path, columns: int, answers: str = "", *, together: bool = False) -> Typed:
    """Standard output and standard error are no terminals; `together`: both as they come, as output."""
    given, out, err = (io.TextIOWrapper(io.BytesIO(content), encoding="utf-8", write_through=True)
                       for content in (answers.encode(), b"", b""))  # fmt: skip
    with (
        contextlib.chdir(folder), mock.patch.dict(os.environ, COLUMNS=str(columns), NO_COLOR="1"),
        mock.patch.object(sys, "argv", ["zeroplan", *words]), mock.patch.object(sys, "stdin", given),
        contextlib.redirect_stdout(out), contextlib.redirect_stderr(out if together else err),
    ):  # fmt: skip
        try:
            main()
            code = None
        except SystemExit as ended:
            code = ended.code
    return Typed(int(code or 0), *(stream.buffer.getvalue().decode() for stream in (out, err)))
