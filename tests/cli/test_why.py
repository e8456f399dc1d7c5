"""`recommend --why`: an alternative beside the plan, line by line."""

from __future__ import annotations

import re

import pytest

import zeroplan as library
from zeroplan.errors import UnknownNameError
from zeroplan.request.alternatives import NAMES, read_constraint

GiB = 2**30
SMALL = ("recommend", "--params", "350M", "--gpus", "2", "--gpu-mem", "80", "--seq", "512", "--global-batch", "8")


def one(zeroplan, *words):
    found = zeroplan(*words, "--json").json
    assert len(found["why"]) == 1
    return found, found["why"][0]


@pytest.mark.parametrize(
    ("what", "fixed"),
    [
        ("zero-3", ("--stage", "3")),
        ("micro-batch-2", ("--micro-batch", "2")),
        ("checkpointing-every-4", ("--checkpointing", "every-4")),
        ("attention-eager", ("--attention", "eager")),
    ],
)
def test_the_alternative_is_the_plan_with_that_settled(zeroplan, what, fixed):
    found, why = one(zeroplan, *SMALL, "--why", what)
    alone = zeroplan(*SMALL, *fixed, "--json").json["plan"]
    assert why["alternative"]["strategy"] == alone["strategy"]
    assert why["seconds_slower"] == pytest.approx(alone["step_seconds"] - found["plan"]["step_seconds"])
    assert why["seconds_slower"] > 0


def test_lines_sum_up_to_the_difference(zeroplan):
    found, why = one(zeroplan, *SMALL, "--why", "offload")
    other = why["alternative"]
    assert sum(row["difference"] for row in why["seconds"]) == pytest.approx(why["seconds_slower"])
    assert why["seconds"][0]["name"] == "optimizer on the CPU"
    moved = sum(row["difference"] for row in why["bytes"])
    assert moved == other["fit"]["needed"] - found["plan"]["fit"]["needed"]
    for row in (*why["seconds"], *why["bytes"]):
        assert row["difference"] == row["alternative"] - row["plan"]


def test_bytes_that_are_missing_and_the_line_they_are_in(zeroplan):
    """Stage 0 keeps Adam's 8 bytes a parameter whole, where stages 1 to 3 keep an eighth on each of 8 GPUs."""
    words = ("recommend", "--params", "7B", "--gpus", "8", "--gpu-mem", "80", "--seq", "512", "--stage", "1")
    _found, why = one(zeroplan, *words, "--why", "zero-0")
    assert why["lack"]["tier"] == "gpu"
    fit = why["alternative"]["fit"]
    assert why["lack"]["bytes"] == fit["needed"] - fit["capacity"] > 0
    states = next(row for row in why["bytes"] if row["name"] == "optimizer states")
    parameters = why["alternative"]["model"]["parameters"]
    assert states["difference"] == pytest.approx(8 * parameters * 7 / 8, rel=1e-3)
    ran = zeroplan(*words, "--why", "zero-0", "-v")
    assert f"Why not zero-0: needs {fit['needed'] / GiB:.2f} GiB, {why['lack']['bytes'] / GiB:.2f} GiB too many" in " ".join(
        ran.out.split()
    )
    assert ran.out.index("\nWhy not zero-0") < ran.out.index("\nThe plan")


def test_the_plan_itself(zeroplan):
    words = (*SMALL, "--stage", "2", "--micro-batch", "2")
    names = ("zero-2", "micro-batch-2", "no-offload")
    ran = zeroplan(*words, *(word for name in names for word in ("--why", name)), "--json").json
    for why in ran["why"]:
        assert (why["is_plan"], why["alternative"], why["reason"]) == (True, None, "that is the plan")


def test_what_was_asked_for_may_rule_a_faster_one_out(zeroplan):
    """Without offload the same batch takes fewer seconds; it was asked for all the same."""
    _found, why = one(zeroplan, *SMALL, "--offload-optimizer", "cpu", "--why", "no-offload")
    assert why["seconds_slower"] < 0
    assert "faster" in why["reason"]


def test_what_cannot_be_had_says_why(zeroplan):
    _found, why = one(zeroplan, *SMALL, "--stage", "1", "--why", "param-cpu")
    assert why["alternative"] is None
    assert why["reason"] == "--offload-param does nothing at stage 1; write --stage 3"


def test_nothing_fits_and_what_is_asked_after_would(zeroplan):
    words = ("recommend", "--params", "13B", "--gpus", "1", "--gpu-mem", "24", "--seq", "512", "--offload-optimizer", "none")
    ran = zeroplan(*words, "--why", "offload", "--why", "zero-1", "-q")
    assert ran.code == 1
    assert "Why not offload: fits, needs " in ran.out
    assert re.search(r"Why not zero-1: needs .* too\s+many", ran.out)


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("ZeRO-2", "zero-2"),
        ("full checkpointing", "checkpointing-full"),
        ("no checkpointing", "checkpointing-none"),
        ("every-4 checkpointing", "checkpointing-every-4"),
        ("optimizer on cpu", "optimizer-cpu"),
        ("parameters on nvme", "param-nvme"),
        ("optimizer on the GPU", "optimizer-gpu"),
        ("micro-batch 8", "micro-batch-8"),
        ("eager attention", "attention-eager"),
        ("flash_attention_2", "attention-flash-attention-2"),
    ],
)
def test_words_of_the_screen_are_understood(said, name):
    assert read_constraint(said).name == name


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("--model", "bloom-560m", "--gpu-mem", "80", "--why", "sdpa"), "has no sdpa for bloom"),
        (("--params", "350M", "--gpu", "v100-32gb", "--why", "flash"), "compute capability 7.0"),
    ],
)
def test_attention_that_does_not_run_says_why(zeroplan, words, reason):
    why = zeroplan("recommend", "--gpus", "2", *words, "--json").json["why"][0]
    assert reason in why["reason"]
    assert why["alternative"] is None


def test_eager_attention_loses_by_computing_more_than_by_what_runs_again(zeroplan):
    """Its scores are written and read in forward and backward, and again in what runs again."""
    words = ("--params", "7B", "--gpus", "1", "--gpu", "rtx-4090", "--host-mem", "128GiB", "--why", "eager", "--json")
    found = zeroplan("recommend", *words).json
    assert found["plan"]["strategy"]["checkpointing"] == "full"
    grown = {row["name"]: row["difference"] for row in found["why"][0]["seconds"]}
    assert grown["compute"] > grown["recomputation"] > 0
    said = next(lost["reason"] for lost in found["rejected"] if lost["change"] == "eager attention")
    assert ": compute)" in said


@pytest.mark.parametrize("name", NAMES)
def test_each_name_is_known(name):
    assert read_constraint(name).name == name


@pytest.mark.parametrize(
    ("typed", "near"),
    [("zero-4", "zero-3"), ("ofload", "offload"), ("checkpointing-ful", "checkpointing-full"), ("buckets-5x", "buckets-5e8"),
     ("micro-batch-0", "micro-batch-4"), ("", "known")],
)  # fmt: skip
def test_a_wrong_name_is_one_line_with_the_nearest(zeroplan, typed, near):
    with pytest.raises(UnknownNameError):
        read_constraint(typed)
    ran = zeroplan(*SMALL, "--why", typed)
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert near in ran.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--why", "micro-batch-3"), "write --why micro-batch-2"),
        (("--gpus", "2", "--gpu-mem", "24,80", "--why", "zero-2"), "one card"),
        (("--why", "zero-2", "-o", "-"), "standard output"),
        (("--gpus", "auto", "--why", "zero-2", "--objective", "cheapest", "--price", "2"), "one plan"),
    ],
)
def test_what_does_not_go_together_is_one_line(zeroplan, words, said):
    ran = zeroplan(*SMALL, *words)
    assert (ran.code, ran.out, len(ran.err.splitlines())) == (2, "", 1)
    assert said in ran.err


def test_a_batch_nobody_stated_gives_way_to_the_micro_batch(zeroplan):
    """128 sequences a GPU are no multiple of 3; 129 are, and seconds are compared for as many sequences."""
    words = ("recommend", "--params", "350M", "--gpus", "2", "--gpu-mem", "24", "--seq", "256", "--stage", "1")
    found, why = one(zeroplan, *words, "--why", "micro-batch-3")
    strategy = why["alternative"]["strategy"]
    assert (strategy["micro_batch"], strategy["grad_accum"]) == (3, 43)
    scaled = why["alternative"]["step_seconds"] * 128 / 129
    assert why["seconds_slower"] == pytest.approx(scaled - found["plan"]["step_seconds"])


@pytest.mark.parametrize("columns", [80, 140])
def test_the_table_keeps_to_the_terminal(zeroplan, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = zeroplan(*SMALL, "--why", "param-nvme", "--why", "checkpointing-full").out.splitlines()
    assert all(len(line) <= columns for line in lines[1:] if not line.startswith("next: "))
    heads = [line.split() for line in lines if line.strip().startswith("difference")]
    assert heads == [["difference", "plan", "param-nvme"], ["difference", "plan", "checkpointing-full"]]


def test_from_python():
    found = library.recommend(params="350M", gpus=2, gpu_mem=24, seq=256, global_batch=8, why=["optimizer-cpu", "zero-0"])
    assert [one.constraint for one in found.why] == ["optimizer-cpu", "zero-0"]
    assert found.why[0].slower > 0
