"""Attention is chosen where nobody says which: what runs without another package, and what that would gain."""

from __future__ import annotations

import re

import pytest

FALCON = ("recommend", "--model", "falcon-7b", "--gpus", "8", "--gpu-mem", "40", "--seq", "512", "--stage", "3",
          "--micro-batch", "1", "--checkpointing", "full")  # fmt: skip
GEMMA = ("recommend", "--model", "gemma-2-2b", "--gpus", "8", "--seq", "4096", "--stage", "3", "--micro-batch", "1")


@pytest.mark.parametrize("objective", ["fastest", "least-memory"])
def test_the_better_of_both_is_taken(zeroplan, objective):
    words = (*FALCON, "--objective", objective, "--json")
    chosen, *each = (
        zeroplan(*words, *more).json["plan"]
        for more in ((), ("--attention", "sdpa"), ("--attention", "eager"))
    )
    assert [plan["strategy"]["attention"] for plan in each] == ["sdpa", "eager"]
    if objective == "fastest":
        assert chosen["step_seconds"] == min(plan["step_seconds"] for plan in each)
    else:
        assert chosen["fit"]["needed"] == min(plan["fit"]["needed"] for plan in each)


def test_it_is_shown_as_chosen_and_not_as_assumed(zeroplan):
    screen = zeroplan(*FALCON, "-v").out
    assert re.search("attention +sdpa", screen)
    assert "(--attention)" not in screen
    lean = " ".join(zeroplan(*FALCON, "--attention", "eager").out.split())
    assert 'load the model with attn_implementation="eager"' in lean


def test_what_another_package_would_gain_is_said_and_not_taken(zeroplan):
    """transformers 5.23.0 runs Gemma 2 eager by itself; flash_attention_2 keeps no scores. Sequences are long enough that
    the card is what is waited for.
    """
    ran = zeroplan(*GEMMA, "--gpu", "a100-40gb", "--json").json
    plan, flash = ran["plan"], ran["flash_attention_2"]
    assert plan["strategy"]["attention"] == "eager"
    assert flash["strategy"]["attention"] == "flash_attention_2"
    assert flash["step_seconds"] < plan["step_seconds"]
    assert "--attention flash_attention_2" in " ".join(zeroplan(*GEMMA, "--gpu", "a100-40gb").out.split())


@pytest.mark.parametrize(
    "words",
    [
        (*GEMMA, "--gpu", "v100-32gb"),  # of compute capability 7.0
        (*GEMMA, "--gpu", "a100-40gb", "--precision", "fp32"),
        (*GEMMA, "--gpu", "a100-40gb", "--attention", "eager"),
        ("recommend", "--model", "gpt-oss-20b", "--gpus", "8", "--gpu", "a100-80gb", "--stage", "3"),  # has sinks
    ],
)
def test_it_is_not_said_where_it_does_not_run_or_attention_is_settled(zeroplan, words):
    ran = zeroplan(*words, "--json").json
    assert ran["plan"]
    assert "flash_attention_2" not in ran
