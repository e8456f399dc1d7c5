"""Edits of hjson: the text then says what it said before, but for the one key, and no comment is lost."""

from __future__ import annotations

import json
import random
from contextlib import suppress
from itertools import combinations
from typing import NamedTuple

import pytest

from tests.check.hjson_writing import written
from zeroplan.check.document import Document, Member, ValueNode
from zeroplan.check.edit import Edits, applied, deleted, moved, overlap, renamed, valued
from zeroplan.check.json_reader import COMMENTS, MISSING, QUOTES, TRAILING, UNQUOTED, NotReadableError, read_json
from zeroplan.check.punctuation import as_json

BARE = {"@size": "GBSIZE", "@key": "a: {", "@pair": "x, y", "@close": "b}]", "@number": "1_000", "@note": "tr ue // c"}
"""Texts that lose their quotes; those go on to the end of their line."""
SCALARS = (1, 2.5, -3, 1e9, True, None, "t", "x y", "1", *BARE)
VALUES = {"1": "1", '"w"': "'w'", "true": "True", '{"q": 1}': (("q", "1"),)}
"""JSON, and what `tree` says of it."""
NAME = "new"
PIECES = ("", "", "", " ", "\n", ",", "{", "}", ":", "#", "//", "/*", "*/", "'", '"', "x", "1")


class Change(NamedTuple):
    """Edits, and what they are to do to one key."""

    member: Member
    edits: Edits
    names: tuple[str, ...] = ()
    """As which it stands in its place then; () for gone."""
    value: str = ""
    target: ValueNode | None = None
    """The object whose last key it becomes."""


def drawn(rng: random.Random, depth: int = 0):
    if depth < 3 and rng.random() < 0.4:
        return {name: drawn(rng, depth + 1) for name in rng.sample("abcdefg", rng.randrange(4))}
    if depth < 3 and rng.random() < 0.15:
        return [drawn(rng, depth + 1) for _ in range(rng.randrange(3))]
    return rng.choice(SCALARS)


def document(seed: int) -> Document | None:
    """A drawn one, of a text that was damaged or had a comma taken away; None where nothing can read it."""
    rng = random.Random(seed)
    config = {name: drawn(rng) for name in rng.sample("abcdefg", rng.randrange(2, 5))}
    text = written(rng, config) if rng.random() < 0.7 else json.dumps(config, indent=rng.choice((None, 1)))
    for name, bare in BARE.items():
        for quote in "\"'":
            text = text.replace(f"{quote}{name}{quote}", bare + rng.choice(("\n", "\r\n", "\n  ")))
    if rng.random() < 0.5:
        text = text.replace(",", rng.choice((" ", "\n")), rng.randrange(3))
    for _ in range(rng.choice((0, 0, 1, 2))):
        at = rng.randrange(len(text))
        text = text[:at] + rng.choice(PIECES) + text[at + rng.choice((0, 1, 1, 2)) :]
    with suppress(NotReadableError):
        return read_json("x", text)
    return None


def changes(found: Document):
    """Every edit of every key that stands in an object whose path is its own."""
    objects = {(): found.root} | {path: one.node for path, one in found.members.items() if one.node.members is not None}
    for path, member in found.members.items():
        home = objects.get(path[:-1])
        if home is None or not any(one is member for one in home.members or ()):
            continue  # in a list, which a path does not name
        yield Change(member, deleted(found, path))
        yield Change(member, renamed(found, path, NAME), (NAME,))
        for value in VALUES:
            yield Change(member, valued(found, path, value), (member.name,), value)
        for section, target in objects.items():
            if target is not home and section[: len(path)] != path:
                yield Change(member, moved(found, path, section, NAME), target=target)


def tree(node: ValueNode, made: tuple[Change, ...] = ()):
    """Names and values in the order of the file, as they are when the changes are made."""
    if node.items is not None:
        return [tree(item, made) for item in node.items]
    if node.members is None:
        return repr(node.scalar)
    pairs = []
    for one in node.members:
        change = next((change for change in made if change.member is one), Change(one, (), (one.name,)))
        value = VALUES[change.value] if change.value else tree(one.node, made)
        pairs += [(name, value) for name in change.names]
    return (*pairs, *((NAME, tree(change.member.node, made)) for change in made if change.target is node))


def comments(found: Document) -> int:
    return len(found.noted.get(COMMENTS, []))


def holds(found: Document, made: tuple[Change, ...]) -> None:
    edits = [edit for change in made for edit in change.edits]
    text = applied(found.text, edits)
    after = read_json("x", text)
    assert tree(after.root) == tree(found.root, made), (found.text, text)
    assert comments(after) == comments(found), (found.text, text)
    liberties = {*after.noted} - {*found.noted}
    assert not liberties or (len(made) > 1 and MISSING in found.noted and liberties == {TRAILING}), (found.text, text)


@pytest.mark.parametrize("first", range(4))
def test_an_edit_does_what_it_says(first):
    tried = 0
    for seed in range(first, 2000, 4):
        if (found := document(seed)) is not None:
            for change in changes(found):
                if change.edits:
                    holds(found, (change,))
                    tried += 1
    assert tried > 3000


@pytest.mark.parametrize("first", range(2))
def test_edits_that_do_not_overlap_can_be_made_at_once(first):
    tried = 0
    for seed in range(first, 300, 2):
        if (found := document(seed)) is None:
            continue
        rng, all_changes = random.Random(seed), [change for change in changes(found) if change.edits]
        pairs = list(combinations(all_changes, 2))
        for one, other in rng.sample(pairs, min(60, len(pairs))):
            inside = any(outer.start < inner.start < outer.node.end for outer, inner in
                         ((one.member, other.member), (other.member, one.member)))  # fmt: skip
            if one.member is not other.member and not inside and not overlap([*one.edits, *other.edits]):
                holds(found, (one, other))
                tried += 1
    assert tried > 1000


def test_punctuation_changes_no_value():
    for seed in range(2000):
        if (found := document(seed)) is None:
            continue
        for what in (TRAILING, MISSING, QUOTES, UNQUOTED):
            if edits := as_json(found, what):
                after = read_json("x", applied(found.text, edits))
                assert tree(after.root) == tree(found.root), (found.text, after.text)
                assert comments(after) == comments(found)
                assert what not in after.noted


STAYS = {
    "a number that something follows": ('{"a": "8" "b": 1\n}', lambda found: valued(found, ("a",), "8")),
    "behind a text without quotes": ('{"a": {"b": SIZE\n}, "c": 1}', lambda found: moved(found, ("c",), ("a",))),
    "a text without quotes, elsewhere": ('{"a": {"b": 1}, "c": SIZE\n}', lambda found: moved(found, ("c",), ("a",))),
    "a value that begins like a key": ('{"a":\nb: {\n"c": 1}', lambda found: as_json(found, MISSING)),
}  # fmt: skip


@pytest.mark.parametrize(("text", "edits"), STAYS.values(), ids=STAYS)
def test_what_would_become_another_value_stays(text, edits):
    assert edits(read_json("x", text)) == ()


def test_a_comma_stays_that_ends_a_number():
    """Without it 1 "c": 3 would be a text."""
    found = read_json("x", '{"a": 1, "b": "x" "c": 3\n}')
    assert applied(found.text, deleted(found, ("b",))) == '{"a": 1, "c": 3\n}'


def test_two_keys_that_come_to_one_place_overlap():
    found = read_json("x", '{"a": {\n}, "b": 1, "c": 2}')
    assert overlap([*moved(found, ("b",), ("a",)), *moved(found, ("c",), ("a",))])
