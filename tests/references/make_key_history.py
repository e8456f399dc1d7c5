"""Make zeroplan/deepspeed/keys/history.json of released DeepSpeeds.

    python -m tests.references.make_key_history ask SDISTS ANSWERS    ask each version, ten seconds each
    python -m tests.references.make_key_history join ANSWERS          write what they said

SDISTS holds unpacked sdists, deepspeed-VERSION each (a release's tar.gz, of which the folder deepspeed/ is enough), ANSWERS a
file for each version. torch has to be installed, DeepSpeed need not be. Beside the history writes
tests/references/check/versions.json: which values of which keys each version refuses, of configs with one key.
"""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.check.versions import VALUES, one_key, pairs, paths
from zeroplan.deepspeed.keys import KEYS, STRICT_SECTIONS
from zeroplan.deepspeed.keys.key import Key
from zeroplan.deepspeed.keys.removed import REMOVED_KEYS
from zeroplan.deepspeed.values import stops

HERE = Path(__file__).parent
HISTORY = HERE.parent.parent / "zeroplan" / "deepspeed" / "keys" / "history.json"
PROGRAM = HERE / "deepspeed_at.py"
SURVIVORS = ("any", "object", "null", "array", "string", "number", "integer", "boolean", "empty", "full", "bit", "numeric", "whole", "auto", "blank")
"""Words of `Key.survives`, from the widest."""
PAIRS = 600
"""Drawn configs of two keys and three."""
FORMER = {
    "aio.thread_count": "aio.intra_op_parallelism",
    "seq_parallel_comm_data_type": "seq_parallel_communication_data_type",
}
"""Keys under their names of before."""
FIRST = dict.fromkeys(("sequence_parallel_size", "data_parallel_size"), "0.15.0")
"""Keys that are read elsewhere than in the reader (__init__.py:initialize), and since when."""
VALIDATORS = {
    "fp16.loss_scale": {"0.18.8": {"minimum": None}},
    "fp16.loss_scale_window": {"0.19.3": {"plain": False}},
    "fp16.min_loss_scale": {"0.19.3": {"plain": False}},
    "zero_optimization.zenflow.update_interval": {"0.19.6": {"minimum": None}},
}
"""What functions of the models check, and which fields do not show: what a key has before a version."""


def run(folder: Path, what: str, given: str = "") -> str:
    done = subprocess.run([sys.executable, PROGRAM, folder, what], input=given, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{folder.name}: {done.stderr[-500:]}")
    return done.stdout


def survives(values: dict[int, Any], taken: set[int]) -> str | None:
    """The words of `Key.survives` for which exactly the values `taken` are; None where no words say it."""
    words, covered = [], set()
    for word in SURVIVORS:
        known = Key(path="x", kind="any", default=None, meaning="", place="", survives=word)
        here = {at for at, value in values.items() if not stops(known, value)}
        if here <= taken and not here <= covered:
            words.append(word)
            covered |= here
    return "|".join(words) if covered == taken else None


def made(facts: dict[str, Any], refused: dict[str, dict[str, set[int]]]) -> dict[str, Any]:
    """The history: what each version has that is not as in the newest."""
    versions = list(facts)
    newest, refused_now = facts[versions[-1]], refused[versions[-1]]
    history: dict[str, Any] = {"versions": versions, "strict": {}, "keeps_auto": {}, "removed": {}, "keys": {}}
    for section in sorted({section for each in facts.values() for section in each["models"]}):
        history["strict"][section] = spans(versions, {v: section in facts[v]["models"] for v in versions})
        history["keeps_auto"][section] = spans(versions, {v: section in facts[v]["keeps_auto"] for v in versions})
    for name in ("strict", "keeps_auto"):
        history[name] = {section: rows for section, rows in history[name].items() if len(rows) > 1}
    for path in newest["removed"]:
        history["removed"][path] = next(v for v in versions if path in facts[v]["removed"])
    for path in sorted({*KEYS, *REMOVED_KEYS, *FORMER, *(path for each in facts.values() for path in _in_models(each))}):
        rows = {v: _row(path, facts[v], newest, refused[v].get(path, set()), refused_now.get(path, set())) for v in versions}
        for version, row in rows.items():
            if row is not None:
                row.update(change for first, change in VALIDATORS.get(path, {}).items() if _before(version, first) for change in change.items())
        if any(row != {} for row in rows.values()):
            history["keys"][path] = spans(versions, rows)
    return history


def _before(version: str, first: str) -> bool:
    return [int(part) for part in version.split(".")] < [int(part) for part in first.split(".")]


def _in_models(facts: dict[str, Any]) -> set[str]:
    return {f"{section}.{name}" for section, fields in facts["models"].items() for name in fields}


def _row(path: str, facts: Any, newest: Any, refused: set[int], refused_now: set[int]) -> dict[str, Any] | None:
    """What is not as in `KEYS`; None where the version does not read the key. Of a key that is gone, what `Key` says."""
    section, _, name = path.rpartition(".")
    if path in facts["removed"] or _before(facts["version"], FIRST.get(path, "0")):
        return None
    if section in facts["models"]:
        field = facts["models"][section].get(name)
        if field is None or path in KEYS:
            now = newest["models"].get(section, {}).get(name, field)
            return None if field is None else {each: value for each, value in field.items() if value != now[each]}
        return {"default": field["default"], **{each: value for each, value in field.items() if value and each != "deprecated"}}
    if not _is_read(path, facts, newest):
        return None
    values = {at: value for at, value in enumerate(VALUES) if value != {"a": 1} or path not in newest["models"]}
    taken = set(values) - refused  # keys of sections have their own say
    if path in FORMER:
        known = KEYS[FORMER[path]]
        return {"kind": known.kind, "default": known.default, "choices": known.choices, "survives": known.survives}
    if path not in KEYS:
        return {"kind": "any", "survives": _words(path, values, taken)}
    row: dict[str, Any] = {}
    then, now = facts["by_hand"].get(path, []), newest["by_hand"].get(path, [KEYS[path].default])
    if then and KEYS[path].default in now and KEYS[path].default not in then:
        row = {"default": then[0]}
    if section in newest["models"] or refused != refused_now:
        row["survives"] = _words(path, values, taken)
    return row


def _words(path: str, values: dict[int, Any], taken: set[int]) -> str:
    words = survives(values, taken)
    if words is None:
        print(f"no words for what {path} takes: {[values[at] for at in sorted(taken)]}")
    return words or "object"  # as nothing else is taken


def _is_read(path: str, facts: Any, newest: Any) -> bool:
    """Whether a version reads a key by hand: keys that the newest asks for elsewhere than in its reader count where
    their section is read."""
    section = path.rpartition(".")[0]
    if path in facts["by_hand"] or path in REMOVED_KEYS:
        return True
    if path in newest["by_hand"] or path not in KEYS or section in newest["models"]:
        return False
    return not section or section not in newest["by_hand"] or section in facts["by_hand"]


def spans(versions: list[str], rows: dict[str, Any]) -> list[list[Any]]:
    """[first version, what holds] wherever it changes."""
    changes: list[list[Any]] = []
    for version in versions:
        if not changes or changes[-1][1] != rows[version]:
            changes.append([version, rows[version]])
    return changes


def ask(sdists: Path, answers: Path) -> None:
    singles = [one_key(path, value) for path in paths() for value in VALUES]
    lines = "".join(json.dumps(config) + "\n" for config in [*singles, *pairs(PAIRS)])
    answers.mkdir(exist_ok=True)

    def one(folder: Path) -> None:
        said = [bool(json.loads(line)) for line in run(folder, "says", lines).splitlines()]
        refused = {path: [at for at in range(len(VALUES)) if said[row * len(VALUES) + at]] for row, path in enumerate(paths())}
        content = {
            "facts": json.loads(run(folder, "facts")), "refused": refused,
            "pairs": [at for at, refuses in enumerate(said[len(singles) :]) if refuses],
        }  # fmt: skip
        (answers / f"{folder.name.removeprefix('deepspeed-')}.json").write_text(json.dumps(content), encoding="utf-8")

    with ThreadPoolExecutor(2) as several:
        list(several.map(one, filter(Path.is_dir, sdists.glob("deepspeed-*"))))


def join(answers: Path) -> None:
    files = {each.stem: json.loads(each.read_text(encoding="utf-8")) for each in answers.glob("*.json")}
    files = dict(sorted(files.items(), key=lambda item: [int(part) for part in item[0].split(".")]))
    facts = {version: {**content["facts"], "version": version} for version, content in files.items()}
    refused = {v: {path: set(several) for path, several in content["refused"].items()} for v, content in files.items()}
    write(HISTORY, made(facts, refused))
    changes = {path: spans(list(files), {v: sorted(refused[v].get(path, ())) for v in files}) for path in paths()}
    write(HERE / "check" / "versions.json", {
        "versions": list(files), "values": VALUES, "refused": changes,
        "drawn": PAIRS, "pairs": {version: content["pairs"] for version, content in files.items()},
    })  # fmt: skip


def write(path: Path, content: dict[str, Any]) -> None:
    """A line for each key of each part."""
    parts = [f'"{name}": ' + (json.dumps(part) if not isinstance(part, dict) else "{\n" + ",\n".join(
        f"  {json.dumps(each)}: {json.dumps(value)}" for each, value in part.items()) + "\n}") for name, part in content.items()]
    path.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    {"ask": ask, "join": join}[sys.argv[1]](*map(Path, sys.argv[2:]))
