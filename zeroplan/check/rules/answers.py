"""When a finding has one right answer, and the edits that write it: what `zeroplan check --fix` does, and does not.

Where DeepSpeed 0.19.8 refuses the file, it is mended where one text alone can have been meant: a misspelt key that is
near one key of its section, a key in the wrong section where another one reads it, a number or word in another
spelling, a key that was removed and was off, a deprecated key beside its equal. What only the author can know
stays: which of two values counts, another optimizer, a stage, a size, what to do about "auto" or without a feature that
was removed, and an unknown key that is near none.

Where DeepSpeed takes the file, what it does stays as it is: deprecated keys get their new name, texts become the
switches that pydantic takes them for, commas and quotes become JSON's. One thing may change: a key that DeepSpeed
ignores comes to life where its name is a slip of the pen away from one that it reads (a letter wrong, missing, too
many or swapped, one in eight), its former name, or exactly one that another section of this file reads, and its value
is one that this key takes. That is what was typed, and nobody types a slip to turn a setting off. A key that is merely
idle at this stage stays, and so does one whose section the file does not have.

A mended text is read again (`zeroplan.check.mended`): where the finding does not go, or another error comes, the text
stays as it was.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from zeroplan.check.edit import Edits, Path, deleted, moved, renamed, valued
from zeroplan.check.rules.elsewhere import LIKELY
from zeroplan.check.subject import Entry, Subject
from zeroplan.deepspeed.keys.key import Key
from zeroplan.deepspeed.values import DTYPES, KINDS, fault, meant

LETTERS_PER_SLIP = 8
SHORTEST = 4
"""Letters of a name that a slip may lead to: below it, every name is near another."""
WITHOUT_SWITCH = ("sparse_attention", "zeropp_loco_param")
"""Removed sections that were on by being there."""
LARGE = 1000
"""From here on a fraction is what a computed size came out with, not a request."""


def key(subject: Subject, entry: Entry) -> Edits:
    """An unknown key under the name that it missed."""
    names = {name: known for known in subject.table.children(entry.section) for name in (known.name, *known.aliases)}
    name = slip(entry.name, names, refused=entry.section in subject.table.strict)
    if not name or not _takes(subject, names[name], entry.value) or _is_there(subject, names[name]):
        return ()
    return renamed(subject.document, entry.path, name)


def slip(typed: str, names: Mapping[str, object], *, refused: bool = False) -> str:
    """The one name that was missed by a slip; where DeepSpeed refuses the other, the one that is near. "" for none."""
    folded = {name.lower(): name for name in names}
    plain = typed.lower().replace("-", "_").strip()
    if plain in folded:
        return folded[plain]
    near = [folded[name] for name in difflib.get_close_matches(plain, folded, n=4, cutoff=LIKELY)]
    close = [name for name in near if _slips(plain, name.lower()) <= _allowed(name)]
    for matches in (close, near if refused else []):
        if matches and all(names[name] is names[matches[0]] for name in matches):
            return matches[0]
    return ""


def _allowed(name: str) -> int:
    return max(1, len(name) // LETTERS_PER_SLIP) if len(name) >= SHORTEST else 0


def _slips(one: str, other: str) -> int:
    """Letters wrong, missing, too many or swapped with their neighbour (optimal string alignment)."""
    before: list[int] = []
    row = list(range(len(other) + 1))
    for i, letter in enumerate(one, start=1):
        two_before, before, row = before, row, [i]
        for j, wanted in enumerate(other, start=1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (letter != wanted)))
            if i > 1 and j > 1 and one[i - 2] == wanted and letter == other[j - 2]:
                row[-1] = min(row[-1], two_before[j - 2] + 1)
    return row[-1]


def place(subject: Subject, entry: Entry, home: Iterable[str]) -> Edits:
    """A key in the section that reads it, if there is one such section and the file has it. Where the key is ignored
    that section lies around this one or in it: what runs with a key in a third place may be meant so.
    """
    paths = tuple(home)
    if len(paths) != 1:
        return ()
    known = subject.table.keys[paths[0]]
    if not (entry.section in subject.table.strict or _nested(entry.section, known.section)):
        return ()
    return moved_to(subject, entry.path, known, entry.value)


def _nested(one: str, other: str) -> bool:
    inner, outer = (one, other) if len(one) > len(other) else (other, one)
    return not outer or inner.startswith(f"{outer}.")


def moved_to(subject: Subject, path: Path, known: Key, value: Any) -> Edits:
    """A value under a known key in its section; just gone from here where it is there already."""
    section = subject.spelled(known.section)
    if _is_there(subject, known):
        stated = subject.stated(known.path)
        return deleted(subject.document, path) if stated == value and type(stated) is type(value) else ()
    missing = known.section and (not section or not isinstance(subject.stated(known.section), dict))
    if missing or not _takes(subject, known, value):
        return ()
    if path[:-1] == section:
        return renamed(subject.document, path, known.name)
    return moved(subject.document, path, section, known.name)


def _is_there(subject: Subject, known: Key) -> bool:
    return len(subject.spelled(known.path)) == known.path.count(".") + 1


def removed(subject: Subject, entry: Entry) -> Edits:
    """A removed key that was off. Where it was on DeepSpeed refuses it lest the run goes on without what was asked for:
    "a leftover block would be ignored and the model would train unquantized" (runtime/config.py:86).
    """
    return () if _was_on(entry.name, entry.value) else deleted(subject.document, entry.path)


def _was_on(name: str, given: Any) -> bool:
    """As the last DeepSpeed that read it took it (runtime/constants.py before 0.19.8: enabled is false by default)."""
    if name in WITHOUT_SWITCH:
        return bool(given)
    if name == "mics_shard_size":
        return not isinstance(given, int | float) or given > 0
    return _enabled(given) if isinstance(given, dict) else bool(given)


def _enabled(section: dict[str, Any]) -> bool:
    """Whether a switch in a section or in its sections is not off."""
    return bool(section.get("enabled")) or any(_enabled(part) for part in section.values() if isinstance(part, dict))


def value(subject: Subject, path: Path, known: Key, given: Any) -> Edits:
    """A value in the spelling that the key takes: a number without its quotes, a word of the table."""
    if path not in subject.document.members:
        return ()
    number = meant(known, given)
    if number is not None:
        exact = (isinstance(given, float) and abs(given) >= LARGE) or number == _float(given)
        return valued(subject.document, path, json.dumps(number)) if exact else ()
    choices = known.choices or (DTYPES if known.path.startswith("data_types.") else ())
    words = [word for word in choices if isinstance(given, str) and _folded(word) == _folded(given)]
    words = [word for word in words if word == str(given).strip().lower()] or words
    return valued(subject.document, path, json.dumps(words[0])) if len(words) == 1 else ()


def word(subject: Subject, path: Path, given: Any, words: Iterable[str]) -> Edits:
    """A name among others, in its own letters."""
    match = slip(given, {name: name for name in words}) if isinstance(given, str) else ""
    return valued(subject.document, path, json.dumps(match)) if match else ()


def parameter(subject: Subject, path: Path, known: Iterable[str]) -> Edits:
    """An argument of an optimizer or schedule under the name that it missed, if that is free."""
    match = slip(path[-1], {name: name for name in known}, refused=True)
    is_free = match and (*path[:-1], match) not in subject.document.members
    return renamed(subject.document, path, match) if is_free else ()


def _float(given: Any) -> float:
    return float(given.strip("\"' ") if isinstance(given, str) else given)


def _folded(word: str) -> str:
    return DTYPES.get(word.strip().lower(), word.strip().lower())


def takes(subject: Subject, entry: Entry, name: str) -> bool:
    """Whether the key of this name, in the section of an unknown one, takes what that says."""
    known = subject.table.key(f"{entry.section}.{name}".lstrip("."))
    return known is not None and _takes(subject, known, entry.value)


def _takes(subject: Subject, known: Key, given: Any) -> bool:
    if known.section in subject.table.strict:
        return not fault(known, given, subject.table)
    return known.kind == "any" or bool({*KINDS.get(type(given), ())} & {*known.kind.split("|")}) or (
        given == "auto" and bool(known.auto))  # fmt: skip
