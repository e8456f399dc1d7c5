"""From a recording to a `Model`."""

from __future__ import annotations

import json

from zeroplan.architectures.identical_layers import checkpointing_layers
from zeroplan.architectures.model import of_tree
from zeroplan.architectures.recorded.profile import RecordedProfile
from zeroplan.architectures.recorded.recording import Recording
from zeroplan.specs.model import Model


def batches(recording: Recording) -> tuple[int, ...]:
    """The sequences of a micro-batch that it has programs of; empty where it has of any."""
    exact = {each.batches[0] for each in recording.variants if each.batches[0] == each.batches[1]}
    return () if any(each.batches[1] == 0 for each in recording.variants) else tuple(sorted(exact))


def recorded_model(recording: Recording, *, source: str, name: str = "") -> Model:
    """The model that was recorded; `source`: the file."""
    profile = RecordedProfile(recording, source)
    attentions = {each.attention for each in recording.variants}
    versions = ", ".join(f"{name} {version}" for name, version in recording.versions.items())
    return Model(
        name=name or recording.name, family=recording.model_type, shape=recording.shape,
        source=f"{source}: recorded with {versions}", config=json.loads(recording.config),
        has_sdpa="sdpa" in attentions, architecture=recording.architecture,
        no_flash="" if "flash_attention_2" in attentions else "of which its recording has no program",
        loss=recording.loss, labels=recording.labels, inputs=recording.inputs, images=recording.images,
        target=recording.target,
        checkpoints=bool(checkpointing_layers(profile.root)), hands_through=profile.root.hands_through,
        micro_batches=batches(recording), attentions=tuple(sorted(attentions)),
        recorded_with=versions, assumed=recording.notes, **of_tree(profile),
    )  # fmt: skip
