"""Shipped recordings: each is what its preset says, without torch; some are recorded anew where torch is."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from zeroplan.catalog import presets, recording
from zeroplan.catalog.models import from_preset, stated_config
from zeroplan.catalog.presets import RECORDED
from zeroplan.errors import UnknownNameError
from zeroplan.specs.checkpointing import Recomputing
from zeroplan.specs.images import Images
from zeroplan.specs.model import TimelineRequest

ROOT = Path(__file__).parents[2]
NAMES = presets.names(RECORDED)
LARGEST = 8_000_000
"""Bytes of all of them."""
ANEW = (
    "olmo-3-7b", "glm-4-9b-0414", "roberta-large", "smollm3-3b", "paligemma-3b-pt-224", "lfm2-1.2b", "qwen3-vl-4b",
    "modernbert-base", "bart-large", "granite-3.1-3b-a800m", "gemma-3-4b", "stablelm-3b-4e1t",
)  # fmt: skip
WHOLE = ("roberta-large", "smollm3-3b", "lfm2-1.2b", "granite-3.1-3b-a800m")
"""Of which all attentions and precisions are recorded anew; of the others one, which takes a fifth of the time."""
ONE_WAY = ("sdpa", "bf16")
WINDOWED = ("olmo-3-7b", "olmo-3-32b", "exaone-4.0-32b", "gemma-3-4b")
"""Other operators run from some length on."""
PUBLISHED = {
    "bart-large": 406_291_456, "gemma-3-4b": 4_300_079_472, "glm-4.5-air": 106_852_251_264 - 45 * 128,
    "granite-3.3-8b": 8_170_864_640, "llava-1.5-7b": 7_063_427_072, "mistral-small-3.1-24b": 24_011_361_280,
    "qwen2.5-vl-7b": 8_292_166_656, "seed-oss-36b": 36_151_104_512, "whisper-large-v3": 1_543_490_560,
    "glm-4-9b-0414": 9_400_279_040, "minimax-m2.5": 228_689_764_864 - 62 * 256,
    "olmo-3-32b": 32_233_522_176, "olmo-3-7b": 7_298_011_136, "paligemma-3b-pt-224": 2_923_466_480,
    "qwen2-vl-7b": 8_291_375_616, "qwen2.5-vl-32b": 33_452_718_336, "qwen3-vl-30b-a3b": 31_070_754_032,
    "qwen3-vl-32b": 33_357_390_064, "qwen3-vl-4b": 4_437_815_808, "qwen3-vl-8b": 8_767_123_696,
    "smollm3-3b": 3_075_098_624, "t5-base": 222_903_552,
}  # fmt: skip
"""Parameters as the Hub says them of the checkpoint's safetensors, in copies of its pages; MiniMax's 62 routers and
GLM's 45 have biases of 256 and 128 experts there, which are buffers."""
HAS_TORCH = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))


def test_there_are_enough_and_they_are_small():
    assert len(NAMES) >= 40
    assert PUBLISHED.keys() < set(NAMES)
    assert sum(presets.recording_of(name).stat().st_size for name in NAMES) < LARGEST


def test_no_name_is_of_two_presets():
    spelled = [set(presets._spelled(kind)) for kind in ("model", RECORDED)]
    assert spelled[0].isdisjoint(spelled[1])


@pytest.mark.parametrize("name", NAMES)
def test_it_is_what_its_preset_says(name):
    """`parameters` is torch's own count (make_recordings), and where that is known the published one."""
    _name, content = presets.load(RECORDED, name)
    model = from_preset(name)
    assert model.name == name
    assert model.parameters == content["parameters"] == PUBLISHED.get(name, model.parameters)
    assert (model.shape.layers, model.shape.hidden) == (content["layers"], content["hidden"])
    assert model.images is None or model.images[:3] == tuple(content["images"].values())
    assert bool(model.images) == bool(content["images"])
    assert content["source"]
    assert content["date"]
    assert stated_config(name).content == content["config"]
    for alias in content["aliases"]:
        assert from_preset(alias).parameters == content["parameters"]


@pytest.mark.parametrize("name", WINDOWED)
def test_each_of_its_programs_runs(name):
    """Below its window and beyond it: at the shortest sequence, forward and backward, with layers checkpointed and not."""
    model = from_preset(name)
    assert {bool(each.tokens[1]) for each in model.profile.recording.variants} == {True, False}
    for each in model.profile.recording.variants:
        batch, seq = each.batches[0], -(-max(each.tokens[0], 64) // each.multiple) * each.multiple
        for every in (0, 1) if each.checkpoints is None else (int(each.checkpoints),):
            asked = TimelineRequest(
                batch=batch, seq=seq, width=4 if each.dtypes[0] == "fp32" else 2, half=each.dtypes[0] == "fp16",
                attention=each.attention, kernel=each.backend, recomputing=Recomputing(every), zero_linear=False,
            )  # fmt: skip
            saved, forward, backward = model.profile.alone(asked)
            assert 0 < saved <= forward, (each, every)
            assert backward > 0


@pytest.mark.parametrize("name", ["qwen3-vl-8b", "olmo-3-7b", "roberta-large"])
def test_it_is_planned(zeroplan, name):
    model = from_preset(name)
    ran = zeroplan("estimate", "--model", name, "--gpus", "8", "--seq", "1024", "--json")
    assert ran.code in (0, 1), ran.err
    assert {stage["model"]["parameters"] for stage in ran.json["stages"]} == {model.parameters}
    assert ("with 1 image of" in ran.json["scope"]["line"]) == bool(model.images)
    assert ("audio" in ran.json["scope"]["excluded"]) == bool(model.images)


def test_images_that_cannot_be_recorded_are_refused_for_what_they_are(zeroplan, monkeypatch):
    """Where torch and transformers are, the command that records would say the same."""
    why = "found 364x360, expected what this model takes: 364x364"
    monkeypatch.setattr("zeroplan.catalog.kept_recordings.installed", lambda: ("2.14.1", "5.24.0"))
    monkeypatch.setattr("zeroplan.catalog.kept_recordings.recorded", lambda *_of: why)
    ran = zeroplan("estimate", "--model", "llava-1.5-7b", "--images", "1", "--image-size", "364x360")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == f"zeroplan: llava-1.5-7b with 1 image of 364x360 pixels: {why}\n"


def test_other_images_are_another_recording(zeroplan, monkeypatch):
    monkeypatch.setattr("zeroplan.catalog.kept_recordings.installed", lambda: None)
    for name in ("qwen3-vl-8b", "Qwen/Qwen3-VL-8B-Instruct"):
        ran = zeroplan("estimate", "--model", name, "--images", "2", "--image-size", "448x448")
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert "a model of images that is not recorded: torch and transformers are not installed" in ran.err
        assert f"write zeroplan trace {name} --images 2 --image-size 448x448, where they are" in ran.err
    size = zeroplan("estimate", "--model", "qwen3-vl-8b", "--images", "0", "--image-size", "448x448")
    assert (size.code, "--image-size without --images" in size.err) == (2, True), size.err
    same, other = (
        zeroplan("estimate", "--model", "qwen3-vl-8b", "--images", "1", "--image-tokens", tokens, "--stage", "3", "-q")
        for tokens in ("196", "256")
    )
    assert (same.code in (0, 1), other.code) == (True, 2), (same.err, other.err)
    assert "write zeroplan trace qwen3-vl-8b --images 1 --image-tokens 256, where they are" in other.err
    both = zeroplan("estimate", "--model", "qwen3-vl-8b", "--images", "1", "--image-tokens", "196", "--image-size", "448x448")
    assert "--image-tokens beside --image-size" in both.err
    text = zeroplan("estimate", "--model", "qwen3-vl-8b", "--images", "0")
    assert "write zeroplan trace qwen3-vl-8b --images 0, where they are" in text.err


def test_all_presets_are_listed(zeroplan):
    listed = {row["model"]: row for row in zeroplan("models", "--json").json["models"]}
    assert listed.keys() == {*presets.names("model"), *NAMES}
    assert listed["qwen3-vl-8b"]["images"] == {"number": 1, "height": 448, "width": 448, "tokens": 0}
    with pytest.raises(UnknownNameError, match="qwen3-vl-8b"):
        from_preset("qwen3-vl-8c")


@pytest.mark.skipif(not HAS_TORCH, reason="needs torch and transformers (zeroplan[verify])")
@pytest.mark.parametrize("name", ANEW)
def test_it_is_recorded_so_now(name, tmp_path):
    """In a process of its own, whose sets of strings have the order of the one that made the file."""
    known = recording.from_file(presets.recording_of(name))
    if known.versions["transformers"] != version("transformers"):
        pytest.skip(f"recorded with transformers {known.versions['transformers']}")
    way = [] if name in WHOLE else ["--of", *ONE_WAY]
    command = [sys.executable, "-m", "tests.references.make_recordings", "--into", str(tmp_path), *way, name]
    around = {**os.environ, "PYTHONHASHSEED": "0"}
    ran = subprocess.run(command, cwd=ROOT, env=around, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr[-2000:]
    made = recording.from_file(tmp_path / presets.recording_of(name).name)
    elsewhere = {"versions": {}, "variants": (), "programs": ()}
    assert made._replace(**elsewhere) == known._replace(**elsewhere)
    attention, dtype = ONE_WAY
    of_known = [one for one in known.variants if not way or (one.attention == attention and dtype in one.dtypes)]
    assert len(made.variants) == len(of_known)
    for ours, theirs in zip(made.variants, of_known, strict=True):
        dtypes = ours.dtypes if way else theirs.dtypes
        assert ours._replace(program=0) == theirs._replace(program=0, dtypes=dtypes)
        assert made.programs[ours.program] == known.programs[theirs.program]


def test_images_are_typed_as_they_are_said():
    assert Images(2, 448, 336).options == "--images 2 --image-size 448x336"
