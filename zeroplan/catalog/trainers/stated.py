"""What one tool makes of the words of its training file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from zeroplan.catalog.trainers.words import Said
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
    puts: Mapping[str, Any] = {}
    """Keys that the tool puts into the ds_config, by their paths."""
    usual_batch: int = 0
    """Sequences of a step, at the least, that the tool accumulates where nothing is stated; 0: as `settings` say."""
    reentrant_at_stage_3: bool = False
    """Checkpointing is reentrant at ZeRO-3, whatever the file says of it."""
