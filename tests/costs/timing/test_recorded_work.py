"""Products and attention of recorded models, by arithmetic and by the formula for described ones."""

from __future__ import annotations

from typing import Any

import pytest

from zeroplan.architectures.recorded.model import recorded_model
from zeroplan.catalog import presets, recording
from zeroplan.costs.passes import timeline_request
from zeroplan.costs.timing import work as counted
from zeroplan.costs.timing.work import RecordedFlops, recorded_flops, work
from zeroplan.request.options import Options
from zeroplan.request.request import read_request
from zeroplan.specs.job import Job


def job(name: str, **options: Any) -> Job:
    fixed = {"model": name, "gpus": "1", "stage": "0", "micro_batch": "1", "checkpointing": "none", **options}
    return read_request(Options(**fixed)).job()


def test_whisper_runs_its_encoder_on_thirty_seconds() -> None:
    """1,500 frames in 32 layers of 12·d² weights and attention both ways, two convolutions of 3 frames; 256 words in 32
    layers of 14·d² weights, whose attention to the frames has two products of 2·d² more on those; the head.
    """
    d, frames, words, layers = 1280, 1500, 256, 32
    encoder = layers * (2 * 12 * d * d * frames + 4 * frames * frames * d)
    convolutions = 2 * 3 * (2 * frames * d * 128 + frames * d * d)
    decoder = layers * (2 * d * d * (14 * words + 2 * frames) + 4 * words * frames * d)
    head = 2 * words * d * 51866
    causal = layers * 4 * d * words * (words + 1) // 2
    assert recorded_flops(job("whisper-large-v3", seq="256")) == RecordedFlops(
        encoder + convolutions + decoder + head, causal
    )


@pytest.mark.parametrize("name", ["granite-3.3-8b", "glm-4-9b-0414", "granite-3.1-3b-a800m"])
@pytest.mark.parametrize("micro_batch", ["1", "3"])
def test_a_decoders_are_those_of_its_tensors(name: str, micro_batch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = job(name, seq="2048", micro_batch=micro_batch)
    recorded = work(one)
    monkeypatch.setattr(counted, "recorded_flops", lambda _job: None)
    by_tensors = work(one)
    assert recorded.layers.flops == pytest.approx(by_tensors.layers.flops, rel=1e-12)
    assert recorded.attention == pytest.approx(by_tensors.attention, rel=1e-12)


def test_layers_with_a_state_have_no_attention(monkeypatch: pytest.MonkeyPatch) -> None:
    """Six of lfm2-1.2b's sixteen layers attend."""
    one = job("lfm2-1.2b", seq="2048")
    recorded = work(one)
    monkeypatch.setattr(counted, "recorded_flops", lambda _job: None)
    assert recorded.attention == pytest.approx(work(one).attention * 6 / 16, rel=1e-12)


@pytest.mark.parametrize("name", ["gemma-4-31b", "qwen2.5-vl-7b", "olmo-3-7b", "t5-base", "nemotron-3-nano-30b-a3b"])
def test_forward_multiplies_as_much_whatever_runs_again(name: str) -> None:
    """For one trace serves all: with checkpointing too, of which Gemma 4 has programs of its own, and at stage 3."""
    flops = set()
    for kind in ("none", "full", "every-3"):
        for stage in ("2", "3"):
            one = job(name, gpus="8", stage=stage, seq="1024", micro_batch="2", checkpointing=kind)
            request = timeline_request(one)
            causal, both_ways = (one.model.profile.flops(request, causal=each) for each in (True, False))
            assert causal
            assert both_ways
            flops.add((causal.forward, both_ways.forward))
    assert len(flops) == 1


def test_described_models_are_counted_by_their_tensors() -> None:
    assert recorded_flops(job("llama-3.2-1b", seq="2048")) is None


def test_where_flash_attention_alone_is_recorded_its_tensors_say() -> None:
    known = recording.from_file(presets.recording_of("smollm3-3b"))
    flash = [each for each in known.variants if each.attention == "flash_attention_2"]
    one = job("smollm3-3b", seq="2048", attention="flash_attention_2")
    assert recorded_flops(one) is not None
    alone = one._replace(model=recorded_model(known._replace(variants=tuple(flash)), source="case"))
    assert recorded_flops(alone) is None
    assert work(alone).layers.flops == pytest.approx(work(one).layers.flops, rel=1e-12)
