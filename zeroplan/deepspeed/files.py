"""Writing a file whole or not at all, and never over the user's unless asked."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

from zeroplan.errors import SpecError, shown


def write_whole(path: str, text: str, *, force: bool) -> None:
    """Write `text` to `path` ('-' is standard output). Raises `SpecError` when something is there and not `force`.

    The text goes to a new file beside the target, which then takes its place in one step: by a link, which fails
    when the name is taken, or with `force` by a rename that keeps a symbolic link and the file's permissions.
    """
    if path == "-":
        sys.stdout.write(text)
        return
    place = f"-o {shown(path)}"
    if not path.strip() or path.endswith("/"):
        raise SpecError(place, "no file name", "a file to write", "-o ds_config.json")
    try:
        if os.path.isdir(path):
            raise SpecError(place, "a folder", "a file name", f"-o {path}/ds_config.json")
        if os.path.lexists(path) and not force:
            raise SpecError(place, "something already there", "a new name", "--force to replace it")
        if os.path.exists(path) and not os.path.isfile(path):
            raise SpecError(place, "something that is not a regular file", "a file that may be replaced")
        _place(Path(os.path.realpath(path) if force else path), text, force=force)
    except FileExistsError as error:
        raise SpecError(place, "something already there", "a new name", "--force to replace it") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError(place, reason.lower(), "a file that can be written") from error


def _place(target: Path, text: str, *, force: bool) -> None:
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(temporary).chmod(target.stat().st_mode & 0o777 if target.exists() else 0o666 & ~_umask())
        if force:
            Path(temporary).replace(target)
        else:
            os.link(temporary, target)
    finally:
        Path(temporary).unlink(missing_ok=True)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
