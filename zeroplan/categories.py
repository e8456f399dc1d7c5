"""What counted bytes are, where no equation gives their number: a name, a source and a meaning."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, eq=False)
class Category:
    """What elements or bytes are that a replay of DeepSpeed's events or the model's own operators counted.

    A line takes it where it takes a formula otherwise: its bytes are one count, times the bytes of one where bytes
    themselves are not what is counted. Each is itself alone, whatever another is called.
    """

    name: str
    """As lines name it."""
    source: str
    """A source of the bibliography, and the place in it."""
    meaning: str
    note: str = ""

    def __call__(self, *, w: int = 1, **counted: int) -> int:
        """Bytes: the count, times the bytes of one (`w`)."""
        (number,) = counted.values()
        return w * number


class ActivationCategory(Category):
    """What the model's own operators keep or make."""
