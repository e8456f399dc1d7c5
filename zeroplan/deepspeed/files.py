"""Writing files whole or not at all, and never over the user's unless asked."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from zeroplan.errors import SpecError, shown

USUAL = "ds_config.json"


def write_whole(path: str, text: str | bytes, *, force: bool) -> None:
    """Write `text` to `path` ('-' is standard output). Raises `SpecError` when something is there and not `force`."""
    if path == "-":
        if isinstance(text, bytes):
            sys.stdout.buffer.write(text)
        else:
            sys.stdout.write(text)
        return
    write_all({path: text}, force=force)


def _as_output(path: str) -> str:
    return f"-o {shown(path)}"


def check_output(path: str, *, force: bool, usual: str = USUAL) -> None:
    """Before a text for `-o path` is made. Raises `SpecError`. `usual`: what such a file is called."""
    _check(path, _as_output(path), force=force, usual=usual)


def write_all(texts: Mapping[str, str | bytes], *, force: bool, named: Callable[[str], str] = _as_output) -> None:
    """Write each text to its path, all of them or none. Raises `SpecError` when something is there and not `force`.

    `named` is how errors call a path. Each text goes to a new file beside its target. When all are there they take
    their places, each in one step: by a link, which fails when the name is taken, or with `force` by a rename that
    keeps a symbolic link and the file's permissions. Where one fails, those before it are undone.
    """
    for path in texts:
        _check(path, named(path), force=force)
    staged: list[Staged] = []
    try:
        for path, text in texts.items():
            with _told(named(path)):
                staged.append(Staged(Path(os.path.realpath(path) if force else path), text))
        _place([(named(path), file) for path, file in zip(texts, staged, strict=True)], force=force)
    finally:
        for file in staged:
            file.forget()


def write_folder(folder: str, texts: dict[str, str], *, force: bool) -> None:
    """The texts by name in a folder, which is made where it is missing; nothing of it stays when one fails."""
    place = f"--dir {shown(folder)}"
    if not folder.strip():
        raise SpecError(place, "no folder name", "a folder to write into", "--dir plan")
    if os.path.lexists(folder) and not os.path.isdir(folder):
        raise SpecError(place, "a file", "a folder, or a new name", "--dir plan")
    made = [path for path in (Path(folder), *Path(folder).parents) if not os.path.lexists(path)]
    try:
        with _told(place):
            Path(folder).mkdir(parents=True, exist_ok=True)
        texts = {str(Path(folder) / name): text for name, text in texts.items()}
        write_all(texts, force=force, named=lambda path: f"{place}: {Path(path).name}")
    except BaseException:
        _remove(made)
        raise


class Staged:
    """A text, or the bytes of a picture, in a file beside its target."""

    def __init__(self, target: Path, text: str | bytes) -> None:
        self.target = target
        handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        self.temporary, self.before = Path(temporary), Path(f"{temporary}.before")
        try:
            written = text if isinstance(text, bytes) else text.encode()
            with os.fdopen(handle, "wb") as stream:
                stream.write(written)
            executable = 0o111 if written.startswith(b"#!") else 0
            mode = target.stat().st_mode & 0o777 if target.exists() else (0o666 | executable) & ~_umask()
            self.temporary.chmod(mode)
        except BaseException:
            self.forget()
            raise

    def place(self, *, force: bool) -> None:
        if not force:
            os.link(self.temporary, self.target)
            return
        if self.target.exists():
            shutil.copy2(self.target, self.before)
        self.temporary.replace(self.target)

    def undo(self) -> None:
        if self.before.exists():
            self.before.replace(self.target)
        else:
            self.target.unlink(missing_ok=True)

    def forget(self) -> None:
        self.temporary.unlink(missing_ok=True)
        self.before.unlink(missing_ok=True)


@contextmanager
def _told(place: str) -> Iterator[None]:
    """What goes wrong with a path, as an error of one line."""
    try:
        yield
    except FileExistsError as error:
        raise SpecError(place, "something already there", "a new name", "--force to replace it") from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SpecError(place, reason.lower(), "a file that can be written") from error


def _place(files: list[tuple[str, Staged]], *, force: bool) -> None:
    """Each with the words that an error names it by."""
    done: list[Staged] = []
    try:
        for place, file in files:
            with _told(place):
                file.place(force=force)
            done.append(file)
    except BaseException:
        for file in done:
            file.undo()
        raise


def _check(path: str, place: str, *, force: bool, usual: str = USUAL) -> None:
    if not path.strip() or path.endswith("/"):
        raise SpecError(place, "no file name", "a file to write", f"-o {usual}")
    with _told(place):
        if os.path.isdir(path):
            raise SpecError(place, "a folder", "a file name", f"-o {path}/{usual}")
        if not os.path.exists(folder := os.path.dirname(path) or "."):
            raise SpecError(place, f"no folder {shown(folder)}", "one that is there", "another, or make it first")
        if os.path.lexists(path) and not force:
            raise SpecError(place, "something already there", "a new name", "--force to replace it")
        if os.path.exists(path) and not os.path.isfile(path):
            raise SpecError(place, "something that is not a regular file", "a file that may be replaced")


def _remove(folders: list[Path]) -> None:
    """Those that were made on the way and are empty."""
    for folder in folders:
        try:
            folder.rmdir()
        except OSError:
            return


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
