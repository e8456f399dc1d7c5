"""The shipped presets: one JSON file each, found by file name, alias or repository in any usual spelling."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from zeroplan.catalog.spelling import bare, without_size, without_tuning
from zeroplan.errors import ContradictionError, UnknownNameError, shown

_PACKAGE = Path(__file__).resolve().parent.parent
# A wheel carries them inside the package; in a checkout (and an editable install) they stand beside it.
PRESETS = next(
    (folder for folder in (_PACKAGE / "presets", _PACKAGE.parent / "presets") if folder.is_dir()),
    _PACKAGE / "presets",
)
RECORDED = "recorded model"
KINDS = {"model": "models", RECORDED: "recordings", "GPU": "gpus", "cluster": "clusters"}


@cache
def names(kind: str) -> tuple[str, ...]:
    """File names of one kind, sorted."""
    return tuple(sorted(path.stem for path in (PRESETS / KINDS[kind]).glob("*.json")))


def load(kind: str, name: str, suggestion: str = "") -> tuple[str, dict[str, Any]]:
    """The preset of that name, alias or repository, in any usual spelling.

    Raises `UnknownNameError`, and `ContradictionError` for a name that is one of several.
    """
    wanted = name.strip().lower()
    if wanted in names(kind):
        return wanted, _parsed(kind, wanted)
    matches = _matching(kind, wanted) if wanted else {}
    if len(matches) > 1:
        raise ContradictionError(f"{kind} {shown(name)} is one of several; write {' or '.join(sorted(matches))}")
    if not matches:
        raise UnknownNameError(kind, name, names(kind), suggestion)
    (preset, spelling), = matches.items()  # fmt: skip
    return preset, _as_in(_parsed(kind, preset), spelling)


def load_model(name: str, suggestion: str = "") -> tuple[str, dict[str, Any]]:
    """The model preset of that name, described or recorded; no name is of both. Raises as `load` does."""
    for kind in ("model", RECORDED):
        try:
            return load(kind, name)
        except UnknownNameError:
            continue
    raise UnknownNameError("model", name, (*names("model"), *names(RECORDED)), suggestion)


def recording_of(name: str) -> Path:
    """The file of a recorded model's preset."""
    return PRESETS / KINDS[RECORDED] / f"{name}.trace.json.gz"


def usual_of(kind: str, name: str) -> tuple[str, ...]:
    """The other presets that a short name may mean as well, such as the A100 of 40 GB for `A100`."""
    wanted = bare(kind, name)
    _preset, content = load(kind, name)
    others = ((bare(kind, short), others) for short, others in content.get("usual_of", {}).items())
    return next((tuple(names) for short, names in others if short == wanted), ())


def having(kind: str, **fields: Any) -> list[str]:
    """Names of the presets that state all these fields."""
    return [name for name in names(kind) if fields.items() <= _parsed(kind, name).items()]


def _matching(kind: str, wanted: str) -> dict[str, str]:
    """Presets of that name, each with the spelling by which it was found: exact first, then less what says nothing."""
    spelled = _spelled(kind)
    if matches := spelled.get(bare(kind, wanted)):
        return matches
    if kind in ("model", RECORDED) and "/" not in wanted:
        return spelled.get(bare(kind, without_tuning(wanted)), {})
    sized = without_size(bare(kind, wanted)) if kind == "GPU" else None
    if sized is None:
        return {}
    card, size = sized
    return {name: spelling for name, spelling in spelled.get(card, {}).items()
            if _parsed(kind, name)["memory_class"] == size}  # fmt: skip


@cache
def _spelled(kind: str) -> dict[str, dict[str, str]]:
    """By bare spelling, the presets that it names; a repository goes by its own name too, without its publisher's."""
    presets: dict[str, dict[str, str]] = {}
    for name in names(kind):
        content = _parsed(kind, name)
        for spelling in (name, *content.get("aliases", ()), *content.get("repositories", ())):
            for each in {spelling, spelling.rpartition("/")[2]}:
                presets.setdefault(bare(kind, each), {}).setdefault(name, spelling)
    return presets


def _as_in(content: dict[str, Any], spelling: str) -> dict[str, Any]:
    """A preset as one of its repositories has it: same sizes, and what differs."""
    differs = content.get("repositories", {}).get(spelling)
    return {**content, "config": {**content["config"], **differs}} if differs else content


@cache
def _parsed(kind: str, name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((PRESETS / KINDS[kind] / f"{name}.json").read_text(encoding="utf-8"))
    return content
