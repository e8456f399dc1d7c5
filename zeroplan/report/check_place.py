"""How reports for other programs name a file."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import quote

from zeroplan.catalog.files import STANDARD_INPUT


def relative(path: str) -> str:
    """From the current folder, with slashes; in a workflow of GitHub's from the repository's, where a step may stand
    below it. As it is where there is no such way (another drive).
    """
    try:
        return Path(os.path.relpath(path, _root())).as_posix()
    except ValueError:
        return Path(path).as_posix()


def _root() -> Path:
    workspace = os.environ.get("GITHUB_WORKSPACE")
    inside = workspace and Path.cwd().is_relative_to(Path(workspace).resolve())
    return Path(workspace).resolve() if workspace and inside else Path.cwd()


def uri(path: str) -> str:
    """A relative reference: letters that an address cannot hold are escaped."""
    return quote("stdin" if path == STANDARD_INPUT else relative(path), safe="/", errors="surrogateescape")
