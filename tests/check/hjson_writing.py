"""Configs written as people write them by hand: comments, quotes, line ends and commas at random."""

from __future__ import annotations

import json

BLANKS = ("", " ", "\n", "\n  ", "\t", " // c\n", " # c\n", "/* c */", "\r\n", " /* a\nb */ ")
MARKS = ("// c", "# c", "/* c */", "/* a\nb */")


def written(rng, value):
    """The value in hjson that this project's reader takes. Now and then a key is there twice."""
    if isinstance(value, dict):
        members = list(value.items())
        members += members[:1] if rng.random() < 0.1 else []
        ends = range(len(members), 0, -1)
        inside = [_member(rng, *member, last=left == 1) for member, left in zip(members, ends, strict=True)]
        return "{" + "".join(inside) + _blank(rng) + "}"
    if isinstance(value, list):
        return "[" + ",".join(_blank(rng) + written(rng, item) for item in value) + _blank(rng) + "]"
    return _text(rng, value) if isinstance(value, str) else json.dumps(value)


def _member(rng, name, value, *, last):
    comma = ("," if rng.random() < 0.15 else "") if last else "," if rng.random() < 0.9 else "\n"
    return f"{_blank(rng)}{_name(rng, name)}:{_blank(rng)}{written(rng, value)}{rng.choice(('', ' '))}{comma}"


def _blank(rng):
    return rng.choice(BLANKS)


def _name(rng, name):
    return name if rng.random() < 0.2 and name.isidentifier() else _text(rng, name)


def _text(rng, text):
    quoted = json.dumps(text)
    return f"'{quoted[1:-1]}'" if rng.random() < 0.25 and not {*"\\'"} & {*quoted} else quoted
