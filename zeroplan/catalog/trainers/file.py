"""What a training file of another tool says of a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from zeroplan.catalog.trainers.tools import UNREAD, tool_of
from zeroplan.catalog.trainers.words import Said, Words, listed
from zeroplan.errors import SpecError
from zeroplan.specs.trained import Trained

if TYPE_CHECKING:
    from zeroplan.specs.model import Model
    from zeroplan.specs.quantization import Quantization


Trains = Callable[["Model"], Trained]
"""What trains, of a model. Raises `SpecError` for what is not planned."""


class Stated(NamedTuple):
    """What one tool makes of its words."""

    settings: Mapping[str, Said] = {}
    """Values of options: model, micro_batch, grad_accum, seq, precision, checkpointing, attention, kernels, optim."""
    trained: Trains = lambda _model: Trained()
    quantization: Quantization | None = None
    """How the frozen weights of linear layers lie."""
    trains: str = ""
    """The key that says so, and how; empty where all weights train."""
    notes: tuple[str, ...] = ()
    reentrant_at_stage_3: bool = False
    """Checkpointing is reentrant at ZeRO-3, whatever the file says of it."""


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
    from zeroplan.catalog.trainers.registry import READERS

    name = tool_of(content) or tool
    if name is None:
        return None
    if name in UNREAD:
        raise SpecError(
            place, f"a training file of {name}, which is not read", "one of LLaMA-Factory, axolotl or TRL, or a "
            "ds_config.json", "--config ds_config.json, and --lora 16 where adapters train",
        )  # fmt: skip
    reader = READERS[name]
    words = Words(name, content, place, converts=reader.converts)
    stated = reader.read(words)
    return TrainerFile(name, place, stated, words.significant(reader.harmless), words.unread(reader.harmless))
