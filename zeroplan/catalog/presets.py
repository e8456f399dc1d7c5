"""The shipped presets: one YAML file each, found by file name or alias, parsed only when asked for."""

from __future__ import annotations

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
    return tuple(sorted(path.stem for path in (PRESETS / KINDS[kind]).glob("*.yaml")))


def load(kind: str, name: str, way_out: str = "") -> tuple[str, dict[str, Any]]:
    """The preset of that name or alias (case does not matter). Raises `UnknownNameError`."""
    wanted = name.strip().lower()
    if wanted in names(kind):
        return wanted, _parsed(kind, wanted)
    for candidate in names(kind):
        if wanted and wanted in _text(kind, candidate).lower():
            content = _parsed(kind, candidate)
            if wanted in (str(alias).lower() for alias in content.get("aliases", ())):
                return candidate, content
    raise UnknownNameError(kind, name, names(kind), way_out)


def having(kind: str, *entries: str) -> list[str]:
    """Names of the presets whose text holds all these lines: a search without parsing them."""
    return [
        name for name in names(kind)
        if all(f"\n{entry}\n" in f"\n{_text(kind, name)}\n" or f"\n{entry} " in _text(kind, name) for entry in entries)
    ]  # fmt: skip


def _text(kind: str, name: str) -> str:
    return (PRESETS / KINDS[kind] / f"{name}.yaml").read_text(encoding="utf-8")


def _parsed(kind: str, name: str) -> dict[str, Any]:
    import yaml  # 20 ms, and not every run needs a preset

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    content = yaml.load(_text(kind, name), Loader=loader)  # noqa: S506  (it is the safe loader)
    assert isinstance(content, dict), name
    return content
