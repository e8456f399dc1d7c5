"""The sequence length that is taken where none is stated."""

from __future__ import annotations

import pytest


@pytest.mark.parametrize(
    ("model", "seq", "said"),
    [
        # config.json of each: n_positions 1024, max_position_embeddings 512, none (ALiBi), 4096
        ("gpt2", 1024, "sequence 1024, all of the model's positions, under the usual 2048 (--seq)"),
        ("bert-base", 512, "sequence 512, all of the model's positions, under the usual 2048 (--seq)"),
        ("bloom-560m", 2048, "sequence 2048 (--seq)"),
        ("llama-2-7b", 2048, "sequence 2048 (--seq)"),
    ],
)
def test_the_usual_sequence_is_no_longer_than_the_model_has_positions(zeroplan, model, seq, said):
    found = zeroplan("estimate", "--model", model, "--gpus", "8", "--stage", "2", "--json").json
    assert found["workload"]["seq"] == seq
    assert said in found["assumed"]


def test_a_stated_sequence_is_taken_even_beyond_the_positions(zeroplan):
    found = zeroplan("estimate", "--model", "gpt2", "--gpus", "8", "--stage", "2", "--seq", "2048", "--json").json
    assert found["workload"]["seq"] == 2048
    assert [said for said in found["assumed"] if "sequence" in said] == [
        "sequence 2048 is beyond the model's 1024 positions, which it has learned: as it is, its training stops there"
    ]
