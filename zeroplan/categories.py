"""What counted bytes are, where no equation gives their number: a name, a source and a meaning."""

from __future__ import annotations


class Category:
    """What elements or bytes are that a replay of DeepSpeed's events or the model's own operators counted.

    A line takes it where it takes a formula otherwise: its bytes are one count, times the bytes of one where bytes
    themselves are not what is counted. Each is itself alone, whatever another is called.
    """

    __slots__ = ("meaning", "name", "note", "source")

    def __init__(self, name: str, source: str, meaning: str, note: str = "") -> None:
        """`name`: as lines have it. `source`: one of the bibliography, and the place in it."""
        self.name, self.source, self.meaning, self.note = name, source, meaning, note

    def __call__(self, *, w: int = 1, **counted: int) -> int:
        """Bytes: the count, times the bytes of one (`w`)."""
        (number,) = counted.values()
        return w * number


class ActivationCategory(Category):
    """What the model's own operators keep or make."""

    __slots__ = ()
