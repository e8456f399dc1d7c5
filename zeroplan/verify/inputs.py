"""What a model is given in training: words and their labels, with images between them or sound in their place."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import _disable_current_modes

from zeroplan.specs.input_sizes import InputSizes
from zeroplan.specs.model import IDS, OF_SEQUENCES, OF_TOKENS, VALUES
from zeroplan.verify.dtypes import DTYPES
from zeroplan.verify.task import SOUND, TYPED, WORD, WORDS, Task

LABELS = "labels"
LEAST_WORDS = 100
"""In any table of words."""


class Inputs(NamedTuple):
    """What a model is given."""

    tensors: dict[str, torch.Tensor]
    values: Mapping[str, torch.Tensor] = MappingProxyType({})
    """Of those whose whole numbers are read."""


def inputs(
    config: Any, task: Task, sizes: InputSizes, batch: int, seq: int, dtype: str, device: str = "meta"
) -> Inputs:  # fmt: skip
    """Words are whole numbers (batch, seq) and their own labels, but where a head has others; labels of sequences are
    (batch,). Nothing is padded, and there is no mask of attention. Raises `SpecError` for images that do not fit.
    """
    if sizes.images and sizes.images.number:
        from zeroplan.verify.images import inputs_of

        made = Inputs(*inputs_of(config, sizes.images, batch, seq, DTYPES[dtype]))
        return made if device == "meta" else with_bytes(made, device)
    made = of_words(config, task, batch, seq, dtype, device, target=sizes.target or 0)
    return made if device == "meta" else made._replace(values={})


def of_words(
    config: Any, task: Task, batch: int, seq: int, dtype: str, device: str, *, target: int = 0
) -> Inputs:  # fmt: skip
    """Words alone, or labels and sound; no word stands for an image. `target`: tokens of labels that are not the words;
    0: they are.
    """
    takes_images = getattr(config, "vision_config", None) is not None
    vocabulary = getattr(config.get_text_config(), "vocab_size", None) or LEAST_WORDS
    least, end = (WORD, WORD + 1) if takes_images else (0, vocabulary)
    ids = torch.randint(least, end, (batch, seq), device=device)
    if task.takes == SOUND:
        return Inputs({SOUND: SOUNDS[config.model_type](config, batch, DTYPES[dtype], device), LABELS: ids})
    if task.labels == IDS:
        typed = {TYPED[config.model_type]: torch.zeros_like(ids)} if config.model_type in TYPED else {}
        labels = torch.randint(0, vocabulary, (batch, target), device=device) if target else ids
        return Inputs({WORDS: ids, LABELS: labels, **typed})
    of_labels = DTYPES[dtype] if task.labels == VALUES else torch.int64
    shape = (batch, seq) if task.labels == OF_TOKENS else (batch,)
    values = {}
    if task.labels == OF_SEQUENCES:
        with _disable_current_modes():  # values are nobody's memory
            values = {LABELS: torch.zeros(shape, dtype=of_labels, device="cpu")}
            if config.is_encoder_decoder:
                values[WORDS] = torch.full((batch, seq), WORD, device="cpu")
                values[WORDS][:, -1] = config.eos_token_id
    if device != "meta" and WORDS in values:
        ids = values[WORDS].to(device)
    return Inputs({WORDS: ids, LABELS: torch.zeros(shape, dtype=of_labels, device=device)}, values)


def with_bytes(made: Inputs, device: str) -> Inputs:
    """The same on a device that has bytes: pixels are zero."""
    tensors = {
        name: made.values[name].to(device) if name in made.values else torch.zeros_like(each, device=device)
        for name, each in made.tensors.items()
    }  # fmt: skip
    return Inputs({**tensors, LABELS: tensors[WORDS]})


def half_a_minute(config: Any, batch: int, dtype: torch.dtype, device: str) -> torch.Tensor:
    """Whisper's: 30 s, to which sound is padded; the encoder's convolutions leave every other frame."""
    return torch.zeros((batch, config.num_mel_bins, 2 * config.max_source_positions), dtype=dtype, device=device)


SOUNDS: dict[str, Callable[[Any, int, torch.dtype, str], torch.Tensor]] = {"whisper": half_a_minute}
"""By model_type."""
