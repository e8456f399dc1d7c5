"""Keys of a training file, each read as its tool reads it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from zeroplan.catalog.adapters import READERS
from zeroplan.errors import SpecError, shown

MOST_NAMED = 12
"""Words that are listed as not read; further ones are counted."""
TRUE, FALSE = ("true", "yes", "on", "t", "y", "1"), ("false", "no", "off", "f", "n", "0")


class Said(NamedTuple):
    """A setting, and the key that says it."""

    value: Any
    key: str
    stated: bool = True
    """Whether the file says it; else it is what its tool takes."""


class Words:
    """The content of a file, and which of its keys were looked at."""

    def __init__(self, tool: str, content: Mapping[str, Any], place: str, *, converts: bool) -> None:
        self.tool, self.content, self.place = tool, content, place
        self._converts = converts
        """Whether the tool makes numbers of texts; else they stay texts, and null is no default."""
        self._read: set[str] = set()

    def __call__(self, key: str) -> Any:
        """A value as it stands. Raises `SpecError` for a placeholder, which nobody has filled in."""
        self._read.add(key)
        value = self.content.get(key)
        if isinstance(value, str) and (value.startswith("$") or "${" in value or value.startswith("{{")):
            raise SpecError(self.at(key), f"the placeholder {shown(value)}", "a value; fill it in")
        return None if value == "" else value

    def look_at(self, *keys: str) -> None:
        """Count keys as read."""
        self._read.update(keys)

    def at(self, key: str) -> str:
        return f"{self.place}: {key}"

    def refuse(self, key: str, expected: str, write: str = "") -> SpecError:
        """The error for a value that is not planned."""
        return SpecError(self.at(key), shown(self.content.get(key)), expected, write)

    def refuse_any(self, refused: Mapping[str, str]) -> None:
        """Raise `SpecError` for the first of these keys that is there and says anything."""
        for key, why in refused.items():
            if self(key) not in (None, False, [], {}, 0) and str(self(key)).lower() not in FALSE:
                raise self.refuse(key, f"it left out: {why}")

    def refuse_earlier_adapter(self, key: str) -> None:
        """Raise `SpecError` where the key names an adapter that an earlier run has left."""
        if self(key) is not None:
            expected = "new adapters: its adapter_config.json says what trains"
            raise self.refuse(key, expected, "--adapter and its folder")

    def read(self, key: str, reader: Callable[[Any, str], Any], usual: Any = None) -> Any:
        """A value as a reader of `catalog.adapters` takes it."""
        value = self._given(key, usual)
        return usual if value is None else reader(value, self.at(key))

    def whole(self, key: str, usual: int | None = None, *, signed: bool = False) -> Any:
        """A whole number from 1 up; `signed`: any."""
        value = self._number(key, usual)
        if value is None or (value == int(value) and (signed or value >= 1)):
            return None if value is None else int(value)
        raise self.refuse(key, "a whole number" if signed else "a whole number from 1 up")

    def rank(self, key: str, usual: int | None = None) -> Any:
        """The rank of adapters."""
        value = self.whole(key, usual)
        return value if value is None else READERS["r"](value, self.at(key))

    def modules(self, key: str, *, split: bool = False) -> tuple[str, ...]:
        """Names of modules, as peft compares them."""
        read: tuple[str, ...] = READERS["modules_to_save"](self.names(key, split=split), self.at(key))
        return read

    def number(self, key: str, usual: float | None = None) -> Any:
        """A number from 0 up."""
        value = self._number(key, usual)
        if value is not None and not 0 <= value < float("inf"):
            raise self.refuse(key, "a number from 0 up")
        return value

    def probability(self, key: str, usual: float = 0.0) -> float:
        """A number from 0 up to less than 1."""
        value: float = self.number(key, usual)
        if value >= 1:
            raise self.refuse(key, "a probability under 1")
        return value

    def _number(self, key: str, usual: float | None) -> Any:
        value = self._given(key, usual)
        if isinstance(value, str):
            exact = _as_number(value)
            if exact is not None and (self._converts or "e" in value.lower()):
                return exact
            why = f"a number; {self.tool} takes a text in quotes as it is" if exact is not None else "a number"
            raise self.refuse(key, why, f"{key}: {value}" if exact is not None else "")
        if value is None:
            return usual
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < float("inf"):
            raise self.refuse(key, "a number")
        return value

    def switch(self, key: str, usual: bool = False) -> bool:
        value = self._given(key, usual)
        text = str(value).lower()
        if isinstance(value, bool) or (self._converts and text in (*TRUE, *FALSE)):
            return text in TRUE
        if value is None:
            return usual
        raise self.refuse(key, "true or false")

    def word(self, key: str, usual: str, known: tuple[str, ...] = ()) -> str:
        """A text; `known`: one of these."""
        value = self._given(key, usual)
        if value is None:
            return usual
        if not isinstance(value, str) or (known and value not in known):
            raise self.refuse(key, " or ".join(known) or "a text")
        return value

    def names(self, key: str, usual: tuple[str, ...] = (), *, split: bool = False) -> tuple[str, ...]:
        """A list of names, or one; `split`: a text has commas between several."""
        value = self._given(key, usual)
        if value is None:
            return usual
        listed = [part.strip() for part in value.split(",")] if split and isinstance(value, str) else value
        listed = [listed] if isinstance(listed, str) else listed
        if not isinstance(listed, list | tuple) or not all(isinstance(each, str) and each for each in listed):
            raise self.refuse(key, "a list of names", f"{key}: [q_proj, v_proj]" if "target" in key else "")
        return tuple(listed)

    def _given(self, key: str, usual: Any) -> Any:
        value = self(key)
        if value is None and not self._converts and key in self.content and usual and usual is not True:
            write = ",".join(usual) if isinstance(usual, tuple) else usual
            raise SpecError(self.at(key), "nothing", f"a value: {self.tool} has no default then", f"{key}: {write}")
        return value

    def said(self, key: str, value: Any) -> Said:
        """A setting that a key says, or leaves to its tool."""
        return Said(value, key, self.content.get(key) not in (None, ""))

    def unread(self, harmless: tuple[str, ...]) -> tuple[str, ...]:
        """Keys that say something, were not looked at, and are not known to change nothing."""
        return tuple(key for key in self.significant(harmless) if key not in self._read)

    def significant(self, harmless: tuple[str, ...]) -> dict[str, Any]:
        """What the file says of the job, without what changes no number of it."""
        return {
            key: value for key, value in self.content.items()
            if value not in (None, False, "", [], {}) and not any(fnmatchcase(key, each) for each in harmless)
        }  # fmt: skip


def _as_number(text: str) -> float | int | None:
    """None for what is none."""
    try:
        return int(text)
    except ValueError:
        pass
    try:
        number = float(text)
    except ValueError:
        return None
    return number if abs(number) < float("inf") else None


def listed(keys: tuple[str, ...]) -> str:
    """Names of keys, on a line."""
    more = len(keys) - MOST_NAMED
    return ", ".join(keys[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
