"""Recorded models with several chains of layers (a tower and a decoder, an encoder and a decoder), of which less than every
other layer is checkpointed: identical layers represent each other, against a run of each layer itself.
"""

from __future__ import annotations

import pytest

from tests.architectures.test_sized import shown
from zeroplan.architectures import identical_layers
from zeroplan.catalog import presets
from zeroplan.catalog.recording import from_file, recorded_model
from zeroplan.specs.checkpointing import recomputing
from zeroplan.specs.model import TimelineRequest


def model(name):
    return recorded_model(from_file(presets.recording_of(name)), source=name)


@pytest.mark.parametrize("name", ["llava-1.5-7b", "qwen2-vl-7b", "bart-large", "t5-base"])
@pytest.mark.parametrize("every", ["every-3", "every-4", "every-8", "every-4-reentrant"])
def test_as_each_layer_itself(name, every, monkeypatch):
    wanted = TimelineRequest(
        batch=2, seq=1024, width=2, half=False, attention="sdpa", kernel="efficient", recomputing=recomputing(every),
        zero_linear=True, autocast_bytes=0,
    )  # fmt: skip
    by_roles = shown(model(name), wanted)
    monkeypatch.setattr(identical_layers, "_each_by_itself", lambda *_of: True)
    assert by_roles == shown(model(name), wanted)
