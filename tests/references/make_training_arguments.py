"""Make tests/references/training_arguments_by_release.json: the fields of TrainingArguments and the names of its optimizers and
schedules, of the first and the last patch of each minor release of transformers from 4.36 to 5.24.

    python -m tests.references.make_training_arguments SOURCES

SOURCES holds, in a folder for each release (5.24.0), its training_args.py and trainer_utils.py. They are parsed, not run. Each
release stands with what it has more and less than the one before.
"""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path

PLACES = {
    "fields": ("training_args.py", "TrainingArguments"),
    "optimizers": ("training_args.py", "OptimizerNames"),
    "schedules": ("trainer_utils.py", "SchedulerType"),
}
FILE = Path(__file__).parent / "training_arguments_by_release.json"


def number(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def stated(path: Path, name: str) -> set[str]:
    """The fields of a dataclass, or the values of an enumeration."""
    body = next(node.body for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef) and node.name == name)
    fields = {node.target.id for node in body if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}
    return fields or {node.value.value for node in body if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)}


def by_release(path: Path = FILE) -> dict[str, dict[str, set[str]]]:
    """What each release has."""
    before: dict[str, set[str]] = {what: set() for what in PLACES}
    every = {}
    for release, changes in json.loads(path.read_text()).items():
        before = {what: before[what] - set(changes.get(f"-{what}", ())) | set(changes.get(f"+{what}", ())) for what in PLACES}
        every[release] = before
    return every


def main(sources: Path) -> None:
    changes: dict[str, dict[str, list[str]]] = {}
    before: dict[str, set[str]] = {what: set() for what in PLACES}
    for folder in sorted((one for one in sources.iterdir() if one.is_dir()), key=lambda one: number(one.name)):
        now = {what: stated(folder / file, name) for what, (file, name) in PLACES.items()}
        more = {f"+{what}": sorted(now[what] - before[what]) for what in PLACES}
        less = {f"-{what}": sorted(before[what] - now[what]) for what in PLACES}
        changes[folder.name] = {what: names for what, names in (more | less).items() if names}
        before = now
    FILE.write_text(json.dumps(changes, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
