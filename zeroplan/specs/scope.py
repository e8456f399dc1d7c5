"""What the numbers are of: what trains, of which model, with which loss; and what is not planned.

What of a user's job no number here has in it: named, refused, or answered in part (`--partial`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from zeroplan.specs.adapter import ALL_LINEAR
from zeroplan.specs.input_sizes import InputSizes
from zeroplan.specs.model import Model, Unplanned
from zeroplan.units import count

EVERY_WEIGHT = "every weight"
IMAGES = "images or audio"
EXCLUDED = ("a second model", "generation", "evaluation", IMAGES)
"""Parts of a training job of text that no number has in it; memory of a model being saved is in the host's range
alone."""


class Scope(NamedTuple):
    """The job that the numbers are exact for."""

    model: str
    loss: str
    seq: int
    """Tokens of every sequence; none is shorter, and none is padded."""
    unplanned: tuple[Unplanned, ...] = ()
    """What of the user's own job is not planned, where `--partial` takes what still holds."""
    trains: str = EVERY_WEIGHT
    """What trains, in words."""
    lengths: tuple[int, ...] = ()
    """Tokens of a sequence in each of several jobs, where they differ."""
    images: str = ""
    """What of images each sequence has, whose words are among its tokens."""
    targets: str = ""
    """How long the targets of an encoder-decoder are, beside its sequences."""

    @property
    def line(self) -> str:
        training = "full training" if self.trains == EVERY_WEIGHT else f"training of {self.trains}"
        tokens = [f"{length:,}" for length in self.lengths or (self.seq,)]
        every = " or ".join([", ".join(tokens[:-1]), tokens[-1]] if len(tokens) > 1 else tokens)
        beside = "".join(f" with {each}" for each in (self.images, self.targets) if each)
        return (
            f"Scope: {training} of {self.model}, {self.loss}, every sequence {every} tokens{beside}; no second model, "
            "generation or evaluation."
        )

    @property
    def excluded(self) -> tuple[str, ...]:
        """Parts of a training job that no number here has in it."""
        return tuple("audio" if self.images and part == IMAGES else part for part in EXCLUDED)

    @property
    def not_planned(self) -> tuple[str, ...]:
        """Each part of the job that is not, in a line of its own."""
        return tuple(f"Not planned: {one.what}: {one.effect}; {one.instead}." for one in self.unplanned)


def scope(models: Iterable[Model], seq: int, unplanned: tuple[Unplanned, ...] = ()) -> Scope:
    """What is planned of one model, or of several under the same training."""
    every = list({id(model): model for model in models}.values())
    several = list({model.name: model for model in every}.values())
    losses = sorted({model.loss for model in several})
    classes = {model.architecture for model in several} - {""}
    name = several[0].name if len(several) == 1 else "each model"
    name += f" ({classes.pop()})" if len(several) == len(classes) == 1 else ""
    trains = " or ".join(dict.fromkeys(map(what_trains, every)))
    images = " or ".join(dict.fromkeys(model.images.line for model in several if model.images))
    lines = dict.fromkeys(InputSizes(target=model.target).line for model in several)
    targets = " or ".join(filter(None, lines))
    return Scope(name, " or ".join(losses), seq, unplanned, trains, images=images, targets=targets)


def what_trains(model: Model) -> str:
    """What of a model trains."""
    if not (model.freeze or model.adapter):  # but for what its own class does not train
        return EVERY_WEIGHT
    trained, whole = model.trainable_parameters, model.products
    if adapter := model.adapter:
        where = adapter.target_modules if isinstance(adapter.target_modules, str) else ", ".join(adapter.target_modules)
        layers = "all linear layers" if where == ALL_LINEAR else where
        whole = model.weights
        double = " with double quantization" if model.quantization and model.quantization.double else ""
        kind = f" in {model.quantization.kind}{double}" if model.quantization else ""
        method = f"Q{adapter.method}" if model.quantization else adapter.method
        return f"{method} adapters (r {adapter.r}, {layers}: {count(trained)} beside {count(whole)} frozen{kind})"
    return f"{count(trained)} of {count(whole)} parameters ({trained / whole:.2%}, the others frozen)"
