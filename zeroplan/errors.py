"""The error tree: each error is one line that says what was found, what was expected and what to write.

ZeroplanError             anything a user can mend; the command line prints it and exits with 2
├── QuantityError         a text that is not a quantity of the kind asked for
├── SpecError             a file or option whose content cannot be used (names file and place)
├── UnknownNameError      a preset, family, key or line that does not exist (suggests the nearest)
├── ContradictionError    a request that contradicts itself
└── UnplannedError        a part of the job that no number has in it; --partial gives what still holds
"""

from __future__ import annotations

from collections.abc import Iterable

LONGEST_NAME = 100
"""Letters of a name that are compared with those that are known."""


class ZeroplanError(Exception):
    """An error a user can mend. `str()` of it is one line, whatever it quotes."""

    def __init__(self, message: str) -> None:
        super().__init__(printable(message))


class QuantityError(ZeroplanError):
    pass


class SpecError(ZeroplanError):
    def __init__(self, place: str, found: str, expected: str, write: str = "") -> None:
        tail = f"; write {write}" if write else ""
        super().__init__(f"{place}: found {found}, expected {expected}{tail}")
        self.place, self.found, self.expected = place, found, expected


class UnknownNameError(ZeroplanError):
    def __init__(self, kind: str, name: str, known: Iterable[str], suggestion: str = "") -> None:
        import difflib  # only on the way to an error

        known = sorted(known)
        start = name[:LONGEST_NAME].lower()
        begun = [one for one in known if start.strip() and one.startswith(start)]
        alike = difflib.get_close_matches(start, known, n=3, cutoff=0.4)
        near = list(dict.fromkeys([*begun, *alike]))[:3]
        hint = f"nearest: {', '.join(near)}" if near else f"known: {', '.join(known[:8])}, ..."
        super().__init__(f"unknown {kind} {shown(name)}; {hint}{f'; {suggestion}' if suggestion else ''}")


class ContradictionError(ZeroplanError):
    pass


class UnplannedError(ZeroplanError):
    pass


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that a typed one most likely meant."""
    import difflib

    known = list(known)
    return (difflib.get_close_matches(name[:LONGEST_NAME].lower(), known, n=1, cutoff=0.0) or known)[0]


def printable(text: str, keeps: str = "") -> str:
    """The text without what a terminal or a log obeys: controls, line and paragraph separators and marks that turn the
    direction of writing are escaped, but for those in `keeps`. Everything of the user's that is shown goes through it.
    """
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in keeps else _escaped(letter) for letter in text)


def _escaped(letter: str) -> str:
    code = ord(letter)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def shown(value: object, limit: int = 60) -> str:
    """A value as an error message quotes it: printable, on one line, cut when long."""
    return shortened(repr(value), limit)


def shortened(text: str, limit: int = 60) -> str:
    """The beginning of a text that is longer than so many letters."""
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
