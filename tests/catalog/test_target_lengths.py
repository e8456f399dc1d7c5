"""Encoder-decoders whose targets are not as long as their sources: what is recorded, what is said, and what is counted."""

from __future__ import annotations

import pytest

from tests.conftest import REFERENCES, ROOT
from zeroplan.costs.ledger import ledger
from zeroplan.costs.timing.speed import speed
from zeroplan.costs.timing.work import work
from zeroplan.emit.check_command import checked
from zeroplan.emit.readme import _given
from zeroplan.emit.script import train_script
from zeroplan.request.options import Options
from zeroplan.request.request import read_request, read_seq

T5 = str(REFERENCES / "families" / "t5+40.trace.json.gz")
"""128 wide, 4 layers of the encoder and 6 of the decoder, MLPs of 2,048, a vocabulary of 1,000; targets of 40 tokens."""
MT5 = str(REFERENCES / "families" / "mt5+224.trace.json.gz")
"""Targets of 224 tokens."""

ENCODER_DECODER = str(ROOT / "tests" / "emit" / "configs" / "encoder_decoder.json")


def of(**options):
    usual = {"model": T5, "gpus": "2", "gpu": "h100", "stage": "2", "seq": "192", "micro_batch": "3", "checkpointing": "none"}
    return read_request(Options(**{**usual, **options}), default_params="7B", default_gpus=8).job()


@pytest.mark.parametrize(
    ("options", "beside"),
    [
        (("t5-base",), " with targets as long as their sources"),
        (("t5-base", "--seq", "64", "--target-seq", "64"), " with targets as long as their sources"),
        ((T5,), " with targets of 40 tokens"),
        ((T5, "--target-seq", "40"), " with targets of 40 tokens"),
        ((MT5, "--seq", "224", "--target-seq", "224"), " with targets of 224 tokens"),
        ((T5, "--target-seq", "40", "--lora", "8"), " with targets of 40 tokens"),
        (("whisper-large-v3",), ""),
        (("gpt2",), ""),
    ],
)
def test_the_scope_line_says_them(zeroplan, options, beside):
    ran = zeroplan("estimate", "--model", *options, "--gpus", "2", "--json")
    assert ran.code in (0, 1), ran.err
    assert f"tokens{beside}; no second model" in ran.json["scope"]["line"]


def test_of_several_models_those_that_have_one_are_said(zeroplan):
    ran = zeroplan("matrix", "--model", "gpt2,t5-base", "--gpus", "8", "--gpu", "h100")
    assert "tokens with targets as long as their sources; no second model" in " ".join(ran.out.split())


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ((T5, "--target-seq", "41"), "recorded with targets of 40 tokens, expected targets of 41 tokens"),
        ((T5, "--target-seq", "64", "--seq", "64"), "expected targets of 64 tokens; write zeroplan trace config.json -o "),
        (("t5-base", "--target-seq", "64", "--seq", "41"), "write zeroplan trace t5-base --target-seq 64, where they are"),
        (("t5-base", "--target-seq", "41"), "write zeroplan trace t5-base --target-seq 41, where they are"),
        ((ENCODER_DECODER, "--target-seq", "41"), f"write zeroplan trace {ENCODER_DECODER} --target-seq 41 where they are"),
        (("gpt2", "--target-seq", "41"), "gpt2, whose words are one sequence (--seq), expected an encoder-decoder"),
        (("whisper-large-v3", "--target-seq", "41"), "whisper-large-v3, whose words are one sequence (--seq)"),
        (("t5-base", "--target-seq", "0"), "--target-seq: found '0', expected a whole number from 1"),
    ],
)
def test_other_lengths_are_refused(zeroplan, monkeypatch, options, error):
    monkeypatch.setattr("zeroplan.catalog.kept_recordings.installed", lambda: None)
    ran = zeroplan("estimate", "--model", *options)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert error in ran.err


def test_a_size_alone_has_no_target(zeroplan):
    ran = zeroplan("estimate", "--params", "7B", "--target-seq", "128")
    assert (ran.code, "--target-seq is of a model that takes it; write --model" in ran.err) == (2, True)
    as_long = zeroplan("estimate", "--params", "7B", "--seq", "128", "--target-seq", "128")
    assert (as_long.code, as_long.err) == (2, ran.err)


def test_a_target_beyond_the_models_positions_is_said():
    """BART's decoder has 1,024 learned positions, as its encoder."""
    model = of(model="bart-large").model
    _seq, notes = read_seq(512, model._replace(target=1025))
    assert notes == (
        "target 1025 is beyond the model's 1024 positions, which it has learned: as it is, its training stops there",
    )
    assert read_seq(512, model._replace(target=1024)) == (512, ())


def test_labels_are_a_tensor_of_their_own():
    """3 × 40 words of 8 bytes, beside 3 × 192; with adapters too."""
    for job in (of(), of(lora=8)):
        lines = {line.name: line.bytes for line in ledger(job).gpu.worst("forward").lines}
        assert (lines["labels"], lines["token ids"]) == (3 * 40 * 8, 3 * 192 * 8)


def test_the_head_sees_the_target():
    """3 × 40 rows of 128 by 1,000 words; source and target as long: 3 × 192 rows."""
    rows = {3 * 40: of(), 3 * 192: of(model=str(REFERENCES / "families" / "t5.trace.json.gz"))}
    for tokens, job in rows.items():
        counted = work(job)
        assert counted.head.flops == 2 * tokens * 128 * 1000
        assert counted.logits == tokens * 1000


def test_products_are_those_of_source_and_target():
    """By hand: of each encoder layer four projections of 128 by 128 and an MLP of 128 by 2,048, twice, on 3 × 192 tokens;
    of each decoder layer the same on 3 × 40, and in cross-attention two projections on these and two on the source's.
    Attention of the encoder is to all, of the decoder to its own and to the source: two products of 128 for each pair, all
    pairs, for T5's masks are tensors.
    """
    source, target, pair = 3 * 192, 3 * 40, 3 * 2 * 2 * 128
    projection, mlp = 2 * 128 * 128, 2 * 2 * 128 * 2048
    encoder = source * (4 * projection + mlp) + pair * 192 * 192
    decoder = target * (6 * projection + mlp) + source * 2 * projection + pair * (40 * 40 + 40 * 192)
    counted = work(of())
    assert counted.layers.flops + counted.attention == pytest.approx(4 * encoder + 6 * decoder)


def test_utilisation_is_of_what_the_operators_multiply():
    """Where nothing runs again all FLOPs are the model's."""
    job = of()
    _all_pairs, causal, hardware = speed(job, ledger(job)).utilisation
    assert causal.value == pytest.approx(hardware.value)
    assert causal.convention.startswith("model FLOPs of its recorded operators")


def test_a_plans_files_have_it():
    job = of()
    assert "--model config.json --target-seq 40 " in checked(job, "hf")
    assert _given(job).startswith("Sequences of 192 tokens, targets of 40 tokens; ")
    assert '"labels": tokens.new_zeros(40)}' in train_script(job, "hf")
    assert "labels=tokens.new_zeros((len(tokens), 40))" in train_script(job, "deepspeed")


def test_weights_that_another_module_reads_are_not_packed(zeroplan):
    """T5's layers look at the dtype of a weight below them, which packing replaces."""
    ran = zeroplan("estimate", "--model", "t5-base", "--quantize", "nf4", "--lora", "8")
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert "DenseReluDense reads the weights of a layer that would be packed" in ran.err
