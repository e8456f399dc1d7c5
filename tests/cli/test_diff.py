"""`zeroplan diff`: each number is what `estimate --config` says of the config with that one change."""

from __future__ import annotations

import io
import json
import sys
from itertools import pairwise

import pytest

import zeroplan as package
from tests.conftest import REFERENCES
from zeroplan.deepspeed.difference import changed, differences
from zeroplan.deepspeed.names import canonical
from zeroplan.errors import ZeroplanError

FILES = [str(REFERENCES / "diff" / f"{name}.json") for name in ("before", "after")]
WORDS = ("--model", "gpt2", "--gpus", "8", "--gpu", "h100-80gb", "--seq", "256", "--attention", "eager")
STAGE_2 = {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def written(name, config):
        (tmp_path / name).write_text(json.dumps(config), encoding="utf-8")
        return name

    return written


def keys(ran):
    return {change["keys"][0]["key"]: change for change in ran.json["changes"]}


def zero(**inside):
    return {**STAGE_2, "zero_optimization": {"stage": 2, **inside}}


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (STAGE_2, zero(reduce_bucket_size=500_000_000, offload_optimizer={"device": "none"})),
        (zero(reduce_bucket_size=2e8), zero(reduce_bucket_size=200_000_000)),
        (zero(max_live_parameters=5), zero(stage3_max_live_parameters=5)),
        (zero(stage=3), zero(stage=3, overlap_comm=True)),  # runtime/zero/config.py:overlap_comm_valid
        (zero(stage=2), zero(stage=2, overlap_comm=False)),
        (zero(sub_group_size="auto"), STAGE_2),  # dropped, runtime/config_utils.py:51
        ({**STAGE_2, "optimizer": {"type": "Adam"}}, {**STAGE_2, "optimizer": {"type": "adam"}}),
        ({**STAGE_2, "data_types": {"grad_accum_dtype": "fp32"}}, {**STAGE_2, "data_types": {"grad_accum_dtype": "float"}}),
        ({**STAGE_2, "communication_data_type": "FP32"}, {**STAGE_2, "communication_data_type": "fp32"}),
        ({**STAGE_2, "_note": "mine", "bf16": {"enabled": True}}, {**STAGE_2, "//": "yours"}),
        (zero(cpu_offload=True), zero(offload_optimizer={"device": "cpu"})),
    ],
)  # fmt: skip
def test_the_same_in_other_words(zeroplan, write, a, b):
    ran = zeroplan("diff", write("a.json", a), write("b.json", b))
    assert ran == (0, "a.json and b.json mean the same to DeepSpeed.\n", "")


def test_without_a_model(zeroplan, write):
    ran = zeroplan("diff", write("a.json", STAGE_2), write("b.json", {**zero(stage=3), "steps_per_prin": 1}))
    assert ran.out == (
        "a.json and b.json: 2 keys mean something else. What that does is counted with --model.\n\n"
        "  zero_optimization.stage: 2 → 3\n  steps_per_prin: not there → 1 (DeepSpeed knows no such key)\n"
    )


def test_every_number_is_an_estimate(zeroplan, write):
    """Of both configs, and of the first with one line changed by hand."""
    a, b = {**zero(), "communication_data_type": "fp32"}, zero(stage=3, reduce_bucket_size=1_000_000)
    ran = zeroplan("diff", write("a.json", a), write("b.json", b), *WORDS, "--json").json
    by_hand = {
        "zero_optimization.stage": {**a, "zero_optimization": {"stage": 3}},
        "zero_optimization.reduce_bucket_size": {**a, "zero_optimization": {"stage": 2, "reduce_bucket_size": 1_000_000}},
        "communication_data_type": zero(),
    }

    def estimated(config):
        found = zeroplan("estimate", "--config", write("one.json", config), *WORDS, "--json").json
        times = {"micro_step": config.get("gradient_accumulation_steps", 1), "step": 1}
        return {
            "needed": found["fit"]["needed"], "host": found["fit"]["host"]["needed"], "step": found["time"]["step"],
            "calls": sum(one["calls"] * times.get(one["when"], 1) for one in found["traffic"]),
            "sent": sum(one["wire_bytes"] * times.get(one["when"], 1) for one in found["traffic"]),
        }  # fmt: skip

    first, second = estimated(a), estimated(b)
    assert (ran["a"]["needed"], ran["b"]["needed"]) == (first["needed"], second["needed"])
    assert {change["keys"][0]["key"] for change in ran["changes"]} == set(by_hand)
    for change in ran["changes"]:
        alone = estimated(by_hand[change["keys"][0]["key"]])
        assert {name: change["alone"][name] for name in alone} == pytest.approx(
            {name: alone[name] - first[name] for name in alone}, abs=1e-12
        )
    assert ran["together"]["calls"] == second["calls"] - first["calls"]


def test_gradients_in_fp32_are_twice_the_bytes(zeroplan, write):
    """GPT-2's 124,439,808 gradients, two bytes more each; stage 2 joins its owners' slices in all-reduces (key
    use_multi_rank_bucket_allreduce), in which each of 8 ranks sends 2 × 7/8 of the bytes.
    """
    ran = zeroplan("diff", write("a.json", STAGE_2), write("b.json", {**STAGE_2, "communication_data_type": "fp32"}),
                   *WORDS, "--json")  # fmt: skip
    assert keys(ran)["communication_data_type"]["alone"]["sent"] == pytest.approx(124_439_808 * 2 * 2 * 7 / 8, abs=1000)


@pytest.mark.parametrize(
    ("a", "b", "together"),
    [
        (
            {**STAGE_2, "bf16": {"enabled": False}, "fp16": {"enabled": True}},
            STAGE_2,
            {"fp16.enabled", "bf16.enabled"},  # both on: runtime/config.py refuses it
        ),
        (
            STAGE_2,
            {**STAGE_2, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}}},
            {"scheduler.type", "scheduler.params"},
        ),
        (
            {**STAGE_2, "train_batch_size": 16, "gradient_accumulation_steps": 2},
            {**STAGE_2, "train_batch_size": 32, "gradient_accumulation_steps": 4},
            {"train_batch_size", "gradient_accumulation_steps"},
        ),
        (zero(stage=3), {**zero(stage=2), "gradient_allreduce_op": "sum"}, {"zero_optimization.stage", "gradient_allreduce_op"}),
    ],
)  # fmt: skip
def test_what_deepspeed_takes_only_together_is_one_change(zeroplan, write, a, b, together):
    ran = zeroplan("diff", write("a.json", a), write("b.json", b), *WORDS, "--json").json
    found = [{one["key"] for one in change["keys"]} for change in ran["changes"]]
    assert together in found
    assert sum(len(each) for each in found) == len(set().union(*found))


def test_what_changes_nothing_and_why(zeroplan, write):
    a = {**zero(reduce_bucket_size=500_000_000), "gradient_accumulation_steps": 1}
    b = {
        **zero(sub_group_size=1_000_000, stage3_prefetch_bucket_size=7, enable_sanity_checks=True),
        "train_batch_size": 8, "steps_per_print": 7, "gradient_cliping": 1, "aio": {"queue_depth": 64},
        "activation_checkpointing": {"cpu_checkpointing": True},
    }  # fmt: skip
    ran = zeroplan("diff", write("a.json", a), write("b.json", b), *WORDS, "--json")
    reasons = {name: change["nothing"] for name, change in keys(ran).items()}
    assert reasons == {
        "gradient_accumulation_steps": ["both come to the same micro-batch and accumulation"],
        "train_batch_size": ["both come to the same micro-batch and accumulation"],
        "zero_optimization.sub_group_size": ["no effect at stage 2, only at 3"],
        "zero_optimization.stage3_prefetch_bucket_size": ["no effect at stage 2, only at 3"],
        "zero_optimization.enable_sanity_checks": ["not counted: it moves bytes that no number here has in it"],
        "steps_per_print": ["it moves no bytes"],
        "gradient_cliping": ["DeepSpeed knows no such key here and passes over it"],
        "aio.queue_depth": ["no effect at stage 2, only at 3"],
        "activation_checkpointing.cpu_checkpointing": [
            "the model does not call deepspeed.checkpointing (--checkpointing deepspeed: as if it did)"
        ],
    }
    assert ran.json["together"]["needed"] == 0
    out = zeroplan("diff", "a.json", "b.json", *WORDS).out
    assert "needs as much of each GPU as a.json" in out
    assert "is as fast" in out


def test_what_acts_beside_another_only(zeroplan, write):
    """A prefetch bucket does something at stage 3, so beside the stage, and the sum is not the whole."""
    b = zero(stage=3, stage3_prefetch_bucket_size=0)
    ran = zeroplan("diff", write("a.json", STAGE_2), write("b.json", b), *WORDS, "--json")
    change = keys(ran)["zero_optimization.stage3_prefetch_bucket_size"]
    assert change["nothing"] is None
    assert not any(change["alone"].values())
    assert change["last"]["calls"] > 0
    assert ran.json["together"]["calls"] == keys(ran)["zero_optimization.stage"]["alone"]["calls"] + change["last"]["calls"]
    assert ran.json["sum"]["calls"] != ran.json["together"]["calls"]
    out = " ".join(zeroplan("diff", "a.json", "b.json", *WORDS).out.split())
    assert "(beside the others)" in out
    assert "act on each other" in out


@pytest.mark.parametrize("columns", ["80", "140"])
def test_screens(zeroplan, monkeypatch, columns):
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("NO_COLOR", "1")
    ran = zeroplan("diff", *FILES, *WORDS)
    answer, *below = ran.out.splitlines()
    assert ran.code == 0
    assert "\x1b" not in ran.out
    assert answer.endswith(".")
    assert max(map(len, below)) <= int(columns)
    assert "zero_optimization.reduce_bucket_size" in ran.out
    assert "500,000,000 → 50,000,000" in ran.out
    assert zeroplan("diff", *FILES, *WORDS, "-q").out == f"{answer}\n"


def test_what_does_not_fit_is_said_and_is_no_failure(zeroplan, write):
    ran = zeroplan("diff", write("a.json", zero(stage=0)), write("b.json", zero(stage=3)), "--params", "7B", "--gpus", "8",
                   "--gpu-mem", "40", "-q")  # fmt: skip
    assert ran.code == 0
    assert " a.json does not fit: it needs " in ran.out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("a.json", "none.json"), "none.json: found no such file or directory"),
        (("-", "-"), "standard input is named twice; write - once"),
        (("a.json", "b.json", "--config", "a.json"), "leave out --config"),
        (("a.json", "b.json", "--gpus", "8"), "write --model"),
        (("a.json", "wrong.json"), "wrong.json: zero_optimization.stage: found 7"),
        (("a.json", "batch.json", "--params", "1.3B", "--gpus", "8"), "batch.json: train_batch_size: found 12"),
        (("a.json", "b.json", "--params", "1.3B", "--stage", "2"), "--stage 2 contradicts b.json"),
    ],
)
def test_bad_input(zeroplan, write, words, said):
    for name, config in {"a": STAGE_2, "b": zero(stage=3), "wrong": zero(stage=7)}.items():
        write(f"{name}.json", config)
    write("batch.json", {"train_batch_size": 12})
    ran = zeroplan("diff", *words)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
    assert said in ran.err


def test_standard_input(zeroplan, write, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(STAGE_2).encode())))
    ran = zeroplan("diff", "-", write("b.json", zero(stage=3)))
    assert ran.out.startswith("standard input and b.json: one key means something else.")


def test_from_python():
    found = package.diff(*FILES, model="gpt2", gpus=8, seq=256)
    assert found.together.needed == found.b.needed - found.a.needed
    assert found.fits is None
    assert found.to_dict()["command"] == "diff"
    assert len(found.changes) == 6


def configs():
    draws = json.loads((REFERENCES / "check" / "draws.json").read_text(encoding="utf-8"))["draws"]
    for _seed, config, said in draws:
        if said:
            continue
        try:
            yield canonical(config)
        except ZeroplanError:
            continue


def test_all_changes_made_are_the_other_config():
    """On configs that DeepSpeed took (tests/references/check): no difference is left, and none to itself."""
    taken = list(configs())
    assert len(taken) > 100
    for a, b in pairwise(taken):
        assert differences(a, a) == []
        found = differences(a, b)
        assert differences(changed(a, b, [one.path for one in found]), b) == []
        assert {one.path for one in differences(b, a)} == {one.path for one in found}
