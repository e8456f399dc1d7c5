"""The shipped presets: one JSON file each, found by file name or alias."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from zeroplan.errors import UnknownNameError

_PACKAGE = Path(__file__).resolve().parent.parent
# A wheel carries them inside the package; in a checkout (and an editable install) they stand beside it.
PRESETS = next(
    (folder for folder in (_PACKAGE / "presets", _PACKAGE.parent / "presets") if folder.is_dir()),
    _PACKAGE / "presets",
)
KINDS = {"model": "models", "GPU": "gpus", "cluster": "clusters"}


@cache
def names(kind: str) -> tuple[str, ...]:
    """File names of one kind, sorted."""
    return tuple(sorted(path.stem for path in (PRESETS / KINDS[kind]).glob("*.json")))


def load(kind: str, name: str, way_out: str = "") -> tuple[str, dict[str, Any]]:
    """The preset of that name or alias (case does not matter). Raises `UnknownNameError`."""
    wanted = name.strip().lower()
    if wanted in names(kind):
        return wanted, _parsed(kind, wanted)
    for candidate in names(kind) if wanted else ():
        content = _parsed(kind, candidate)
        if wanted in (str(alias).lower() for alias in content.get("aliases", ())):
            return candidate, content
    raise UnknownNameError(kind, name, names(kind), way_out)


def having(kind: str, **fields: Any) -> list[str]:
    """Names of the presets that state all these fields."""
    return [name for name in names(kind) if fields.items() <= _parsed(kind, name).items()]


@cache
def _parsed(kind: str, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((PRESETS / KINDS[kind] / f"{name}.json").read_text(encoding="utf-8"))
    return content
