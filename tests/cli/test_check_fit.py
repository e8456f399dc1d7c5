"""`zeroplan check` with a model and a card: the verdict of `zeroplan estimate --config`, and the change that mends it."""

from __future__ import annotations

import json
import re

import pytest

from zeroplan.units import gib

CARD = ("--gpus", "8", "--gpu-mem", "80")


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def written(name="ds_config.json", **changes):
        config = {"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 1, "bf16": {"enabled": True},
                  "zero_optimization": {"stage": 2}}  # fmt: skip
        (tmp_path / name).write_text(json.dumps({**config, **changes}), encoding="utf-8")
        return name

    return written


def rules(ran):
    return {one["rule"] for one in ran.json["findings"]}


def found(ran, rule):
    return next(one for one in ran.json["findings"] if one["rule"] == rule)


@pytest.mark.parametrize("more", [(), ("--seq", "512"), ("--checkpointing", "full"), ("--headroom", "10%")])
def test_the_ledger_is_that_of_estimate(zeroplan, write, more):
    name = write()
    asked = ("--model", "llama-3.1-8b", *CARD, *more)
    estimated = zeroplan("estimate", "--config", name, *asked, "--json").json["fit"]
    checked = zeroplan("check", name, *asked, "--format", "json")
    assert ("ZP901" in rules(checked)) is (estimated["verdict"] == "does_not_fit")
    assert ("ZP905" in rules(checked)) is (estimated["verdict"] == "tight")
    assert checked.code == int(not estimated["fits"])
    if estimated["verdict"] == "does_not_fit":
        message = found(checked, "ZP901")["message"]
        assert f"needs {gib(estimated['needed'])} on each of 8 GPUs, {gib(estimated['capacity'])} are there" in message


def test_the_change_that_is_named_mends_it(zeroplan, write):
    ran = zeroplan("check", write(), "--model", "llama-3.1-8b", *CARD, "--format", "json")
    sizes = re.findall(r'"(\w+)": (\d+)', found(ran, "ZP901")["write"])
    assert sizes
    mended = write(**{name: int(size) for name, size in sizes})
    assert zeroplan("check", mended, "--model", "llama-3.1-8b", *CARD).code == 0


def test_without_a_model_nothing_of_the_sort_is_asked(zeroplan, write):
    assert zeroplan("check", write(), *CARD).code == 0
    assert zeroplan("check", write()).code == 0


def test_a_config_that_deepspeed_refuses_is_not_counted(zeroplan, write):
    ran = zeroplan("check", write(gradient_clippings=1, train_batch_size=7), "--model", "llama-3.1-8b", *CARD,
                   "--format", "json")  # fmt: skip
    assert "ZP201" in rules(ran)
    assert not [rule for rule in rules(ran) if rule.startswith("ZP9")]


def test_what_cannot_be_counted_is_said(zeroplan, write):
    ran = zeroplan("check", write(), "--model", "llama-3.1-8b", *CARD, "--micro-batch", "4", "--format", "json")
    assert rules(ran) == {"ZP904"}
    assert "--micro-batch 4 contradicts" in found(ran, "ZP904")["message"]


@pytest.mark.parametrize(
    "arguments",
    [("--gpus", "0"), ("--gpus", "8,16"), ("--gpu", "nothing"), ("--model", "nothing"), ("--gpu-mem", "80Gb"),
     ("--headroom", "10%"), ("--precision", "int3"), ("--client-optimizer", "perhaps"), ("--micro-batch", "two"),
     ("--trainer-args", "missing.yaml")],
)  # fmt: skip
def test_bad_use(zeroplan, write, arguments):
    model = () if "--model" in arguments else ("--model", "llama-3.1-8b")
    ran = zeroplan("check", write(), *model, *arguments)
    assert ran.code == 2
    assert ran.err.count("\n") == 1


def test_several_files_with_one_model(zeroplan, write):
    small = write("small.json", train_micro_batch_size_per_gpu=1)
    ran = zeroplan("check", write(), small, "--model", "llama-3.1-8b", *CARD, "--format", "json")
    assert [one["file"] for one in ran.json["findings"] if one["rule"] == "ZP901"] == ["ds_config.json"]
