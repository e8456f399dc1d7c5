"""Planning questions of `recommend`: the fewest GPUs, which card, and the largest model."""

from __future__ import annotations

import json

import pytest

from zeroplan.request.cluster import USUAL_NODE

GiB = 2**30
SHARDED = ("--offload-optimizer", "none", "--stage", "3", "--checkpointing", "full", "--micro-batch", "1")

LEAN = {
    "sub_group_size": 10_000_000, "stage3_prefetch_bucket_size": 10_000_000, "stage3_max_live_parameters": 100_000_000,
    "stage3_max_reuse_distance": 0, "contiguous_gradients": False,
}  # fmt: skip


def test_the_fewest_gpus_are_whole_nodes_beyond_one(zeroplan, tmp_path):
    """70B hold 16 bytes a parameter under ZeRO-3: 140 GB on each of 8 GPUs of 85 GB, and 70 GB on each of 16."""
    assert 16 * 70e9 / USUAL_NODE > 79.25 * GiB > 16 * 70e9 / 16
    words = ("recommend", "--params", "70B", "--gpu-mem", "80", "--seq", "1024", "--headroom", "5%", *SHARDED)
    found = zeroplan(*words, "--gpus", "auto", "--json").json
    assert (found["fewest"]["gpus"], found["fewest"]["smaller"]) == (16, 8)
    assert found["plan"]["cluster"]["gpus"] == 16
    assert found["fewest"]["lack"]["tier"] == "gpu"
    lean = tmp_path / "ds_config.json"  # as the plan that needs least, but for its bucket
    lean.write_text(json.dumps({"bf16": {"enabled": True}, "zero_optimization": {"stage": 3, **LEAN}}))
    smaller = zeroplan("estimate", "--config", str(lean), *words[1:], "--gpus", "8", "--json").json["fit"]
    bucket = 2 * 500_000_000  # of an estimate; the plan that needs least has a smaller one
    assert 0 <= -smaller["headroom"] - found["fewest"]["lack"]["bytes"] <= bucket
    assert zeroplan(*words, "--gpus", "8", "--json").json["plan"] is None


def test_within_a_node_every_number_is_tried(zeroplan):
    words = ("recommend", "--params", "13B", "--gpu-mem", "80", "--seq", "512", *SHARDED)
    ran = zeroplan(*words, "--gpus", "auto", "-q")
    gpus = int(ran.out.split(" on ")[1].split()[0])
    assert f"These are the fewest: {gpus - 1} GPUs lack " in ran.out
    assert zeroplan(*words, "--gpus", str(gpus), "-q").code == 0
    assert zeroplan(*words, "--gpus", str(gpus - 1), "-q").code == 1
    assert (gpus - 1) * 79.25 * GiB * 0.95 < 16 * 13e9 + (gpus - 1) * 16 * GiB  # states alone, and 16 GiB beside them


def test_one_gpu_may_be_enough(zeroplan):
    ran = zeroplan("recommend", "--params", "125M", "--gpu-mem", "24", "--gpus", "auto", "-q")
    assert ran.out.startswith("125M on 1 GPU: ")
    assert ran.out.endswith("One GPU is enough.\n")
    states = ("recommend", "--params", "7B", "--gpu-mem", "24", "--gpus", "auto", "-q")  # 112 GB, most of them on the host
    assert zeroplan(*states).out.endswith("One GPU is enough, if its node has that memory.\n")
    assert zeroplan(*states, "--host-mem", "1TiB").out.endswith("One GPU is enough.\n")


def test_a_batch_is_shared_evenly(zeroplan):
    """9 sequences are shared by 1, 3 or 9 GPUs, so 2 are never asked of; 12 bytes of states, 32 GiB in all."""
    words = ("recommend", "--params", "2.7B", "--gpu-mem", "24", "--seq", "256", "--global-batch", "9", "--stage", "3",
             "--offload-optimizer", "none")  # fmt: skip
    found = zeroplan(*words, "--gpus", "auto", "--json").json["fewest"]
    assert (found["gpus"], found["smaller"]) == (3, 1)


def test_none_are_enough(zeroplan):
    """At stage 0 every GPU holds everything, however many there are."""
    words = ("recommend", "--params", "70B", "--gpu-mem", "24", "--stage", "0", "--seq", "256", "--gpus", "auto")
    ran = zeroplan(*words, "-q")
    assert ran.code == 1
    assert "nothing fits" in ran.out
    assert "4,096 GPUs are the most that were tried" in ran.out


@pytest.mark.parametrize(
    ("option", "names"), [("--gpu-mem", ["24", "80"]), ("--gpu", ["l4", "h100-80gb"]), ("--cluster", ["dgx-1", "dgx-2"])]
)
def test_each_card_has_the_plan_that_it_has_alone(zeroplan, option, names):
    words = ("recommend", "--params", "1.3B", *(() if option == "--cluster" else ("--gpus", "2")), "--stage", "2",
             "--checkpointing", "full", "--micro-batch", "1")  # fmt: skip
    ran = zeroplan(*words, option, ",".join(names))
    assert ran.code == 0
    cards = zeroplan(*words, option, ",".join(names), "--json").json["cards"]
    key = option[2:].replace("-", "_")
    assert [card[key] for card in cards] == names
    rates = {}
    for card in cards:
        alone = zeroplan(*words, option, card[key], "--json").json
        assert card["plan"]["strategy"] == alone["plan"]["strategy"]
        assert card["plan"]["fit"] == alone["plan"]["fit"]
        rates[card[key]] = alone["plan"]["time"]["tokens_per_s_per_gpu"]
        gpus = alone["plan"]["cluster"]["gpus"]
        row = next(line for line in ran.out.splitlines() if line.startswith(f"{card[key]} "))
        assert row.split()[-2:] == [f"{rates[card[key]]:,.0f}", f"{rates[card[key]] * gpus:,.0f}"]
    best = max(rates, key=rates.get)
    assert f"of {best}, ZeRO-2" in ran.out.splitlines()[0]


def test_a_card_too_small_says_what_is_missing(zeroplan):
    words = ("recommend", "--params", "7B", "--gpus", "1", "--offload-optimizer", "none", "--seq", "512")
    ran = zeroplan(*words, "--gpu-mem", "24,80")
    assert ran.code == 1
    assert "nothing fits on any of 24, 80" in ran.out
    assert ran.out.count("nothing fits: lacks") == 2
    cards = zeroplan(*words, "--gpu-mem", "24,80", "--json").json["cards"]
    assert [card["plan"] for card in cards] == [None, None]
    assert cards[0]["lack"]["bytes"] - cards[1]["lack"]["bytes"] == pytest.approx((79.25 - 23.70) * GiB, rel=0.01)


def test_the_config_is_the_fastest_card_s(zeroplan):
    words = ("recommend", "--params", "350M", "--gpus", "2", "--stage", "1", "--micro-batch", "1", "-o", "-")
    assert zeroplan(*words, "--gpu", "l4,h100-80gb").out == zeroplan(*words, "--gpu", "h100-80gb").out


def test_the_fewest_of_each_card(zeroplan):
    words = ("recommend", "--params", "13B", "--seq", "512", *SHARDED, "--gpus", "auto")
    cards = zeroplan(*words, "--gpu-mem", "24,80", "--json").json["cards"]
    for card in cards:
        alone = zeroplan(*words, "--gpu-mem", card["gpu_mem"], "--json").json
        assert card["gpus"] == alone["plan"]["cluster"]["gpus"]
        assert card["fewest"] == alone["fewest"]


def test_the_largest_model_fits_and_the_next_does_not(zeroplan):
    """16 bytes a parameter shared by 8: at most 4.3e9 bytes a GPU per 2.15e9 of parameters, and most of a card."""
    words = ("--gpus", "8", "--gpu-mem", "80", "--seq", "512", "--stage", "3", "--checkpointing", "full",
             "--micro-batch", "1")  # fmt: skip
    ran = zeroplan("recommend", "--max-params", *words, "--json")
    found = ran.json["largest"]
    assert list(found) == ["without offload"]
    one = found["without offload"]
    assert 0.8 < 16 * one["parameters"] / 8 / (79.25 * GiB * 0.95) < 1
    assert one["plan"]["model"]["parameters"] == one["parameters"]
    assert one["parameters"] < one["next_size"] < 1.01 * one["parameters"]
    for size, code in ((one["parameters"], 0), (one["next_size"], 1)):
        typed = ("recommend", "--params", str(size), *words, "--offload-optimizer", "none", "--json")
        assert zeroplan(*typed).code == code
    assert "CPU offload is left out" in zeroplan("recommend", "--max-params", *words).out


def test_offload_makes_it_larger(zeroplan):
    words = ("recommend", "--max-params", "--gpus", "1", "--gpu-mem", "24", "--host-mem", "256GiB", "--seq", "512",
             "--stage", "2", "--micro-batch", "1")  # fmt: skip
    found = zeroplan(*words, "--json").json["largest"]
    alone, offloaded = found["without offload"], found["with CPU offload"]
    assert alone["parameters"] < offloaded["parameters"]
    assert offloaded["plan"]["strategy"]["offload_optimizer"]["device"] == "cpu"
    # stage 2 keeps 2 bytes a parameter on the GPU, and CPU Adam 12 and more in host memory
    assert 2 * offloaded["parameters"] < 23.70 * GiB * 0.95
    assert 12 * offloaded["parameters"] < 256 * GiB
    stated = zeroplan(*words, "--offload-optimizer", "cpu", "--json").json["largest"]
    assert stated["as asked"]["parameters"] == offloaded["parameters"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--max-params", "--params", "7B"), "--max-params looks for the size; leave out --params and --model"),
        (("--max-params", "--gpu-mem", "24,80"), "--max-params asks of one cluster"),
        (("--max-params", "--gpus", "auto", "--gpu-mem", "80"), "--max-params asks of one cluster"),
        (("--max-params", "--gpu-mem", "80", "-o", "x.json"), "-o and --dir write a plan and --max-params makes none"),
        (("--max-params",), "no card: write --gpu-mem 80"),
        (("--gpus", "auto"), "no card: write --gpu-mem 80"),
        (("--gpus", "8,16", "--gpu-mem", "80"), "write --gpus auto for the fewest, or zeroplan compare --gpus 8,64"),
        (("--gpu", "l4,t4", "--cluster", "dgx-1,dgx-2"), "--gpu and --cluster both name several cards; keep one"),
        (("--gpu", "l4,l5"), "unknown GPU 'l5'"),
        (("--gpu-mem", "24,"), "--gpu-mem: found '24,'"),
        (("--gpus", "auto", "--gpu-mem", "80", "--config", "-"), "--config - can be read once"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_bad_input_is_one_line(zeroplan, words, expected):
    ran = zeroplan("recommend", *words)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert expected in ran.err


@pytest.mark.parametrize("columns", [80, 140])
@pytest.mark.parametrize(
    "words",
    [
        ("--params", "1.3B", "--gpu-mem", "24,80", "--gpus", "auto"),
        ("--max-params", "--gpus", "2", "--gpu-mem", "24", "--host-mem", "64GiB", "--stage", "2", "--micro-batch", "1"),
    ],
    ids=" ".join,
)
def test_nothing_is_cut_or_too_wide(zeroplan, monkeypatch, words, columns):
    monkeypatch.setenv("COLUMNS", str(columns))
    lines = zeroplan("recommend", *words).out.splitlines()
    assert all(len(line) <= columns for line in lines[1:]), max(lines[1:], key=len)
    assert "…" not in "\n".join(lines)
