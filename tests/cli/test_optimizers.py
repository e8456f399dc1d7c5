"""--optim and --built-in: which optimizer steps where a config names none, what contradicts, and what a plan writes."""

from __future__ import annotations

import importlib.util
import json

import pytest

from zeroplan.specs.optimizer import ASSUMED_OPTIM, OPTIMS, UNPLANNED_OPTIMS

JOB = ("--model", "llama-3.2-1b", "--gpus", "4", "--stage", "2", "--micro-batch", "1", "--grad-accum", "1", "--seq", "512")
BF16 = {"bf16": {"enabled": True}, "zero_optimization": {"stage": 2}}
CPU = {"bf16": {"enabled": True}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}
SECTION = {"optimizer": {"type": "AdamW", "params": {"lr": 1e-5}}}


def config(tmp_path, content):
    path = tmp_path / "ds_config.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return ("--config", str(path))


def assumed(ran):
    return [text for text in ran.json["assumed"] if text.startswith("optimizer")]


def held(ran):
    """Bytes between steps, by line."""
    return {line["name"]: line["bytes"] for line in ran.json["memory"]["gpu"]["lines"] if "resident" in line["phases"]}


def test_the_class_is_named_where_nobody_names_it(zeroplan, tmp_path):
    """DeepSpeed's where a plan writes the section; without a section the Trainer's, fused from torch 2.8 on."""
    assert assumed(zeroplan("estimate", *JOB, "--json")) == ["optimizer adamw, DeepSpeed's FusedAdam (--optimizer, --optim)"]
    offloaded = zeroplan("estimate", *JOB, "--offload-optimizer", "cpu", "--json")
    assert assumed(offloaded) == ["optimizer adamw, DeepSpeedCPUAdam (--optimizer, --optim)"]
    job = tuple(word for word in JOB if word not in ("--stage", "2"))
    none = zeroplan("estimate", *job, *config(tmp_path, BF16), "--json")
    assert assumed(none) == [
        "optimizer adamw, adamw_torch_fused, as the Trainer makes it from torch 2.8 on: the config has no optimizer "
        "section (--optim)"
    ]
    away = zeroplan("estimate", *job, *config(tmp_path, CPU), "--json")
    assert assumed(away) == [
        "optimizer adamw, DeepSpeedCPUAdam, which Accelerate puts in the place of the Trainer's AdamW: the config has "
        "no optimizer section (--optim)"
    ]
    assert assumed(zeroplan("estimate", *job, *config(tmp_path, BF16 | SECTION), "--json")) == []
    assert assumed(zeroplan("estimate", *job, *config(tmp_path, BF16), "--optim", "adamw_torch", "--json")) == []


def test_fused_torch_holds_what_deepspeed_holds_but_for_a_few_numbers(zeroplan):
    """A flag of 4 bytes in FusedAdam, 4 bytes of steps for each of the Trainer's two groups in torch's; padding aside."""
    fused, own = (held(zeroplan("estimate", *JOB, *more, "--json")) for more in (("--optim", "adamw_torch_fused"), ()))
    assert fused.pop("step counters") == 2 * 4
    assert own.pop("fused optimizer's flag") == 4
    assert fused == own


def test_a_suffix_counts_tensor_by_tensor(zeroplan):
    """A partition of 1,235,814,400 / 4 in fp32, once more than with foreach, where the update is the step's peak."""
    one, foreach = (
        zeroplan("estimate", *JOB, "--optim", f"adamw_torch{suffix}", "--json").json["memory"]["gpu"]["phases"]["step"]
        for suffix in ("-single-tensor", "")
    )
    assert one - foreach == pytest.approx(1_235_814_400, rel=0.01)


@pytest.mark.parametrize(("content", "words", "says"), [
    (None, ("--optim", "paged_adamw_8bit"), "found paged_adamw_8bit, which is not planned, expected adamw_torch_fused"),
    (None, ("--optim", "adam_torch"), "found 'adam_torch', expected adamw_torch_fused"),
    (None, ("--optim", "lion_32bit-single-tensor"), "expected adamw_torch_fused"),
    (None, ("--optim", "adamw_torch", "--optimizer", "sgd"), "--optimizer sgd contradicts --optim adamw_torch"),
    (BF16 | SECTION, ("--optim", "adamw_torch"), "whose optimizer section decides, under the Trainer too"),
    (CPU, ("--optim", "adafactor"), "becomes DeepSpeedCPUAdam (Accelerate)"),
    (None, ("--built-in", "bf16", "--precision", "fp32"), "DeepSpeed casts no model there"),
    (None, ("--built-in", "float64"), "--built-in: found 'float64', expected fp32, fp16, bf16"),
    (None, ("--built-on", "cpu"), "--built-on: found 'cpu', expected host, gpu"),
])  # fmt: skip
def test_what_contradicts_is_said_in_one_line(zeroplan, tmp_path, content, words, says):
    job = JOB if content is None else (*JOB[:4], *JOB[6:], *config(tmp_path, content))
    ran = zeroplan("estimate", *job, *words)
    assert (ran.code, ran.out) == (2, "")
    assert says in ran.err
    assert ran.err.count("\n") == 1


def test_a_named_cpu_optimizer_of_the_users_own_is_taken(zeroplan, tmp_path):
    """zero_force_ds_cpu_optimizer false keeps Accelerate from replacing it."""
    own = config(tmp_path, CPU | {"zero_force_ds_cpu_optimizer": False})
    assert zeroplan("estimate", *JOB[:4], *JOB[6:], *own, "--optim", "adafactor", "-q").code == 0


@pytest.mark.parametrize(("optim", "written"), [
    ("adamw_torch_fused", "adamw_torch_fused"), ("adamw_torch", "adamw_torch"), ("adamw_bnb_8bit", "adamw_8bit"),
    ("sgd", "sgd"), ("lion_32bit", "lion_32bit"), ("adafactor", "adafactor"),
])  # fmt: skip
def test_a_plan_names_what_was_counted(zeroplan, tmp_path, optim, written):
    """No optimizer section, and TrainingArguments with the name; estimating the file gives the planned bytes."""
    folder = tmp_path / "plan"
    words = ("--model", "llama-3.2-1b", "--gpus", "8", "--gpu-mem", "80", "--seq", "512", "--optim", optim)
    planned = zeroplan("recommend", *words, "--global-batch", "64", "--for", "hf", "--dir", str(folder), "--json")
    assert planned.code == 0, planned.err
    assert "optimizer" not in json.loads((folder / "ds_config.json").read_text())
    arguments = json.loads((folder / "training_arguments.json").read_text())
    assert arguments["optim"] == written
    precision, checkpointing = ("--precision", "bf16"), planned.json["plan"]["strategy"]["checkpointing"]
    again = zeroplan(
        "estimate", *words, "--config", str(folder / "ds_config.json"), *precision, "--checkpointing", checkpointing,
        "--micro-batch", str(arguments["per_device_train_batch_size"]),
        "--grad-accum", str(arguments["gradient_accumulation_steps"]), "--json",
    )  # fmt: skip
    assert again.code == 0, again.err
    assert again.json["memory"] == planned.json["plan"]["memory"]


def test_a_plan_for_a_config_without_a_section_leaves_it_out(zeroplan, tmp_path):
    out = tmp_path / "out.json"
    words = ("--model", "llama-3.2-1b", "--gpus", "8", "--gpu-mem", "80", "--seq", "512", "--global-batch", "64")
    assert zeroplan("recommend", *words, *config(tmp_path, BF16), "-o", str(out), "--for", "hf").code == 0
    assert "optimizer" not in json.loads(out.read_text())


def test_a_build_in_fp32_on_the_gpu_is_counted_there(zeroplan):
    """4 bytes of each of 1,235,814,400 parameters, and 2 of the first, 128,256 × 2,048, that is cast beside."""
    fp32 = zeroplan("estimate", *JOB, "--built-in", "fp32", "--built-on", "gpu", "--json").json["memory"]["gpu"]
    host = zeroplan("estimate", *JOB, "--built-in", "fp32", "--json").json["memory"]["gpu"]
    usual = zeroplan("estimate", *JOB, "--json").json["memory"]["gpu"]
    assert host == usual
    assert fp32["phases"]["init"] == pytest.approx(4 * 1_235_814_400 + 2 * 128_256 * 2_048, abs=1024)


@pytest.mark.skipif(importlib.util.find_spec("transformers") is None, reason="transformers is not installed")
def test_names_are_transformers_own():
    from transformers.training_args import OptimizerNames, TrainingArguments

    assert {*OPTIMS, *UNPLANNED_OPTIMS} == {name.value for name in OptimizerNames}
    assert TrainingArguments.__dataclass_fields__["optim"].default == ASSUMED_OPTIM
