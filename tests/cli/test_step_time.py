"""Step times on the screen and in --json: estimate, recommend, compare and explain."""

from __future__ import annotations

from itertools import pairwise

import pytest

JOB = ("--model", "gpt2-large", "--gpus", "8", "--seq", "1024")
CARD = ("--gpu", "a100-80gb")


def test_estimate_says_how_long_a_step_takes_where_a_card_is_named(zeroplan):
    lines = zeroplan("estimate", *JOB, *CARD, "--stage", "2", "-v").out.splitlines()
    assert "A step takes about" in lines[0]
    assert "tokens/s per GPU" in lines[0]
    shown = "\n".join(lines)
    for text in ("MFU", "MFU, causal", "HFU", "Where the time goes", "█", "Nine in ten published steps"):
        assert text in shown
    silent = zeroplan("estimate", *JOB, "--stage", "2")
    assert "A step takes" not in silent.out
    assert zeroplan("estimate", *JOB, "--stage", "2", "--json").json["time"] is None


def test_time_in_json_sums_up(zeroplan):
    found = zeroplan("estimate", *JOB, *CARD, "--stage", "3", "--grad-accum", "4", "--json").json["time"]
    assert found["step"] == pytest.approx(sum(entry["seconds"] for entry in found["terms"]))
    assert found["step"] == pytest.approx(sum(found["groups"].values()))
    assert found["interval"]["low"] < found["step"] < found["interval"]["high"]
    assert found["interval"]["reason"]
    assert found["tokens"] == 4 * 8 * 1024
    assert found["tokens_per_s_per_gpu"] == pytest.approx(4 * 1024 / found["step"])
    assert len(found["utilisation"]) == 3
    for entry in found["terms"]:
        assert entry["formula"]
        assert entry["source"]
        assert entry["evidence"] in ("measured", "published", "datasheet", "assumed")


def test_the_papers_accounting_has_no_clock(zeroplan):
    found = zeroplan("estimate", *JOB, *CARD, "--stage", "2", "--accounting", "paper", "--json").json
    assert found["time"] is None


def test_recommend_has_the_same_step_as_estimate(zeroplan):
    plan = zeroplan("recommend", *JOB, *CARD, "--stage", "2", "--micro-batch", "4", "--json").json["plan"]
    assert plan["time"]["step"] == plan["step_seconds"]
    strategy = plan["strategy"]
    assert strategy["stage"] == 2
    assert plan["time"]["tokens"] == strategy["grad_accum"] * 4 * 8 * 1024


def test_compare_draws_scaling(zeroplan):
    ran = zeroplan("compare", *JOB[:2], "--seq", "1024", *CARD, "--gpus", "1,8,64", "--stage", "1")
    assert ran.code == 0
    rows = [line.split() for line in ran.out.splitlines()]
    assert ["gpus", "ZeRO", "~needed", "~step", "~tokens/s/GPU", "MFU", "traffic"] in rows
    assert [row[0] for row in rows if row and row[-1].startswith("█")] == ["1", "8", "64"]
    # One rank alone starts the whole update, which others share: 8 need not do less each than one.
    passes = ("--grad-accum", "64")
    found = zeroplan("compare", *JOB[:2], *CARD, "--gpus", "8,64,512", "--stage", "1", *passes, "--json").json["rows"]
    assert [row["gpus"] for row in found] == [8, 64, 512]
    assert all(row["fit"]["fits"] for row in found)
    each = [row["time"]["tokens_per_s_per_gpu"] for row in found]
    assert all(later <= 1.002 * earlier for earlier, later in pairwise(each))


def test_compare_tries_every_combination(zeroplan):
    found = zeroplan("compare", *JOB, "--gpu", "a100-80gb,h100-80gb", "--stage", "1,3", "--json").json["rows"]
    assert [(row["changed"]["gpu"], row["stage"]) for row in found] == [
        ("a100-80gb", 1), ("a100-80gb", 3), ("h100-80gb", 1), ("h100-80gb", 3),
    ]  # fmt: skip
    assert found[2]["time"]["step"] < found[0]["time"]["step"]


def test_a_batch_that_some_gpus_do_not_divide_is_a_row_with_its_reason(zeroplan):
    rows = zeroplan(
        "compare", *JOB[:2], *CARD, "--gpus", "8,6x8", "--global-batch", "64", "--stage", "1", "--json"
    ).json["rows"]
    assert "time" in rows[0]
    assert rows[1]["reason"].startswith("--global-batch: found 64")


def test_nothing_fits_is_exit_code_1(zeroplan):
    ran = zeroplan("compare", "--model", "llama-3.1-70b", "--gpu", "rtx-4090", "--gpus", "1,2", "--stage", "1")
    assert ran.code == 1
    assert "nothing fits" in ran.out.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("--gpus", "8", *CARD), "nothing to compare"),
        (("--gpus", "8,64"), "no card"),
        (("--gpus", "8,x", *CARD), "--gpus: found 'x'"),
        (("--gpus", "8,,64", *CARD), "--gpus: found '8,,64', expected something on both sides of each comma; write --gpus 8,64"),
        (("--gpus", "8,0", *CARD), "--gpus: found '0'"),
        (("--stage", "1,4", "--gpus", "8", *CARD), "--stage: found '4'"),
        (("--gpu", "a100-80gb,h1000", "--gpus", "8"), "h1000"),
        (("--gpus", ",".join(map(str, range(1, 70))), *CARD), "at most 64"),
        (("--gpu-mem", "24,80"), "write several cards, --gpu a100-40gb,h100-80gb"),
        (("--hostfile", "a,b", *CARD), "write several numbers of GPUs, --gpus 8,4x8"),
        (("--model", "gpt2,gpt2-xl", *CARD), "write one of them and run compare for each --model"),
        (("--host-mem", "1TB,2TB", *CARD), "found several values behind --host-mem, expected them behind any of --gpus,"),
    ],
)
def test_bad_lists_stop_with_one_line(zeroplan, arguments, expected):
    ran = zeroplan("compare", "--model", "gpt2", *arguments)
    assert ran.code == 2
    assert ran.out == ""
    assert expected in ran.err
    assert ran.err.count("\n") == 1


def test_a_hostfile_counts_the_gpus_of_every_combination(zeroplan, tmp_path):
    hosts = tmp_path / "hosts, old"
    hosts.write_text("a slots=8\nb slots=8\n")
    rows = zeroplan("compare", *JOB[:2], *CARD, "--hostfile", str(hosts), "--stage", "1,2", "--json").json["rows"]
    assert [(row["stage"], row["gpus"]) for row in rows] == [(1, 16), (2, 16)]
    alone = zeroplan("compare", *JOB[:2], *CARD, "--hostfile", str(hosts))
    assert (alone.code, alone.err.startswith("zeroplan: nothing to compare")) == (2, True)


def test_each_row_says_its_strategy_and_what_it_assumes(zeroplan):
    job = (*JOB[:2], *CARD, "--gpus", "8", "--stage", "2")
    rows = zeroplan("compare", *job, "--seq", "512,2048", "--json").json["rows"]
    alone = zeroplan("estimate", *job, "--seq", "2048", "--json").json
    assert rows[1]["strategy"] == alone["strategy"]
    assert rows[1]["assumed"] == alone["assumed"]
    screen = " ".join(zeroplan("compare", *job, "--seq", "512,2048", "-v").out.split())
    common, some = rows[0]["assumed"], "for some rows: sequence 2048 is beyond the model's 1024 positions, which it has learned: as it is, its training stops there"
    assert screen.endswith("assumed: " + "; ".join([*common, some]))


def test_explain_follows_the_steps_seconds(zeroplan):
    shown = zeroplan("explain", "step time", *JOB, *CARD, "--stage", "3", "-v").out
    for text in ("seconds = Φ/ρ + ω/η", "x/ζ + H + √(J·x/ζ)", "2.5e+14: published", "FLOP/s"):
        assert text in shown
    assert "all_gather, forward" in zeroplan("explain", "all_gather", *JOB, *CARD, "--stage", "3", "-v").out
    refused = zeroplan("explain", "step time", *JOB)
    assert refused.code == 2
    assert "no card" in refused.err
