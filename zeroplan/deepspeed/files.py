"""Writing a file whole or not at all, and never over the user's unless asked."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from zeroplan.errors import SpecError


def write_whole(path: str, text: str, *, force: bool) -> None:
    """Write `text` to `path` ('-' is standard output). Raises `SpecError` when the file is there and not `force`."""
    if path == "-":
        sys.stdout.write(text)
        return
    target = Path(path)
    try:
        if target.is_dir():
            raise SpecError(path, "a folder", "a file name", f"{path.rstrip('/')}/ds_config.json")
        if target.exists() and not force:
            raise SpecError(path, "a file that is already there", "a new name", "--force to replace it")
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(text)
            Path(temporary).chmod(0o644)
            Path(temporary).replace(target)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise SpecError(path, (error.strerror or str(error)).lower(), "a file that can be written") from error
