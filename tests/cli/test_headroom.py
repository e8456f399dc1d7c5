"""`--headroom`: a share or bytes of each card that every verdict leaves out."""

from __future__ import annotations

import pytest

import zeroplan as library

GiB = 2**30
JOB = ("--params", "350M", "--gpus", "2", "--gpu-mem", "80GB", "--seq", "256")
CARD = 80 * 10**9


@pytest.mark.parametrize(
    ("typed", "kept"),
    [("10%", CARD // 10), ("0.1", CARD // 10), ("12.5 %", CARD // 8), ("0", 0), ("4GiB", 4 * GiB), ("1B", 1), ("7GB", 7 * 10**9)],
)
def test_estimate_asks_for_the_rest_of_the_card(zeroplan, typed, kept):
    found = zeroplan("estimate", *JOB, "--stage", "1", "--headroom", typed, "--json").json
    assert found["fit"]["capacity"] == CARD - kept
    assert found["kept_free"]["bytes"] == kept
    assert found["kept_free"]["share"] == pytest.approx(kept / CARD, abs=1e-10)


def test_what_is_kept_when_nobody_says(zeroplan):
    plain = zeroplan("estimate", *JOB, "--stage", "1", "--json").json
    assert plain["fit"]["capacity"] == CARD
    assert "kept_free" not in plain
    plan = zeroplan("recommend", *JOB, "--json").json
    fit = plan["plan"]["fit"]
    assert (fit["capacity"], fit["verdict"]) == (CARD, "fits")
    assert fit["needed"] < fit["most"] <= CARD
    assert "kept_free" not in plan
    assert any("--headroom" in said for said in plan["assumed"])


def test_recommend_plans_within_the_rest(zeroplan):
    """One byte less than the plan needs is too little for it."""
    words = ("recommend", *JOB)
    first = zeroplan(*words, "--headroom", "0", "--json").json["plan"]
    needed = first["fit"]["needed"]
    same = zeroplan(*words, "--headroom", f"{CARD - needed}B", "--json").json["plan"]
    other = zeroplan(*words, "--headroom", f"{CARD - needed + 1}B", "--json").json["plan"]
    assert same["strategy"] == first["strategy"]
    assert same["fit"]["headroom"] == 0
    assert other["strategy"] != first["strategy"]
    assert other["fit"]["needed"] < needed


def test_the_screen_says_it(zeroplan):
    text = " ".join(zeroplan("recommend", *JOB, "--headroom", "3GiB", "-v").out.split())
    assert "3.00 GiB of each card kept free (--headroom)" in text
    assert "5% of each card" not in text


def test_matrix_and_compare(zeroplan):
    """1.3B hold 16 bytes a parameter at stage 0, 19 GiB: there is room on a card of 24 GiB, and not on half of it."""
    rows = {}
    for typed in ("0", "50%"):
        ran = zeroplan("matrix", "--params", "1.3B", "--gpus", "8", "--gpu-mem", "80", "--headroom", typed, "--json").json
        rows[typed] = ran["rows"][0]["strategies"]
        assert ran["kept_free"]["share"] == float(typed.rstrip("%")) / 100
    assert all(cell["capacity"] * 2 == pytest.approx(rows["0"][name]["capacity"], abs=2) for name, cell in rows["50%"].items())
    shown = zeroplan("matrix", "--params", "1.3B,13B", "--gpus", "8", "--gpu-mem", "80GiB", "--headroom", "50%").out
    assert "more than the 40.00 GiB" in " ".join(shown.split())
    words = ("compare", "--params", "1.3B", "--gpu-mem", "80", "--gpus", "1,8", "--stage", "0")
    assert zeroplan(*words, "-q").code == 0
    assert zeroplan(*words, "--headroom", "90%", "-q").code == 1


def test_the_fewest_cards_and_the_largest_model(zeroplan):
    """16 bytes a parameter of stage 3 on each of N GPUs: twice the GPUs for half of each, half the model."""
    words = ("recommend", "--gpu-mem", "80", "--seq", "512", "--stage", "3", "--checkpointing", "full", "--micro-batch", "1",
             "--offload-optimizer", "none")  # fmt: skip
    auto = (*words, "--params", "13B", "--gpus", "auto", "--json")
    whole, half = (zeroplan(*auto, "--headroom", kept).json["fewest"]["gpus"] for kept in ("0", "50%"))
    assert half > whole
    largest = (*words, "--max-params", "--gpus", "8", "--json")
    sizes = [zeroplan(*largest, "--headroom", kept).json for kept in ("0", "50%")]
    first, second = (found["largest"]["as asked"]["parameters"] for found in sizes)
    assert 0.35 < second / first < 0.5
    assert sizes[1]["kept_free"]["share"] == 0.5
    cards = zeroplan("recommend", *JOB[:4], "--gpu", "l4,a100-40gb", "--seq", "256", "--headroom", "4GiB", "--json").json["cards"]
    for card in cards:
        alone = zeroplan("estimate", "--params", "350M", "--gpus", "2", "--stage", "3", "--gpu", card["gpu"], "--json").json
        assert card["plan"]["fit"]["capacity"] == alone["fit"]["capacity"] - 4 * GiB


@pytest.mark.parametrize("typed", ["100%", "1", "5", "-1", "-5%", "80GB", "1TB", "10%%", "four", "4Gb", "nan", ""])
def test_what_cannot_be_meant_is_one_line(zeroplan, typed):
    for command in ("estimate", "recommend"):
        ran = zeroplan(command, *JOB, "--headroom", typed)
        assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
        assert "--headroom 10% or 4GiB" in ran.err


def test_no_card_and_other_commands_have_nothing_to_keep_free(zeroplan):
    for words in (("estimate", "--params", "7B"), ("explain", "needed", "--gpu-mem", "80")):
        ran = zeroplan(*words, "--headroom", "10%")
        assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)


def test_from_python():
    found = library.estimate(params="350M", gpus=2, gpu_mem="80GB", stage=2, headroom=0.25)
    assert found.strategy.capacity == CARD * 3 // 4
    plan = library.recommend(params="350M", gpus=2, gpu_mem="80GB", seq=256, headroom="8GB")
    assert plan.plan.capacity == CARD - 8 * 10**9
