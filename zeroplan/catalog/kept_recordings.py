"""Recordings of models that are not described, made where torch and transformers are, and kept in the user's cache."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from typing import TYPE_CHECKING, Any

from zeroplan.errors import SpecError
from zeroplan.progress import tell
from zeroplan.specs.input_sizes import UNSTATED, InputSizes

if TYPE_CHECKING:
    from zeroplan.specs.model import Model

PACKAGES = ("torch", "transformers")
PATIENCE = 1800
"""Seconds after which a recording is given up."""
BEGINS = "zeroplan: "
"""A command's error."""


def kept_in() -> Path:
    """The folder."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(home, "zeroplan", "recordings")


def installed() -> tuple[str, ...] | None:
    """Versions of torch and transformers, or None where one is missing."""
    try:
        return tuple([version(package) for package in PACKAGES])
    except PackageNotFoundError:
        return None


def recorded(content: Mapping[str, Any], name: str, place: str, sizes: InputSizes = UNSTATED) -> Model | str:
    """The model that config.json means, as it was recorded; or why it is not. `place`: the file."""
    versions = installed()
    if versions is None:
        return f"{' and '.join(PACKAGES)} are not installed"
    from zeroplan.catalog.recording import SCHEMA, model_from_file

    text = json.dumps(content, sort_keys=True)
    key = hashlib.sha256(json.dumps([text, name, versions, SCHEMA, sizes.recorded[:2]]).encode()).hexdigest()[:24]
    path = kept_in() / f"{key}.trace.json"
    if path.exists():
        try:
            return model_from_file(path, source=place, name=name)
        except SpecError:
            path.unlink(missing_ok=True)
    tell(f"recording {name} with transformers {versions[1]}")
    return _made(text, name, path, sizes) or model_from_file(path, source=place, name=name)


def _made(config: str, name: str, path: Path, sizes: InputSizes) -> str:
    """Record it to a file; what went wrong, or nothing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(prefix="zeroplan-") as folder:
            given = Path(folder, f"{name.rpartition('/')[2]}.json")
            given.write_text(config)
            command = [sys.executable, "-W", "ignore", "-m", "zeroplan", "trace", str(given), "-o", str(path)]
            command += ["-v", "--force", *sizes.options.split()]
            status, lines = _run(command, name)
    except OSError as error:
        return " ".join(str(error).split())
    if status == 0 and path.exists():
        return ""
    last = lines[-1] if lines else f"exit status {status}"
    if status < 0:
        return f"recording it was ended by signal {-status}, at {last}"
    return last.removeprefix(BEGINS).partition(": ")[2] or last


def _run(command: list[str], name: str) -> tuple[int, list[str]]:
    """Its exit status, and the lines that it says, each of which is told as it comes."""
    lines: list[str] = []
    with subprocess.Popen(  # noqa: S603 (our own command, no shell)
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as child:
        assert child.stderr is not None
        ended = Timer(PATIENCE, child.kill)
        ended.start()
        try:
            for line in child.stderr:
                if line.strip():
                    lines.append(line.strip())
                    tell(f"recording {name}: {lines[-1]}")
            return child.wait(), lines
        except KeyboardInterrupt:
            child.kill()
            raise
        finally:
            ended.cancel()
