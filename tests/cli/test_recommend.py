from __future__ import annotations

import json
import re

import pytest

from zeroplan.report.brief.recommend import OPTION


def test_works_as_typed(zeroplan):
    ran = zeroplan("recommend", "--gpu-mem", "80", "-v")
    assert ran.code == 0
    assert ran.out.startswith("7B on 8 GPUs: ZeRO-")
    text = " ".join(ran.out.split())
    for said in (
        "8 GPUs (--gpus)",
        "model of 7B (--model)",
        "a card of 80 GB shows PyTorch 79.25 GiB",
        "Why the others lost",
    ):
        assert said in text


def test_the_reason_is_in_bytes_or_seconds(zeroplan):
    found = zeroplan("recommend", "--gpu-mem", "80", "--json").json
    assert found["plan"]["fit"]["fits"] is True
    assert found["rejected"]
    for rejected in found["rejected"]:
        assert (
            "GiB too many" in rejected["reason"]
            or " a step slower" in rejected["reason"]
            or "as fast, needs" in rejected["reason"]
        )


def test_nothing_is_offloaded_or_runs_again_without_need(zeroplan):
    """Stage 1 shares out the update, at the same volume of traffic as stage 0: it is the faster one."""
    strategy = zeroplan("recommend", "--params", "350M", "--gpus", "8", "--gpu-mem", "80", "--json").json["plan"][
        "strategy"
    ]
    assert (strategy["stage"], strategy["offload_optimizer"], strategy["checkpointing"]) == (1, None, "none")


def test_offload_when_nothing_else_fits(zeroplan):
    words = ("recommend", "--params", "7B", "--gpus", "1", "--gpu-mem", "24", "--json")
    assert zeroplan(*words).json["plan"]["strategy"]["offload_optimizer"]["device"] == "cpu"
    refused = zeroplan(*words, "--host-mem", "64GiB")
    assert refused.code == 1
    assert any("host memory per node" in rejected["reason"] for rejected in refused.json["rejected"])


def test_when_nothing_fits_it_says_what_would(zeroplan):
    ran = zeroplan(
        "recommend", "--params", "70B", "--gpus", "8", "--gpu-mem", "24", "--offload-optimizer", "none", "--json"
    )
    assert ran.code == 1
    assert ran.json["plan"] is None
    changes = " ".join(way["change"] for way in ran.json["ways_out"])
    for way in ("--gpus", "--offload-optimizer"):
        assert way in changes


@pytest.mark.parametrize(
    ("words", "change"),
    [
        (["--checkpointing", "none", "--seq", "32768", "--micro-batch", "1"], "--checkpointing full"),
        (["--seq", "16384", "--micro-batch", "16"], "a smaller micro-batch"),
        (["--attention", "eager", "--seq", "32768"], "--attention sdpa"),
    ],
)
def test_single_changes_are_tried(zeroplan, words, change):
    ran = zeroplan("recommend", "--params", "7B", "--gpus", "8", "--gpu-mem", "40", *words, "--json")
    assert ran.code == 1
    assert any(change in way["change"] for way in ran.json["ways_out"])
    for way in ran.json["ways_out"]:
        assert way["fit"]["fits"] is True


def test_settled_fields_are_kept(zeroplan):
    words = ["--stage", "3", "--checkpointing", "full", "--micro-batch", "2", "--grad-accum", "4"]
    strategy = zeroplan("recommend", "--gpu-mem", "80", *words, "--json").json["plan"]["strategy"]
    assert [strategy[key] for key in ("stage", "checkpointing", "micro_batch", "grad_accum")] == [3, "full", 2, 4]


def test_a_global_batch_is_met_exactly(zeroplan):
    found = zeroplan("recommend", "--gpu-mem", "80", "--gpus", "8", "--global-batch", "96", "--json").json["plan"][
        "strategy"
    ]
    assert found["micro_batch"] * found["grad_accum"] * 8 == 96


def test_writes_the_config_and_keeps_what_is_there(zeroplan, tmp_path):
    path = tmp_path / "ds_config.json"
    assert zeroplan("recommend", "--gpu-mem", "80", "-o", str(path)).code == 0
    first = path.read_bytes()
    assert json.loads(first)["zero_optimization"]["stage"] in range(4)
    kept = zeroplan("recommend", "--gpu-mem", "40", "-o", str(path))
    assert (kept.code, path.read_bytes()) == (2, first)
    assert "--force" in kept.err
    assert zeroplan("recommend", "--gpu-mem", "80", "-o", str(path), "--force").code == 0
    assert path.read_bytes() == first
    assert [entry.name for entry in tmp_path.iterdir()] == ["ds_config.json"]


def test_standard_output_holds_only_the_json(zeroplan):
    ran = zeroplan("recommend", "--gpu-mem", "80", "-o", "-", "--for", "deepspeed")
    config = json.loads(ran.out)
    assert "auto" not in ran.out
    assert (
        config["train_batch_size"]
        == config["train_micro_batch_size_per_gpu"] * config["gradient_accumulation_steps"] * 8
    )


def test_no_card_is_asked_for(zeroplan):
    ran = zeroplan("recommend", "--params", "7B")
    assert (ran.code, ran.out) == (2, "")
    assert "--gpu-mem 80" in ran.err


def test_a_global_batch_leaves_the_micro_batch_open(zeroplan):
    words = ("recommend", "--model", "llama-2-7b", "--gpus", "8", "--gpu-mem", "80", "--seq", "512", "--json")
    usual, asked = (zeroplan(*words, *more).json["plan"]["strategy"] for more in ((), ("--global-batch", "256")))
    assert asked == usual
    assert asked["micro_batch"] > 1


@pytest.mark.parametrize(("size", "micro_steps"), [(4, 8), (3, 11), (512, 1)])
def test_a_micro_batch_alone_is_accumulated_to_the_usual_batch(zeroplan, size, micro_steps):
    """256 sequences on 8 GPUs are 32 a GPU: 8 × 4, 11 × 3 (33, the nearest), and no less than one micro-step."""
    words = ("recommend", "--params", "10M", "--gpus", "8", "--seq", "64", "--gpu-mem", "80", "--micro-batch", str(size))
    ran = zeroplan(*words, "--json").json
    strategy = ran["plan"]["strategy"]
    assert (strategy["micro_batch"], strategy["grad_accum"]) == (size, micro_steps)
    assert f"{8 * size * micro_steps} sequences a step (--global-batch)" in ran["assumed"]


def test_a_config_without_accumulation_has_one_micro_step(zeroplan, tmp_path):
    """DeepSpeed 0.19.8 runtime/config.py:_set_batch_related_parameters; "auto" is the Trainer's to fill."""
    config, small = tmp_path / "ds.json", ("--params", "10M", "--gpus", "8", "--seq", "64", "--gpu-mem", "80")
    for stated, micro_steps in (({}, 1), ({"gradient_accumulation_steps": "auto"}, 8)):
        config.write_text(json.dumps({"train_micro_batch_size_per_gpu": 4, **stated}))
        strategy = zeroplan("recommend", "--config", str(config), *small, "--json").json["plan"]["strategy"]
        assert strategy["grad_accum"] == micro_steps


def test_muon_at_stage_3_is_written_as_deepspeed_takes_it(zeroplan):
    """runtime/zero/stage3.py: "Muon and reduce scatter cannot be used together"."""
    words = ("recommend", "--params", "1B", "--gpu-mem", "80", "--optimizer", "muon", "--stage", "3", "-o", "-")
    assert json.loads(zeroplan(*words).out)["zero_optimization"]["reduce_scatter"] is False


def test_lamb_is_not_offloaded(zeroplan):
    ran = zeroplan(
        "recommend", "--params", "1B", "--gpu-mem", "80", "--optimizer", "lamb", "--offload-optimizer", "cpu"
    )
    assert ran.code == 2
    assert "lamb runs on the GPU only" in ran.err


def test_what_a_config_states_of_the_optimizer_is_repeated_for_the_trainer(zeroplan, tmp_path):
    """transformers integrations/deepspeed.py, fill_match: the Trainer stops where the two differ."""
    config = tmp_path / "ds_config.json"
    params = {"lr": 4e-05, "betas": [0.9, 0.95], "eps": "auto", "weight_decay": 0.1}
    config.write_text(json.dumps({"optimizer": {"type": "AdamW", "params": params}, "bf16": {"enabled": True}}))
    text = " ".join(zeroplan("recommend", "--params", "1B", "--gpu-mem", "80", "--config", str(config), "-v").out.split())
    for argument in ("learning_rate=4e-05", "adam_beta1=0.9", "adam_beta2=0.95", "weight_decay=0.1"):
        assert argument in text
    assert "adam_epsilon" not in text


def test_a_written_plan_says_where_and_who_turns_checkpointing_on(zeroplan, tmp_path):
    config = tmp_path / "ds_config.json"
    words = ("--params", "70B", "--gpus", "64x8", "--gpu-mem", "80", "--seq", "8192")
    text = zeroplan("recommend", *words, "--checkpointing", "full", "-o", str(config), "--for", "deepspeed").out
    assert "model.gradient_checkpointing_enable()" in text
    assert f"Written:{config}." in "".join(text.split())  # a long name is cut
    checked = zeroplan("estimate", *words, "--config", str(config), "--checkpointing", "full")
    assert checked.code == 0


def test_a_batch_that_is_wrong_for_the_gpus_names_the_right_one(zeroplan, tmp_path):
    config = tmp_path / "ds_config.json"
    batch = {"train_batch_size": 512, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1}
    config.write_text(json.dumps({**batch, "zero_optimization": {"stage": 1}}))
    ran = zeroplan("estimate", "--params", "1B", "--gpus", "8", "--config", str(config))
    assert ran.code == 2
    assert ran.err.strip().endswith("write train_batch_size 8")


def test_a_larger_host_or_disks_are_ways_out_where_the_host_is_short(zeroplan):
    """What is said to be enough is enough: each is typed, and a plan fits."""
    words = ("recommend", "--model", "llama-3.1-8b", "--gpus", "1", "--gpu", "rtx-4090")
    ran = zeroplan(*words, "--host-mem", "64GiB", "--json")
    assert ran.code == 1
    changes = [way["change"] for way in ran.json["ways_out"]]
    host = next(text for text in changes if "--host-mem" in text).split("--host-mem ")[1].split(")")[0]
    disks = next(text for text in changes if "--nvme" in text).split("--nvme ")[1].split(")")[0]
    assert zeroplan(*words, "--host-mem", host, "-q").code == 0
    assert zeroplan(*words, "--host-mem", "64GiB", "--nvme", disks, "-q").code == 0


QWEN = ("recommend", "--model", "qwen3-8b", "--gpus", "8", "--gpu", "h100-80gb", "--seq", "4096", "--headroom", "5%")
"""The fastest plan checkpoints every fourth layer, which the Trainer is told by an argument and others by lines of code."""


class TestCode:
    """What a target is told by no file or argument of its own is an alternative, and planned with --allow code."""

    def test_the_plan_is_what_its_target_is_told(self, zeroplan):
        """Selective checkpointing is no argument of the Trainer's, every-k is one of its gradient_checkpointing_kwargs."""
        phi = ("recommend", "--model", "phi-4", "--gpus", "8", "--gpu", "h100-80gb", "--stage", "3", "--headroom", "5%")
        told, allowed = (zeroplan(*phi, *more, "--json").json["plan"] for more in ((), ("--allow", "code")))
        assert told["strategy"]["checkpointing"] == "every-8"
        assert allowed["strategy"]["checkpointing"] == "selective"
        assert allowed["step_seconds"] <= 1.001 * told["step_seconds"]  # no step is made longer or shorter for less
        assert "gradient_checkpointing=True" in " ".join(zeroplan(*phi, "-v").out.split())

    def test_what_lines_of_code_would_gain_is_said(self, zeroplan):
        told, coded = (zeroplan(*QWEN, "--for", "deepspeed", *more, "--json").json for more in ((), ("--allow", "code")))
        assert told["plan"]["strategy"]["checkpointing"] in ("none", "full")
        assert coded["plan"]["strategy"]["checkpointing"] == "every-4"
        assert told["with_code"]["strategy"]["checkpointing"] == "every-4"
        assert "with_code" not in coded
        share = 1 - told["with_code"]["step_seconds"] / told["plan"]["step_seconds"]  # as many sequences a step
        assert 0.01 < share < 0.1
        text = " ".join(zeroplan(*QWEN, "--for", "deepspeed", "-v").out.split())
        assert "With lines of code this plan would be 4% faster" in text
        text = " ".join(zeroplan(*QWEN, "--for", "deepspeed").out.split())
        assert re.search(r"with lines of code -[0-9.]+ s a step \(-[34]\.\d%\), needs [0-9.]+ GiB: write --allow code", text)
        assert "write --allow code" in text

    def test_a_target_that_is_told_more_plans_more(self, zeroplan):
        answer = zeroplan(*QWEN, "--json").json
        assert answer["plan"]["strategy"]["checkpointing"] == "every-4"
        assert "with_code" not in answer
        text = " ".join(zeroplan(*QWEN, "-v").out.split())
        assert "gradient_checkpointing_kwargs={'every_n_layers': 4}" in text

    def test_what_is_typed_needs_no_leave(self, zeroplan):
        ran = zeroplan(*QWEN, "--for", "deepspeed", "--checkpointing", "selective", "--json")
        assert ran.json["plan"]["strategy"]["checkpointing"] == "selective"

    @pytest.mark.parametrize("typed", ["cod", "", "all"])
    def test_only_code_can_be_allowed(self, typed, zeroplan):
        ran = zeroplan("recommend", "--gpu-mem", "80", "--allow", typed)
        assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1)
        assert ran.err.endswith("expected code; write --allow code\n")


def test_what_starts_a_written_plan_stands_below_it(zeroplan, tmp_path):
    folder = tmp_path / "plan with care"
    ran = zeroplan("recommend", "--model", "gpt2", "--gpus", "2", "--gpu", "t4", "--seq", "512", "--dir", str(folder))
    script = re.search(r"next: bash '(.*)'", ran.out)[1]
    assert script.startswith(f"{folder}/")
    assert (folder / script.removeprefix(f"{folder}/")).is_file()


@pytest.mark.parametrize(("way", "words"), [
    ("fused attention (--attention sdpa, or flash_attention_2 where it is not there): ZeRO-1", ("--attention", "sdpa")),
    ("a host of 265 GiB (--host-mem 265GiB): ZeRO-3", ("--host-mem", "265GiB")),
    ("another stage than 3 (leave --stage out): ZeRO-1", None),
])  # fmt: skip
def test_the_option_of_a_way_out_is_one_that_can_be_pasted(way, words):
    match = re.search(OPTION, way)
    assert (match.groups() if match else None) == words
