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


class ZeroplanError(Exception):
    """An error a user can mend. `str()` of it is one line."""


class QuantityError(ZeroplanError):
    pass


class SpecError(ZeroplanError):
    def __init__(self, place: str, found: str, expected: str, write: str = "") -> None:
        tail = f"; write {write}" if write else ""
        super().__init__(f"{place}: found {found}, expected {expected}{tail}")


class UnknownNameError(ZeroplanError):
    def __init__(self, kind: str, name: str, known: Iterable[str], way_out: str = "") -> None:
        import difflib  # only on the way to an error

        known = sorted(known)
        near = difflib.get_close_matches(name.lower(), known, n=3, cutoff=0.4)
        hint = f"nearest: {', '.join(near)}" if near else f"known: {', '.join(known[:8])}, ..."
        super().__init__(f"unknown {kind} {shown(name)}; {hint}{f'; {way_out}' if way_out else ''}")


class ContradictionError(ZeroplanError):
    pass


class UnplannedError(ZeroplanError):
    pass


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that a typed one most likely meant."""
    import difflib

    known = list(known)
    return (difflib.get_close_matches(name.lower(), known, n=1, cutoff=0.0) or known)[0]


def shown(value: object, limit: int = 60) -> str:
    """A value as an error message quotes it: printable, on one line, cut when long."""
    text = repr(value)
    return text if len(text) <= limit else f"{text[: limit - 3]}..."
