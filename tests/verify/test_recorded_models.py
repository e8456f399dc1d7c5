"""Recorded models as they are planned: beside the described family, beside torch, and beside DeepSpeed itself.

All on the meta device, small; where torch, transformers or DeepSpeed are missing these are skipped. ZEROPLAN_DRAWS sets how
many configs of described families are drawn, ZEROPLAN_SEED where their seeds start.
"""

from __future__ import annotations

import gc
import importlib.util
import json
import os
from contextlib import suppress
from functools import lru_cache
from itertools import product
from random import Random

import pytest

from tests.conftest import REFERENCES
from tests.references.activation_draws import DTYPES, EAGER_ONLY, FAMILIES, drawn_config
from zeroplan.architectures.heads import head_of
from zeroplan.architectures.model import model_of
from zeroplan.architectures.read import read_config
from zeroplan.architectures.recorded import layers
from zeroplan.architectures.recorded.model import recorded_model
from zeroplan.catalog.recording import read, written
from zeroplan.errors import SpecError
from zeroplan.specs.checkpointing import PLAIN, Recomputing
from zeroplan.specs.images import NO_IMAGES, Images
from zeroplan.specs.input_sizes import InputSizes
from zeroplan.specs.model import TimelineRequest

torch = pytest.importorskip("torch", reason="needs torch (zeroplan[verify])")
transformers = pytest.importorskip("transformers", reason="needs transformers (zeroplan[verify])")

from transformers.models.auto.processing_auto import PROCESSOR_MAPPING_NAMES  # noqa: E402

from tests.references.make_recorded_families import content  # noqa: E402
from tests.verify.test_recordings import Bytes  # noqa: E402
from zeroplan.verify.images import KINDS, TYPES, counted  # noqa: E402
from zeroplan.verify.inputs import inputs  # noqa: E402
from zeroplan.verify.kernels import as_on_cuda  # noqa: E402
from zeroplan.verify.recording import variants  # noqa: E402
from zeroplan.verify.recording.fast_kernels import fast_kernels  # noqa: E402
from zeroplan.verify.recording.model import built, config_of, recording  # noqa: E402
from zeroplan.verify.recording.variants import Way  # noqa: E402
from zeroplan.verify.task import TYPED, class_of, task_of  # noqa: E402
from zeroplan.verify.values import ValuedStandIns  # noqa: E402

SDPA = (Way("sdpa", "bf16"),)
DRAWN, FIRST = int(os.environ.get("ZEROPLAN_DRAWS", "3")), int(os.environ.get("ZEROPLAN_SEED", "0"))
"""Drawn configs of described families that are recorded, and the seed of the first."""
SMALL = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 4, "num_attention_heads": 4,
         "num_key_value_heads": 2, "vocab_size": 300}  # fmt: skip
EXPERTS = {**SMALL, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
DESCRIBED = {
    "qwen3": {**SMALL, "head_dim": 16}, "qwen3_moe": {**EXPERTS, "head_dim": 16, "num_experts": 4},
    "gpt_oss": {**SMALL, "head_dim": 16, "num_local_experts": 4, "num_experts_per_tok": 2},
    "bloom": {"hidden_size": 64, "n_layer": 4, "n_head": 4, "vocab_size": 300},
}  # fmt: skip
DELTA = {**SMALL, "head_dim": 32, "linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 16,
         "linear_value_head_dim": 16}  # fmt: skip
MROPE = {"rope_type": "default", "mrope_section": [2, 3, 3]}
VISION = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 3, "num_attention_heads": 4}
UNDESCRIBED = {
    "glm4_moe": {**EXPERTS, "head_dim": 16, "n_routed_experts": 4, "pad_token_id": 0},
    "t5": {"d_model": 64, "d_ff": 96, "num_layers": 2, "vocab_size": 300, "decoder_start_token_id": 0},
    "bart": {"d_model": 64, "encoder_layers": 3, "decoder_layers": 3, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96,
             "encoder_attention_heads": 4, "decoder_attention_heads": 4, "vocab_size": 300},
    "ctrl": {"n_embd": 64, "n_head": 4, "n_layer": 3, "dff": 96, "vocab_size": 300},
    "bart classifier": {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 96, "vocab_size": 300,
                        "encoder_attention_heads": 4, "decoder_attention_heads": 4, "decoder_ffn_dim": 96, "num_labels": 3,
                        "architectures": ["BartForSequenceClassification"]},
    "whisper": {"d_model": 64, "encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96,
                "encoder_attention_heads": 4, "decoder_attention_heads": 4, "vocab_size": 300, "pad_token_id": 0,
                "decoder_start_token_id": 1},
    "gemma3 on text": {"text_config": {**SMALL, "head_dim": 16, "sliding_window": 4096}, "image_token_index": 290,
                       "vision_config": {**VISION, "image_size": 56, "patch_size": 14}},
    "olmo3": {**SMALL, "num_hidden_layers": 8, "sliding_window": 512, "max_position_embeddings": 8192},
    "qwen3_5_text": DELTA, "roberta": {**SMALL, "pad_token_id": 0},
    "internvl": {
        "text_config": {**SMALL, "model_type": "qwen2"}, "image_token_id": 290, "image_seq_length": 16,
        "vision_config": {**VISION, "image_size": [112, 112], "patch_size": [14, 14]},
    },
    "qwen2_5_vl": {
        "text_config": {**SMALL, "rope_parameters": {**MROPE, "rope_theta": 1e6}},
        "vision_config": {"depth": 3, "hidden_size": 64, "num_heads": 4, "intermediate_size": 96, "patch_size": 14,
                          "out_hidden_size": 64, "fullatt_block_indexes": [1], "window_size": 56},
        "image_token_id": 290, "video_token_id": 291, "vision_start_token_id": 292, "vision_end_token_id": 293,
    },
    "qwen2_vl": {
        "text_config": {**SMALL, "rope_parameters": {**MROPE, "rope_theta": 1e6}},
        "vision_config": {"depth": 3, "embed_dim": 64, "num_heads": 4, "mlp_ratio": 2, "patch_size": 14, "hidden_size": 64},
        "image_token_id": 290, "video_token_id": 291, "vision_start_token_id": 292, "vision_end_token_id": 293,
    },
    "llava_next": {
        "text_config": {**SMALL, "model_type": "llama"}, "image_token_index": 290,
        "vision_config": {**VISION, "model_type": "clip_vision_model", "image_size": 56, "patch_size": 14},
        "image_grid_pinpoints": [[56, 112], [112, 56], [112, 112]],
    },
    "gemma4": {
        "text_config": {**SMALL, "num_hidden_layers": 2, "head_dim": 16, "global_head_dim": 16, "pad_token_id": 0,
                        "hidden_size_per_layer_input": 0, "num_kv_shared_layers": 0, "layer_types": ["full_attention"] * 2},
        "vision_config": {**VISION, "num_key_value_heads": 4, "head_dim": 16, "patch_size": 16, "pooling_kernel_size": 3},
        "image_token_id": 290, "video_token_id": 291, "audio_token_id": 292, "audio_config": None,
    },
}  # fmt: skip
GEMMA_4 = UNDESCRIBED["gemma4"]
UNDESCRIBED["gemma4 on text"] = {
    **GEMMA_4,
    "text_config": {**GEMMA_4["text_config"], "num_hidden_layers": 5, "sliding_window": 512,
                    "layer_types": [*["sliding_attention"] * 3, "full_attention", "full_attention"]},
}  # fmt: skip
UNDESCRIBED["gemma4 with shared keys"] = {
    **GEMMA_4,
    "text_config": {**GEMMA_4["text_config"], "num_hidden_layers": 9, "num_kv_shared_layers": 5, "sliding_window": 64,
                    "hidden_size_per_layer_input": 32, "vocab_size_per_layer_input": 300, "use_double_wide_mlp": True,
                    "layer_types": [*["sliding_attention"] * 2, "full_attention"] * 3},
}  # fmt: skip
PROCESSED = json.loads((REFERENCES / "image_inputs.json").read_text())
IMAGES = {"internvl": Images(1, 112, 112), "qwen2_5_vl": Images(1, 56, 84), "llava_next": Images(1, 100, 80),
          "gemma4": Images(1, 48, 96), "qwen2_vl": Images(1, 56, 84), "gemma3 on text": NO_IMAGES,
          "gemma4 on text": NO_IMAGES, "gemma4 with shared keys": NO_IMAGES}  # fmt: skip
WAYS = {"none": PLAIN, "full": Recomputing(1), "every 2": Recomputing(2), "reentrant": Recomputing(1, reentrant=True)}


@pytest.fixture(scope="module")
def recorded():
    """A recording by its family, read from its file's text; of images that run one by one, of two batches."""
    known = {}
    patched = pytest.MonkeyPatch()
    patched.setattr(variants, "BATCHES", (1, 2))

    def of(family):
        if family not in known:
            content = {"model_type": family.split()[0], **(DESCRIBED | UNDESCRIBED)[family]}
            attention = class_of(config_of(content, "case"), "case")._supports_sdpa
            way = Way("sdpa" if attention else "eager", "bf16")
            made = recording(content, name=family, place="case", ways=[way], sizes=InputSizes(IMAGES.get(family)))
            known[family] = read(written(made).encode(), "model.trace.json")
        return known[family]

    yield of
    patched.undo()


def request(recording_, batch, seq, recomputing, *, zero_linear=False):
    return TimelineRequest(
        batch=batch, seq=seq, width=2, half=False, attention=recording_.variants[0].attention, kernel="cuda",
        recomputing=recomputing, zero_linear=zero_linear,
    )  # fmt: skip


@pytest.mark.parametrize("family", DESCRIBED)
def test_it_is_the_described_model(recorded, family):
    """Tensors, buffers, bytes, FLOPs, and the order of hooks and gradients."""
    check_is_described(recorded(family), seq=200)


@pytest.mark.parametrize("seed", range(FIRST, FIRST + DRAWN))
def test_drawn_configs_are_as_described(seed):
    r = Random(f"described {seed}")
    family = FAMILIES[seed % len(FAMILIES)]
    content = drawn_config(r, family)
    eager = family in EAGER_ONLY or r.random() < 0.4
    way = Way("eager" if eager else "sdpa", r.choice(DTYPES))
    check_is_described(recording(content, name=family, place="case", ways=[way]), seq=r.choice((96, 192, 416)), way=way)


def check_is_described(recording_, *, seq, way=SDPA[0]):
    model = recorded_model(recording_, source="model.trace.json")
    model_type, config = read_config(json.loads(recording_.config), "case")
    described = model_of(model_type, config, name="case", source="case")
    assert (model.tensors, model.buffers, model.tied) == (described.tensors, described.buffers, described.tied)
    of_way = {"width": 4 if way.dtype == "fp32" else 2, "half": way.dtype == "fp16"}
    for batch in (1, 2, 3):
        for recomputing in WAYS.values():
            for zero_linear in (False, True):
                asked = request(recording_, batch, seq, recomputing, zero_linear=zero_linear)._replace(**of_way)
                assert model.profile.alone(asked) == described.profile.alone(asked), (batch, recomputing, zero_linear)
                assert model.profile.flops(asked, causal=True) == described.profile.flops(asked, causal=True)
    for frozen in (frozenset(), frozenset({0, 5, 6})):
        one, other = (each.profile.execution(eager=way.attention == "eager", frozen=frozen) for each in (model, described))
        for name in ("modules", "layers", "gradients", "gradients_stage_3", "forward", "backward", "recomputing"):
            assert list(getattr(one, name)) == list(getattr(other, name)), name


def torchs(family, batch, seq, *, checkpoints, every=1, reentrant=False, frozen=()):
    """Bytes saved when forward has returned, and the peaks of forward and of backward."""

    def drop(parameter):
        parameter.grad = None

    config = config_of({"model_type": family.split()[0], **UNDESCRIBED[family]}, "case")
    kind = class_of(config, "case")
    model = built(kind, config, "bf16", "sdpa" if kind._supports_sdpa else "eager")
    if checkpoints:
        model.activation_checkpointing_enable({"use_reentrant": reentrant}, every_n_layers=every)
    for at, parameter in enumerate(model.parameters()):
        parameter.requires_grad_(at not in frozen and parameter.requires_grad)
    given = inputs(config, task_of(kind, config, "case"), InputSizes(IMAGES.get(family)), batch, seq, "bf16")
    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(drop)
    tracked = Bytes([*model.parameters(), *model.buffers(), *given.tensors.values()])
    tracked.stand_ins = ValuedStandIns()
    for name, value in given.values.items():
        tracked.stand_ins.known(given.tensors[name], value)
    with as_on_cuda(), fast_kernels(), tracked, tracked.stand_ins.made_of_lists():
        output = model(**given.tensors)
        loss = output.loss
        del output
        gc.collect()
        saved, forward, tracked.most = tracked.now, tracked.most, tracked.now
        loss.backward()
    return saved, forward, tracked.most


@pytest.mark.parametrize("checkpoints", [False, True], ids=["plain", "checkpointed"])
@pytest.mark.parametrize("family", ["glm4_moe", "qwen3_5_text", "roberta", "internvl", "qwen2_5_vl", "llava_next"])
def test_bytes_are_torchs(recorded, family, checkpoints):
    """At sizes that were not recorded."""
    model = recorded_model(recorded(family), source="model.trace.json")
    for batch, seq in ((1, 192), (2, 448)):
        asked = request(recorded(family), batch, seq, Recomputing(1) if checkpoints else PLAIN)
        assert model.profile.alone(asked) == torchs(family, batch, seq, checkpoints=checkpoints), (batch, seq)


@pytest.mark.parametrize("checkpoints", [False, True], ids=["plain", "checkpointed"])
@pytest.mark.parametrize("seq", [448, 512, 1152])
def test_layers_that_are_alike_below_a_window_alone(recorded, seq, checkpoints):
    """Olmo 3's with a window get a mask from so many tokens on, those of full attention none."""
    assert {each.tokens for each in recorded("olmo3").variants} == {(1, 511), (512, 0)}
    model = recorded_model(recorded("olmo3"), source="model.trace.json")
    for batch in (1, 2):
        asked = request(recorded("olmo3"), batch, seq, Recomputing(1) if checkpoints else PLAIN)
        assert model.profile.alone(asked) == torchs("olmo3", batch, seq, checkpoints=checkpoints), batch


@pytest.mark.parametrize("frozen", [(), range(0, 200, 2), range(3)], ids=["none", "every other", "the first"])
@pytest.mark.parametrize("family", ["bart", "glm4_moe"])
def test_reentrant_checkpoints_hand_all_gradients_on(recorded, family, frozen):
    """To each tensor given by position: a decoder's layers have the encoder's output so."""
    model = recorded_model(recorded(family), source="model.trace.json")
    batch, seq = 2, 448
    asked = request(recorded(family), batch, seq, WAYS["reentrant"])._replace(frozen=frozenset(frozen))
    assert model.profile.alone(asked) == torchs(family, batch, seq, checkpoints=True, reentrant=True, frozen=frozen)


@pytest.mark.parametrize("family", ["gemma4 on text", "gemma4 with shared keys"])
@pytest.mark.parametrize("way", ["none", "full", "every 2", "reentrant"])
def test_a_layer_that_runs_again_puts_its_keys_and_values_into_the_mapping_again(recorded, way, family):
    """Of each kind of Gemma 4's layers that have keys of their own the last does. They come with the graph that made
    them, which nobody goes backward through: it stays until the first layer is done.
    """
    recording_, recomputing = recorded(family), WAYS[way]
    model = recorded_model(recording_, source="model.trace.json")
    for batch, seq in ((2, 448), (1, 640)):
        how = {"checkpoints": recomputing != PLAIN, "every": recomputing.every, "reentrant": recomputing.reentrant}
        measured = torchs(family, batch, seq, **how)
        assert model.profile.alone(request(recording_, batch, seq, recomputing)) == measured, (batch, seq)


def test_what_asks_for_a_gradient_only_in_checkpointed_layers(recorded):
    """T5's code asks whether layers are: its decoder has biases, all zero, that get gradients then. Its layers hand biases
    through, which a reentrant checkpoint makes new tensors of.
    """
    model = recorded_model(recorded("t5"), source="model.trace.json")
    assert {each.checkpoints for each in recorded("t5").variants} == {False, True}
    assert {each.checkpoints for each in recorded("bart").variants} == {None}
    asked = request(recorded("t5"), 2, 448, Recomputing(1))
    assert model.profile.alone(asked) == torchs("t5", 2, 448, checkpoints=True)
    assert (model.hands_through, recorded_model(recorded("bart"), source="case").hands_through) == (True, False)


@pytest.mark.parametrize(
    ("model", "checkpointing", "message"),
    [
        ("t5", "full-reentrant", "whose layers return tensors that they are given"),
        ("t5", "deepspeed", "write --checkpointing full"),
        ("ctrl", "full", "(CTRLLMHeadModel.supports_gradient_checkpointing is false); write --checkpointing none"),
    ],
)
def test_checkpointing_that_a_class_does_not_have_is_refused(recorded, zeroplan, tmp_path, model, checkpointing, message):
    path = tmp_path / "model.trace.json"
    path.write_text(written(recorded(model)))
    words = ("--model", str(path), "--gpus", "2", "--seq", "256")
    ran = zeroplan("estimate", *words, "--checkpointing", checkpointing)
    assert (ran.code, ran.out, ran.err.count("\n"), message in ran.err) == (2, "", 1, True), ran.err
    chosen = zeroplan("recommend", *words, "--gpu-mem", "24", "--json")
    assert chosen.code == 0, chosen.err


@pytest.mark.parametrize("checkpoints", [False, True], ids=["plain", "checkpointed"])
def test_places_of_patches_are_known(recorded, checkpoints):
    """Gemma 4 pools by places, whose weights are floats; and its layers are given a mapping of keys and values, which
    checkpoints keep.
    """
    model = recorded_model(recorded("gemma4"), source="model.trace.json")
    asked = request(recorded("gemma4"), 2, 448, Recomputing(1) if checkpoints else PLAIN)
    assert model.profile.alone(asked) == torchs("gemma4", 2, 448, checkpoints=checkpoints)


@pytest.mark.parametrize(("family", "same"), [("qwen3", True), ("gpt_neox", False)])
def test_flash_attention_is_as_described(family, same):
    """Of both versions of the package, which run one program where queries lie as the third has its result."""
    content = {"model_type": family, **SMALL, "head_dim": 16}
    ways = [Way(attention, "bf16") for attention in ("flash_attention_2", "flash_attention_3")]
    recording_ = recording(content, name=family, place="case", ways=ways)
    assert ({each.program for each in recording_.variants} == {0, 1}) == same
    model = recorded_model(recording_, source="case")
    model_type, config = read_config(content, "case")
    described = model_of(model_type, config, name=family, source="case")
    for batch, way, recomputing in product((1, 2, 3), ways, WAYS.values()):
        asked = TimelineRequest(
            batch=batch, seq=192, width=2, half=False, attention=way.attention, kernel="cuda", recomputing=recomputing,
            zero_linear=False,
        )  # fmt: skip
        assert model.profile.alone(asked) == described.profile.alone(asked), (batch, way, recomputing)
        assert model.profile.flops(asked) == described.profile.flops(asked)


@pytest.mark.parametrize("seq", [480, 512, 544, 1024])
def test_flash_attention_is_given_a_window_beyond_it(seq):
    """A sequence as long as the window is looked at whole, a longer one is not."""
    content = {"model_type": "gemma3_text", **SMALL, "head_dim": 16, "sliding_window": 512}
    way = Way("flash_attention_3", "bf16")
    model = recorded_model(_windowed(json.dumps(content), way), source="case")
    model_type, config = read_config(content, "case")
    described = model_of(model_type, config, name="gemma3_text", source="case")
    for batch in (1, 2):
        asked = TimelineRequest(
            batch=batch, seq=seq, width=2, half=False, attention=way.attention, kernel="cuda", recomputing=PLAIN,
            zero_linear=False,
        )  # fmt: skip
        assert model.profile.alone(asked) == described.profile.alone(asked)


@lru_cache(1)
def _windowed(content, way):
    return recording(json.loads(content), name="windowed", place="case", ways=[way])


SEVERAL_CHAINS = {
    "internvl": {
        "text_config": {**SMALL, "num_hidden_layers": 5, "model_type": "qwen2"}, "image_token_id": 290,
        "image_seq_length": 16,
        "vision_config": {**VISION, "num_hidden_layers": 5, "image_size": [112, 112], "patch_size": [14, 14]},
    },
    "bart": {"d_model": 64, "encoder_layers": 5, "decoder_layers": 5, "encoder_ffn_dim": 96, "decoder_ffn_dim": 96,
             "encoder_attention_heads": 4, "decoder_attention_heads": 4, "vocab_size": 300},
}  # fmt: skip


def all_of(model, asked):
    """Bytes, FLOPs, and both passes with the places of hooks and gradients."""
    timeline = model.profile.timeline(asked)
    both = timeline.forward, timeline.backward
    passes = [(list(each.now), list(each.hooks), dict(each.ready), max(each.most)) for each in both]
    return model.profile.alone(asked), model.profile.flops(asked), timeline.saved, passes


@pytest.mark.parametrize("family", SEVERAL_CHAINS)
def test_a_few_layers_stand_for_each_chain(family, monkeypatch):
    """As if all ran."""
    monkeypatch.setattr(variants, "BATCHES", (1, 2))
    content = {"model_type": family, **SEVERAL_CHAINS[family]}
    recording_ = recording(content, name=family, place="case", ways=SDPA, sizes=InputSizes(IMAGES.get(family)))
    represented = recorded_model(recording_, source="case")
    for at in range(len(recording_.variants)):
        assert represented.profile.traced(at).root.chains == (5, 5)
    monkeypatch.setattr(layers, "_chains", lambda _steps: iter(()))
    every = recorded_model(recording_, source="case")
    assert every.profile.root.chains == ()
    third = frozenset(range(0, len(every.tensors), 3))
    for batch, recomputing, frozen in product((1, 2), WAYS.values(), (frozenset(), third)):
        asked = request(recording_, batch, 256, recomputing)._replace(frozen=frozen)
        assert all_of(represented, asked) == all_of(every, asked), (batch, recomputing, frozen)


HEADS = [
    ("Qwen3ForSequenceClassification", {"num_labels": 3, "pad_token_id": 0}),
    ("Qwen3ForSequenceClassification", {"num_labels": 1, "pad_token_id": 0}),
    ("Qwen3ForTokenClassification", {"num_labels": 5}),
]


@pytest.mark.parametrize(("architecture", "more"), HEADS)
def test_a_head_is_the_described_one(architecture, more):
    content = {"model_type": "qwen3", "architectures": [architecture], **DESCRIBED["qwen3"], **more}
    model = recorded_model(recording(content, name="case", place="case", ways=SDPA), source="case")
    model_type, config = read_config(content, "case")
    head = head_of(content, config, model_type, architecture, "case")
    described = model_of(model_type, config, name="case", source="case", architecture=architecture, head=head)
    assert (model.tensors, model.loss, model.labels) == (described.tensors, described.loss, described.labels)
    for batch in (1, 2, 3):
        asked = TimelineRequest(
            batch=batch, seq=200, width=2, half=False, attention="sdpa", kernel="cuda", recomputing=PLAIN, zero_linear=False
        )
        assert model.profile.alone(asked) == described.profile.alone(asked)


def test_images_of_a_config_are_recorded_on_the_spot(zeroplan, tmp_path, monkeypatch):
    """Once; other images are another recording."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"model_type": "internvl", **UNDESCRIBED["internvl"]}))
    words = ("estimate", "--model", str(path), "--gpus", "2", "--seq", "256")
    refused = zeroplan(*words)
    assert (refused.code, "write --images 1 --image-size 448x448 with it" in refused.err) == (2, True), refused.err
    size = zeroplan(*words, "--images", "1", "--image-size", "56x56")
    assert (size.code, "expected what this model takes: 112x112" in size.err) == (2, True), size.err
    tokens = zeroplan(*words, "--images", "1", "--image-tokens", "65")
    assert (tokens.code, "found 65, expected the 16 of this model" in tokens.err) == (2, True), tokens.err
    ran = zeroplan(*words, "--images", "1", "--image-size", "112x112")
    assert (ran.code, "256 tokens with 1 image of 112x112 pixels" in " ".join(ran.out.split())) == (0, True), ran.err
    (kept,) = (tmp_path / "cache" / "zeroplan" / "recordings").iterdir()
    other = zeroplan("estimate", "--model", str(kept), "--images", "2", "--image-size", "112x112")
    assert "found recorded with 1 image of 112x112 pixels, expected 2 images of 112x112 pixels" in other.err
    text = zeroplan("estimate", "--model", "qwen3-0.6b", "--images", "1", "--image-size", "112x112")
    assert "--images: found qwen3-0.6b, a model of text" in text.err


def test_what_was_not_recorded_is_refused(recorded, zeroplan, tmp_path):
    path = tmp_path / "model.trace.json"
    path.write_text(written(recorded("qwen3_5_text")))
    file = ("--model", str(path), "--gpus", "4", "--seq")
    for words, message in (
        (("100",), "no program of 100 tokens a sequence, expected what was recorded: multiples of 64"),
        (("128", "--attention", "eager"), "no program of eager in bf16"),
        (("128", "--precision", "fp32"), "no program of sdpa in fp32"),
        (("128", "--attention", "flash_attention_2"), "of which its recording has no program"),
    ):
        ran = zeroplan("estimate", *file, *words)
        assert (ran.code, message in ran.err, ran.out, ran.err.count("\n")) == (2, True, "", 1), ran.err
    assert zeroplan("estimate", *file, "128").code in (0, 1)


@pytest.mark.parametrize(
    ("family", "architecture", "message"),
    [
        ("glm4_moe", "Glm4MoeForTokenClassification", "which is not in transformers .*, as Glm4MoeForCausalLM"),
        ("roberta", "RobertaForQuestionAnswering", "whose inputs are not planned"),
        ("t5", "T5EncoderModel", "expected a class with a loss; write T5ForConditionalGeneration"),
        ("roberta", "Wav2Vec2ForCTC", "Wav2Vec2ForCTC, a model of input_values"),
    ],
)
def test_a_class_that_is_not_planned_is_refused(family, architecture, message):
    content = {"model_type": family, **UNDESCRIBED[family], "architectures": [architecture]}
    with pytest.raises(SpecError, match=message):
        recording(content, name="case", place="case", ways=SDPA)


def test_images_have_to_be_said_and_to_fit():
    content = {"model_type": "internvl", **UNDESCRIBED["internvl"]}
    with pytest.raises(SpecError, match="--images 1 --image-size 448x448"):
        recording(content, name="case", place="case", ways=SDPA)
    with pytest.raises(SpecError, match="expected what this model takes: 112x112"):
        recording(content, name="case", place="case", ways=SDPA, sizes=InputSizes(Images(1, 56, 56)))
    with pytest.raises(SpecError, match="a model that takes images"):
        recording({"model_type": "qwen3", **DESCRIBED["qwen3"]}, name="case", place="case", ways=SDPA, sizes=InputSizes(Images(1, 56, 56)))


@pytest.mark.parametrize("row", PROCESSED["made"], ids=lambda row: row["family"])
def test_inputs_of_images_are_those_of_the_processor(row):
    """transformers' own image processors, of the same sizes (make_image_inputs)."""
    family, number = row["family"], PROCESSED["sequences"]
    given = KINDS[family](config_of(content(family), family), Images(*row["images"]), number, torch.float32)
    for name, tensor in {**given.pixels, **given.values}.items():
        made = row["inputs"][name]
        assert (list(tensor.shape), str(tensor.dtype)) == (made["shape"], f"torch.{made['dtype']}"), name
        assert name not in given.values or "values" not in made or tensor.tolist() == made["values"], name


def test_words_of_images_are_told_apart_where_the_processor_does():
    """transformers' own classes say whether they make mm_token_type_ids; two make token_type_ids in any case."""
    makes = {}
    for family in KINDS.keys() - TYPED.keys():
        with suppress(AttributeError, ImportError):  # under another family's name, or of torchvision
            processor = getattr(transformers, PROCESSOR_MAPPING_NAMES.get(family) or "none")
            makes[family] = processor.return_mm_token_type_ids
    assert len(makes) > 20
    assert makes == {family: family in TYPES for family in makes}


HAS_DEEPSPEED = importlib.util.find_spec("deepspeed") is not None


@pytest.mark.skipif(not HAS_DEEPSPEED, reason="needs DeepSpeed (zeroplan[verify])")
@pytest.mark.parametrize(
    ("family", "words"),
    [
        ("glm4_moe", ("--stage", "3", "--micro-batch", "2")),
        ("qwen3_5_text", ("--stage", "2", "--micro-batch", "1", "--checkpointing", "full")),
        ("t5", ("--stage", "1", "--micro-batch", "2")),
        ("roberta", ("--stage", "0", "--micro-batch", "3")),
        ("internvl", ("--stage", "2", "--micro-batch", "2")),
        ("llava_next", ("--stage", "2", "--micro-batch", "2")),
        ("qwen2_vl", ("--stage", "3", "--micro-batch", "1", "--checkpointing", "full", "--freeze", "*visual*")),
        ("gemma3 on text", ("--stage", "0", "--micro-batch", "2", "--checkpointing", "full")),
        ("bart classifier", ("--stage", "3", "--micro-batch", "2")),
        ("whisper", ("--stage", "2", "--micro-batch", "2")),
        ("gemma4 with shared keys", ("--stage", "3", "--micro-batch", "2", "--checkpointing", "full")),
    ],
    ids=lambda value: value if isinstance(value, str) else value[1],
)
def test_deepspeed_holds_and_moves_what_is_planned(recorded, zeroplan, tmp_path, family, words):
    path = tmp_path / "model.trace.json"
    path.write_text(written(recorded(family)))
    ran = zeroplan("verify", "--model", str(path), "--gpus", "4", "--seq", "256", *words, "--json")
    rows = [row for run in ran.json["runs"] for row in run["rows"]]
    assert [row for row in rows if not row["holds"]] == []
    assert len(rows) > 15


OWN_CODE = '''
from pathlib import Path

from transformers import Qwen3Config, Qwen3ForCausalLM

Path(__file__).with_name("ran").touch()
Path("{seen}").touch()


class OwnConfig(Qwen3Config):
    model_type = "own_model"


class OwnForCausalLM(Qwen3ForCausalLM):
    config_class = OwnConfig
'''


def test_own_code_runs_only_where_it_is_trusted(zeroplan, tmp_path, monkeypatch):
    monkeypatch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", str(tmp_path / "modules"))
    folder, seen, path = tmp_path / "own", tmp_path / "seen", tmp_path / "own.trace.json"
    folder.mkdir()
    (folder / "modeling_own.py").write_text(OWN_CODE.format(seen=seen))
    own = {"AutoConfig": "modeling_own.OwnConfig", "AutoModelForCausalLM": "modeling_own.OwnForCausalLM"}
    content = {"model_type": "own_model", "architectures": ["OwnForCausalLM"], **DESCRIBED["qwen3"]}
    (folder / "config.json").write_text(json.dumps({**content, "auto_map": own}))
    words = ("trace", str(folder), "-o", str(path), "--attention", "sdpa", "--precision", "bf16")
    refused = zeroplan(*words)
    assert (refused.code, refused.out, refused.err.count("\n")) == (2, "", 1)
    assert "whose class is its repository's own code" in refused.err
    assert "write --trust-remote-code to run that code" in refused.err
    assert not seen.exists()
    assert zeroplan(*words, "--trust-remote-code").code == 0
    assert seen.exists()
    known = read(path.read_bytes(), "own.trace.json")
    described = recording({"model_type": "qwen3", **DESCRIBED["qwen3"]}, name="own", place="case", ways=SDPA)
    assert (known.architecture, known.programs[0]) == ("OwnForCausalLM", described.programs[0])
    verified = zeroplan("verify", "--model", str(path), "--gpus", "2", "--stage", "2", "--seq", "256")
    assert (verified.code, verified.err.count("\n")) == (2, 1)
    assert "its class is its repository's own code" in verified.err
    (folder / "config.json").write_text(json.dumps({**content, "auto_map": {"AutoConfig": "modeling_own.Nothing"}}))
    wrong = zeroplan(*words, "--trust-remote-code", "--force")
    assert (wrong.code, wrong.err.count("\n"), "auto_map: found modeling_own.Nothing" in wrong.err) == (2, 1, True), wrong.err


@pytest.mark.parametrize(
    ("family", "tokens", "size"),
    [("qwen2_vl", 6, (56, 84)), ("qwen2_vl", 7, (28, 196)), ("mistral3", 12, (84, 112)), ("gemma4", 2, (48, 96)), ("internvl", 16, (112, 112))],
)  # fmt: skip
def test_tokens_stand_for_the_squarest_image(family, tokens, size):
    """Of Qwen2-VL and Mistral 3 a token is 28 pixels square, of Gemma 4 48: patches of 14 and 16, merged."""
    from tests.references.make_recorded_families import content

    found = counted(config_of(content(family), family), Images(1, 0, 0, tokens))
    assert found == Images(1, *size, tokens)
