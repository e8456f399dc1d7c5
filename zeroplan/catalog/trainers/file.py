"""What a training file of another tool says of a job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from zeroplan.catalog.trainers.registry import READERS
from zeroplan.catalog.trainers.stated import Stated
from zeroplan.catalog.trainers.tools import UNREAD, tool_of
from zeroplan.catalog.trainers.words import Words, listed
from zeroplan.errors import SpecError


class TrainerFile(NamedTuple):
    """A training file, read."""

    tool: str
    place: str
    stated: Stated
    words: Mapping[str, Any]
    """What of the file bears on a number."""
    unread: tuple[str, ...] = ()
    """Those of these words that nothing here reads."""

    @property
    def assumed(self) -> tuple[str, ...]:
        """What of the file is not in the numbers."""
        unread = (f"not read in {self.place}: {listed(self.unread)}",) if self.unread else ()
        return (*(f"{self.place}: {note}" for note in self.stated.notes), *unread)


def read_trainer_file(content: Mapping[str, Any], place: str, tool: str | None = None) -> TrainerFile | None:
    """None for what is no training file; `tool`: whose file it is where its keys do not tell.

    Raises `SpecError` for what is not planned, and for values that the tool refuses.
    """
    name = tool_of(content) or tool
    if name is None:
        return None
    if name in UNREAD:
        raise SpecError(
            place, f"a training file of {name}, which is not read", "one of LLaMA-Factory, axolotl, "
            "ms-swift or TRL, or a ds_config.json", "--config ds_config.json, and --lora 16 where adapters train",
        )  # fmt: skip
    return read_as(name, content, place)


def read_as(tool: str, content: Mapping[str, Any], place: str) -> TrainerFile:
    """As this tool reads it, whatever its keys tell. Raises `SpecError`."""
    reader = READERS[tool]
    words = Words(tool, content, place, converts=reader.converts)
    stated = reader.read(words)
    return TrainerFile(tool, place, stated, words.significant(reader.harmless), words.unread(reader.harmless))
