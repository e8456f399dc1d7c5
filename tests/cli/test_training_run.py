"""`recommend --tokens --deadline --price --objective`: a whole training run."""

from __future__ import annotations

import math

import pytest

import zeroplan as library
from zeroplan.errors import ContradictionError, QuantityError
from zeroplan.training import least_seconds
from zeroplan.units import duration, money, read_duration

SMALL = ("recommend", "--params", "350M", "--gpu-mem", "24", "--seq", "512", "--offload-optimizer", "none", "--stage", "1",
         "--checkpointing", "none", "--micro-batch", "4", "--grad-accum", "4")  # fmt: skip
DAY, HOUR = 86400, 3600


def run_of(zeroplan, *words):
    found = zeroplan(*words, "--json").json
    return found, found["run"]


def test_how_long_and_what_it_costs(zeroplan):
    """Steps of 4 × 4 × 2 × 512 = 16,384 tokens; hours times GPUs times the price."""
    found, run = run_of(zeroplan, *SMALL, "--gpus", "2", "--tokens", "10B", "--price", "1.5")
    assert run["tokens"] == 10**10
    assert run["steps"] == math.ceil(10**10 / 16384)
    step = found["plan"]["time"]
    assert run["seconds"] == pytest.approx(run["steps"] * step["step"])
    assert run["low"] == pytest.approx(run["steps"] * step["interval"]["low"])
    assert run["gpu_hours"] == pytest.approx(2 * run["seconds"] / 3600)
    assert run["cost"] == pytest.approx(1.5 * run["gpu_hours"])
    per_million = 1.5 / 3600 / step["tokens_per_s_per_gpu"] * 10**6
    assert run["cost_per_million_tokens"] == pytest.approx(per_million)
    assert (run["deadline_seconds"], run["late_seconds"], run["in_time"]) == (None, None, True)
    text = " ".join(zeroplan(*SMALL, "--gpus", "2", "--tokens", "10B", "--price", "1.5").out.split())
    assert f"10B tokens take {duration(run['seconds'])} ({run['gpu_hours']:,.0f} GPU-hours, ${run['cost']:,.2f})." in text
    assert "at $1.50 a GPU-hour" in text


def test_a_price_alone_is_that_of_a_million_tokens(zeroplan):
    _found, run = run_of(zeroplan, *SMALL, "--gpus", "2", "--price", "2 EUR")
    assert (run["tokens"], run["seconds"], run["cost"]) == (None, None, None)
    assert run["price"] == {"amount": 2.0, "currency": "EUR"}
    ran = zeroplan(*SMALL, "--gpus", "2", "--price", "2EUR", "-q")
    assert f"{money(run['cost_per_million_tokens'], 'EUR')} a million tokens." in ran.out


def test_a_deadline_that_is_made_or_missed(zeroplan, tmp_path):
    words = (*SMALL, "--gpus", "2", "--tokens", "10B")
    _found, run = run_of(zeroplan, *words)
    hours = run["seconds"] / HOUR
    made = zeroplan(*words, "--deadline", f"{hours + 1:.2f}h")
    assert made.code == 0
    assert "to spare" in made.out
    path = tmp_path / "ds_config.json"
    missed = zeroplan(*words, "--deadline", f"{hours / 3:.2f}h", "-o", str(path))
    assert missed.code == 1
    assert "no plan trains 10B tokens in" in missed.out.splitlines()[0]
    assert not path.exists()
    one = zeroplan(*words, "--deadline", f"{hours / 3:.2f}h", "--json").json
    assert one["run"]["late_seconds"] == pytest.approx(run["seconds"] - HOUR * float(f"{hours / 3:.2f}"))
    enough = one["in_time"]["gpus"]
    assert enough > 2
    assert f"{enough} GPUs of this kind end in time (--gpus {enough})" in missed.out
    assert zeroplan(*SMALL, "--gpus", str(enough), "--tokens", "10B", "--deadline", f"{hours / 3:.2f}h", "-q").code == 0


def test_the_fewest_gpus_that_make_it(zeroplan):
    """Of 2 GPUs each does half: with a third of their time 6 are the fewest, if a GPU loses nothing to the others."""
    _found, run = run_of(zeroplan, *SMALL, "--gpus", "2", "--tokens", "10B")
    deadline = f"{run['seconds'] / HOUR / 3:.3f}h"
    words = (*SMALL, "--tokens", "10B", "--deadline", deadline)
    auto = zeroplan(*words, "--gpus", "auto", "--json").json
    gpus = auto["fewest"]["gpus"]
    assert gpus in (6, 7, 8)
    assert auto["run"]["in_time"] is True
    assert auto["plan"]["cluster"]["gpus"] == gpus
    smaller = zeroplan(*words, "--gpus", str(gpus - 1), "--json").json
    assert smaller["run"]["in_time"] is False
    assert auto["fewest"]["late_seconds"] == pytest.approx(smaller["run"]["late_seconds"])
    assert f"These are the fewest: {gpus - 1} GPUs end " in zeroplan(*words, "--gpus", "auto", "-q").out


@pytest.mark.parametrize("model", ["gpt2", "llama-3.1-8b", "mixtral-8x7b"])
@pytest.mark.parametrize("gpus", ["1", "64"])
def test_no_plan_is_faster_than_its_products(model, gpus):
    """Counts of GPUs are passed over by this bound."""
    found = library.recommend(
        model=model, gpus=gpus, gpu="h100-80gb", stage=3, checkpointing="full", micro_batch=2, tokens=10**9
    )
    assert least_seconds(found.job, 10**9) < found.run.seconds


def test_no_number_of_gpus_makes_it(zeroplan):
    words = (*SMALL, "--tokens", "1000T", "--deadline", "1h")
    ran = zeroplan(*words, "--gpus", "auto", "-q")
    assert ran.code == 1
    assert "4,096 GPUs are the most that were tried" in ran.out
    ran = zeroplan(*words, "--gpus", "8", "-q")
    assert "None of up to 4,096 GPUs ends in time." in ran.out


def test_cards_by_what_their_tokens_cost(zeroplan):
    words = ("recommend", "--params", "350M", "--seq", "512", "--gpus", "2", "--stage", "1", "--micro-batch", "4", "--grad-accum",
             "4", "--checkpointing", "none", "--gpu", "l4,h100-80gb", "--tokens", "10B")  # fmt: skip
    rates = {
        card["gpu"]: card["plan"]["time"]["tokens_per_s_per_gpu"] for card in zeroplan(*words, "--json").json["cards"]
    }
    break_even = rates["h100-80gb"] / rates["l4"]
    for share, best in ((1.1, "l4"), (0.9, "h100-80gb")):
        price = f"l4=1,h100-80gb={share * break_even:.4f}"
        ran = zeroplan(*words, "--price", price, "--objective", "cheapest", "--json").json["cards"]
        assert ran[0]["gpu"] == best
        assert ran[0]["run"]["cost"] < ran[1]["run"]["cost"]
        assert ran[0]["run"]["cost"] / ran[1]["run"]["cost"] == pytest.approx(1 / 1.1 if best == "l4" else 0.9, rel=1e-3)
    screen = zeroplan(*words, "--price", price, "--objective", "cheapest").out
    assert "cheapest with 2 GPUs of h100-80gb" in screen.splitlines()[0]
    head = next(line for line in screen.splitlines() if line.startswith("gpu "))
    assert head.split()[-2:] == ["takes", "cost"]
    fastest = zeroplan(*words, "--price", "l4=1,h100-80gb=9999").out.splitlines()[0]
    assert "most per GPU with 2 GPUs of h100-80gb" in fastest


def test_the_number_of_gpus_that_costs_least(zeroplan):
    words = ("recommend", "--params", "1.3B", "--gpu-mem", "24", "--seq", "512", "--gpus", "auto", "--price", "0.4")
    cards = zeroplan(*words, "--objective", "cheapest", "--json").json["cards"]
    costs = [card["run"]["cost_per_million_tokens"] for card in cards]
    assert costs == sorted(costs)
    counts = sorted(card["gpus"] for card in cards)
    assert counts[0] == zeroplan(*words, "--json").json["fewest"]["gpus"]
    assert {1, 2, 4, 8, 16} <= set(counts)
    ran = zeroplan(*words, "--objective", "cheapest").out
    assert f"1.3B: cheapest with {cards[0]['gpus']} GPU" in ran.splitlines()[0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--deadline", "30d"), "add --tokens"),
        (("--tokens", "1T", "--deadline", "30"), "--deadline 30d, 12h or 2w"),
        (("--tokens", "1T", "--deadline", "0h"), "up to 100 years"),
        (("--tokens", "1T", "--deadline", "-3d"), "--deadline 30d, 12h or 2w"),
        (("--tokens", "lots"), "--tokens 1T, 300B or 1e12"),
        (("--tokens", "0"), "whole number"),
        (("--price", "free"), "--price 2.5"),
        (("--price", "-1"), "--price 2.5"),
        (("--price", "0"), "above 0"),
        (("--price", "1,2"), "for each card"),
        (("--price", "$2EUR"), "for each card"),
        (("--price", "a=1EUR,b=2"), "one currency"),
        (("--price", "h100=2"), "found one for h100, expected one for 24"),
        (("--objective", "cheapest"), "add --price"),
        (("--objective", "cheap"), "--objective cheapest"),
        (("--max-params", "--tokens", "1T"), "--max-params"),
    ],
)
def test_what_cannot_be_meant_is_one_line(zeroplan, words, said):
    typed = ("recommend", "--gpu-mem", "24", "--gpus", "2") if "--max-params" in words else (*SMALL, "--gpus", "2")
    ran = zeroplan(*typed, *words)
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert said in ran.err


def test_prices_bear_the_names_of_the_cards(zeroplan):
    ran = zeroplan("recommend", "--params", "350M", "--gpu", "l4,h100-80gb", "--price", "l4=1,h10=2")
    assert (ran.code, len(ran.err.splitlines())) == (2, 1)
    assert "nearest: h100-80gb" in ran.err


def test_a_card_nobody_named_has_no_seconds(zeroplan):
    words = ("recommend", "--params", "350M", "--gpu-mem", "24GiB", "--tokens", "1T")
    for more in ((), ("--deadline", "1d", "--gpus", "auto")):
        ran = zeroplan(*words, *more)
        assert (ran.code, ran.out) == (2, "")
        assert "no card is named" in ran.err


@pytest.mark.parametrize("columns", [80, 140])
def test_screens_keep_to_the_terminal(zeroplan, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    price = ("--tokens", "1T", "--price", "3")
    for words in ((*SMALL, "--gpus", "2", *price), ("recommend", "--params", "350M", "--gpu", "l4,h100-80gb", *price)):
        lines = zeroplan(*words).out.splitlines()
        assert all(len(line) <= columns for line in lines[1:] if not line.startswith("next: "))


def test_durations_and_amounts():
    assert [read_duration(text, "--deadline") for text in ("30d", "12h", "2w", "1.5 d")] == [30 * DAY, 12 * HOUR, 14 * DAY, 1.5 * DAY]
    with pytest.raises(QuantityError):
        read_duration("101y", "--deadline")
    assert [duration(value) for value in (157.2 * DAY, 30 * DAY, 5400, 90 * 60 * 2, 42)] == ["157 days", "30 days", "90 minutes", "3 hours", "42.00 s"]
    assert [money(value, "$") for value in (75400, 12.5, 0.0854)] == ["$75,400", "$12.50", "$0.0854"]
    assert money(75400, "EUR") == "75,400 EUR"


def test_from_python():
    found = library.recommend(
        params="350M", gpus=2, gpu_mem=24, seq=512, stage=1, micro_batch=4, grad_accum=4, checkpointing="none",
        tokens=10**10, price=1.5, deadline="1h",
    )  # fmt: skip
    assert found.run.steps == math.ceil(10**10 / 16384)
    assert not found.fits
    with pytest.raises(ContradictionError, match="no plan to write"):
        found.ds_config()
    cards = library.recommend(params="350M", gpus=2, gpu=["l4", "a100-40gb"], stage=1, price={"l4": 1, "a100-40gb": 2})
    assert cards.run.wanted.price.amount == 2
