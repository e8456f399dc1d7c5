"""The shipped presets: one JSON file each, found by file name or alias."""

from __future__ import annotations

import json
import re
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
    """The preset of that name or alias, in any usual spelling. Raises `UnknownNameError`."""
    wanted = name.strip().lower()
    if wanted in names(kind):
        return wanted, _parsed(kind, wanted)
    for candidate in names(kind) if wanted else ():
        content = _parsed(kind, candidate)
        if bare(wanted) in map(bare, (candidate, *content.get("aliases", ()))):
            return candidate, content
    raise UnknownNameError(kind, name, names(kind), way_out)


def bare(name: str) -> str:
    """A name without what people leave out or write otherwise: "NVIDIA RTX 4080" is "rtx-4080"."""
    return re.sub(r"[\s_-]+", "", name.lower()).removeprefix("nvidia")


def having(kind: str, **fields: Any) -> list[str]:
    """Names of the presets that state all these fields."""
    return [name for name in names(kind) if fields.items() <= _parsed(kind, name).items()]


@cache
def _parsed(kind: str, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((PRESETS / KINDS[kind] / f"{name}.json").read_text(encoding="utf-8"))
    return content
