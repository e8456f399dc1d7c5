"""`recommend --objective`: least memory, the front of time and memory, the fewest GPUs."""

from __future__ import annotations

import json
import re
from itertools import pairwise

import pytest

import zeroplan as library
from zeroplan.report.front import described

SMALL = ("recommend", "--params", "350M", "--gpus", "2", "--gpu-mem", "80", "--seq", "512", "--global-batch", "8")
LEAN = (*SMALL, "--attention", "sdpa", "--objective", "least-memory")
ONE_STAGE = {"stage": 2, "offload_optimizer": "none", "attention": "sdpa", "checkpointing": "none"}
"""A space whose front takes a second; whole ones are compared with enumeration in tests/search."""


def test_nothing_tried_by_hand_needs_less_than_the_leanest(zeroplan):
    """A stage and a micro-batch fixed in turn, each with its own leanest plan and its fastest."""
    best = zeroplan(*LEAN, "--json").json["plan"]["fit"]["needed"]
    for words in (("--stage", "2"), ("--micro-batch", "2", "--grad-accum", "2")):
        for objective in ("least-memory", "fastest"):
            ran = zeroplan(*LEAN[:-1], objective, *words, "--json")
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
    assert "none needs less" in " ".join(zeroplan(*LEAN, "-v").out.split())


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


def test_the_fewest_gpus_are_those_of_gpus_auto(zeroplan):
    words = ("recommend", "--params", "1.3B", "--gpu-mem", "16", "--offload-optimizer", "none", "--micro-batch", "1")
    by_number, by_objective = (
        zeroplan(*words, *more, "-v") for more in (("--gpus", "auto"), ("--objective", "fewest-gpus"))
    )
    assert by_objective == by_number
    assert "These are the fewest" in by_number.out
    both = zeroplan(*words, "--gpus", "auto", "--objective", "fewest-gpus", "-v")
    assert both == by_number


FRONT = (*SMALL, *(f"--{name.replace('_', '-')}={value}" for name, value in ONE_STAGE.items()), "--objective", "pareto")


def test_the_front_goes_from_the_fastest_plan_to_the_leanest(zeroplan):
    rows = zeroplan(*FRONT, "--json").json["front"]
    words = FRONT[:-2]
    fastest = zeroplan(*words, "--json").json["plan"]
    leanest = zeroplan(*words, "--objective", "least-memory", "--json").json["plan"]
    assert rows[0]["step_seconds"] == pytest.approx(fastest["step_seconds"])
    assert rows[-1]["strategy"] == leanest["strategy"]
    needed, seconds = ([row[key] for row in rows] for key in ("bytes_less", "seconds_slower"))
    assert needed == sorted(needed)
    assert seconds == sorted(seconds)
    for row, after in pairwise(rows[:-1]):
        assert after["fit"]["needed"] <= 0.99 * row["fit"]["needed"]
    assert rows[-1]["fit"]["needed"] < rows[-2]["fit"]["needed"]


def test_more_rows_where_they_may_be_nearer(zeroplan):
    every, usual, few = (
        [row["strategy"] for row in zeroplan(*FRONT, *more, "--json").json["front"]]
        for more in (("--apart", "0"), (), ("--apart", "30%"))
    )
    assert len(every) >= len(usual) > len(few) > 1
    assert every[0] == usual[0] == few[0]
    assert every[-1] == usual[-1] == few[-1]


def test_a_row_is_the_plan_with_its_headroom(zeroplan):
    """As the screen says: of the card what the row leaves, rounded down to 0.01 GiB."""
    ran = zeroplan(*FRONT, "--apart", "20%")
    headroom, number = re.search(r"--headroom ([0-9.]+GiB) for row ([0-9]+)", " ".join(ran.out.split())).groups()
    row = zeroplan(*FRONT, "--apart", "20%", "--json").json["front"][int(number) - 1]
    plan = zeroplan(*FRONT[:-2], "--headroom", headroom, "--json").json["plan"]
    assert plan["step_seconds"] <= row["step_seconds"] * (1 + 1e-9)
    assert plan["fit"]["needed"] <= row["fit"]["needed"] + 0.01 * 2**30


def test_the_screen_has_a_row_for_each_plan(zeroplan):
    rows = zeroplan(*FRONT, "--apart", "20%", "--json").json["front"]
    screen = zeroplan(*FRONT, "--apart", "20%", "-v").out
    assert f"{len(rows)} plans" in screen
    for number in range(1, len(rows) + 1):
        assert re.search(rf"^ *{number}  ZeRO-", screen, re.MULTILINE)
    assert "at least 20% less than the row above" in " ".join(screen.split())


def test_no_two_rows_have_the_same_words(zeroplan):
    found = library.recommend(params="350M", gpus=2, gpu_mem=80, seq=512, global_batch=8, objective="pareto", apart=0, **ONE_STAGE)
    names = described(found._rows.rows)
    assert len(names) == len(set(names)) == len(found.front)


def test_where_nothing_fits_there_is_no_front(zeroplan):
    words = ("recommend", "--params", "70B", "--gpus", "1", "--gpu-mem", "24", "--stage", "0")
    front, usual = (zeroplan(*words, *more) for more in (("--objective", "pareto"), ()))
    assert (front.code, front.out) == (1, usual.out)


def test_a_row_is_written_from_python(tmp_path):
    found = library.recommend(params="350M", gpus=2, gpu_mem=80, seq=512, global_batch=8, objective="pareto", apart="20%", **ONE_STAGE)
    assert found.plan == found.front[0]
    row = found.row(len(found.front) - 1)
    assert row.plan == found.front[-1]
    row.write(tmp_path / "ds_config.json")
    assert json.loads((tmp_path / "ds_config.json").read_text()) == row.ds_config()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--objective", "least"), "write --objective least-memory"),
        (("--objective", "memory"), "write --objective least-memory"),
        (("--objective", ""), "found ''"),
        (("--objective", "least-memory", "--tokens", "1B", "--gpu", "a100-80gb", "--deadline", "3d"), "--deadline"),
        (("--objective", "least-memory", "--gpu-mem", "24,80"), "expected one"),
        (("--objective", "least-memory", "--max-params"), "--max-params makes no plan"),
        (("--objective", "pareto", "--apart", "x"), "write --apart 1%"),
        (("--objective", "pareto", "--apart", "100%"), "write --apart 1%"),
        (("--objective", "pareto", "-o", "ds_config.json"), "--headroom"),
        (("--objective", "pareto", "--dir", "plan"), "--headroom"),
        (("--objective", "pareto", "--why", "zero-2"), "leave one out"),
        (("--objective", "pareto", "--price", "2", "--gpu", "a100-80gb"), "--price"),
        (("--objective", "pareto", "--gpu-mem", "24,80"), "expected one"),
        (("--apart", "1%"), "add --objective pareto"),
        (("--objective", "fewest-gpus", "--gpus", "8"), "leave out --gpus 8"),
        (("--objective", "fewest-gpus", "--hostfile", "hosts"), "leave out --hostfile hosts"),
        (("--objective", "fewest", "--gpus", "8"), "write --objective fewest-gpus"),
    ],
)
def test_what_cannot_be_meant_is_one_line(zeroplan, words, said):
    card = () if {"--gpu", "--gpu-mem"} & set(words) else ("--gpu-mem", "80")
    ran = zeroplan("recommend", "--params", "7B", *card, *words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err
    assert ran.err.count("\n") == 1
