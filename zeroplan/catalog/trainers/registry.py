"""How the file of each tool is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from zeroplan.catalog.trainers import axolotl, llama_factory, swift, tools, trl
from zeroplan.catalog.trainers.stated import Stated
from zeroplan.catalog.trainers.training_arguments import HARMLESS, settings_of
from zeroplan.catalog.trainers.words import Words


class Reader(NamedTuple):
    read: Callable[[Words], Stated]
    harmless: tuple[str, ...]
    """Patterns of keys that change no number."""
    converts: bool = True
    """Whether it makes numbers of texts."""


READERS = {
    tools.LLAMA_FACTORY: Reader(llama_factory.read, llama_factory.HARMLESS, converts=False),
    tools.AXOLOTL: Reader(axolotl.read, axolotl.HARMLESS),
    tools.SWIFT: Reader(swift.read, swift.HARMLESS),
    tools.TRL: Reader(trl.read, trl.HARMLESS),
    tools.TRAINER: Reader(lambda words: Stated(settings_of(words)), HARMLESS),
}
