"""Identical layers of recorded models represent each other, against a run of each layer itself: in several chains (a tower
and a decoder, an encoder and a decoder) of which less than every other layer is checkpointed, and where they name themselves.
"""

from __future__ import annotations

import pytest

from tests.architectures.test_sized import shown
from zeroplan.architectures import identical_layers
from zeroplan.catalog import presets
from zeroplan.catalog.recording import from_file, recorded_model
from zeroplan.specs.checkpointing import recomputing
from zeroplan.specs.model import TimelineRequest


def request(kind):
    return TimelineRequest(
        batch=2, seq=1024, width=2, half=False, attention="sdpa", kernel="efficient", recomputing=recomputing(kind),
        zero_linear=True, autocast_bytes=0,
    )  # fmt: skip


def model(name):
    return recorded_model(from_file(presets.recording_of(name)), source=name)


@pytest.mark.parametrize("name", ["llava-1.5-7b", "qwen2-vl-7b", "bart-large", "t5-base"])
@pytest.mark.parametrize("every", ["every-3", "every-4", "every-8", "every-4-reentrant"])
def test_as_each_layer_itself(name, every, monkeypatch):
    by_roles = shown(model(name), request(every))
    monkeypatch.setattr(identical_layers, "_each_by_itself", lambda *_of: True)
    assert by_roles == shown(model(name), request(every))


@pytest.mark.parametrize("kind", ["none", "full"])
def test_layers_whose_programs_name_themselves(kind, monkeypatch):
    """MiniMax's routers are given a buffer of the layer, which the recording has by its path in the model: all 62 layers
    are one kind, of which the first, the second and the last run."""
    known = model("minimax-m2.5")
    assert len({chosen for _layer, chosen in identical_layers.representatives(known.profile.root)}) == 3
    by_roles = shown(known, request(kind))
    monkeypatch.setattr(identical_layers, "_each_by_itself", lambda *_of: True)
    assert by_roles == shown(model("minimax-m2.5"), request(kind))
