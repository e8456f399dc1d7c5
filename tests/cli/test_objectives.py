"""`recommend --objective`: least memory, the front of time and memory, the fewest GPUs."""

from __future__ import annotations

import pytest

import zeroplan as library

SMALL = ("recommend", "--params", "350M", "--gpus", "2", "--gpu-mem", "80", "--seq", "512", "--global-batch", "8")
LEAN = (*SMALL, "--objective", "least-memory")


def test_nothing_tried_by_hand_needs_less_than_the_leanest(zeroplan):
    """Every stage, offload and micro-batch settled in turn, each with its own leanest plan and its fastest."""
    best = zeroplan(*LEAN, "--json").json["plan"]["fit"]["needed"]
    for words in (
        *(("--stage", stage) for stage in "0123"),
        *(("--offload-optimizer", device) for device in ("none", "cpu")),
        *(("--micro-batch", size, "--grad-accum", accum) for size, accum in (("1", "4"), ("2", "2"), ("4", "1"))),
        *(("--checkpointing", kind) for kind in ("none", "full", "every-2", "selective")),
    ):
        for objective in ("least-memory", "fastest"):
            ran = zeroplan(*SMALL, *words, "--objective", objective, "--json")
            assert ran.json["plan"]["fit"]["needed"] >= best


def test_neighbours_of_the_leanest_lost_by_bytes(zeroplan):
    found = zeroplan(*LEAN, "--json").json
    needed = found["plan"]["fit"]["needed"]
    assert found["rejected"]
    for rejected in found["rejected"]:
        assert rejected["fit"]["needed"] >= needed
        assert any(said in rejected["reason"] for said in (" more, ", "needs as much, ", "too many"))
    bytes_ = [rejected["fit"]["needed"] for rejected in found["rejected"] if rejected["fit"]["fits"]]
    assert bytes_ == sorted(bytes_)
    assert "no other needs less" in " ".join(zeroplan(*LEAN).out.split())


def test_why_not_another_says_how_many_bytes_more(zeroplan):
    found = zeroplan(*LEAN, "--why", "zero-1", "--json").json
    why = found["why"][0]
    more = why["alternative"]["fit"]["needed"] - found["plan"]["fit"]["needed"]
    assert why["bytes_more"] == more == sum(row["difference"] for row in why["bytes"])
    alone = zeroplan(*LEAN, "--stage", "1", "--json").json["plan"]
    assert why["alternative"]["strategy"] == alone["strategy"]
    assert "more, " in zeroplan(*LEAN, "--why", "zero-1", "-q").out


def test_the_config_of_the_leanest_is_written(zeroplan, tmp_path):
    path = tmp_path / "ds_config.json"
    assert zeroplan(*LEAN, "-o", str(path)).code == 0
    assert path.exists()


def test_from_python():
    words = {"params": "350M", "gpus": 2, "gpu_mem": 80, "seq": 512, "global_batch": 8}
    lean, fast = (library.recommend(**words, objective=each).plan for each in ("least-memory", "fastest"))
    assert lean.needed < fast.needed
    assert lean.step > fast.step


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--objective", "least"), "write --objective least-memory"),
        (("--objective", "memory"), "write --objective least-memory"),
        (("--objective", ""), "found ''"),
        (("--objective", "least-memory", "--tokens", "1B", "--gpu", "a100-80gb", "--deadline", "3d"), "--deadline"),
        (("--objective", "least-memory", "--gpu-mem", "24,80"), "expected one"),
        (("--objective", "least-memory", "--max-params"), "--max-params makes no plan"),
    ],
)
def test_what_cannot_be_meant_is_one_line(zeroplan, words, said):
    card = () if {"--gpu", "--gpu-mem"} & set(words) else ("--gpu-mem", "80")
    ran = zeroplan("recommend", "--params", "7B", *card, *words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1
