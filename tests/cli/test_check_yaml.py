"""`zeroplan check` of YAML: files for accelerate launch, and of TrainingArguments."""

from __future__ import annotations

import json

import pytest

HEAD = "distributed_type: DEEPSPEED\nnum_processes: 8\nmixed_precision: bf16\ndeepspeed_config:\n"
WHOLE = "  zero_stage: 3\n  zero3_save_16bit_model: true\n  zero3_init_flag: true\n"
CONFIG = {"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": True}, "zero_optimization": {"stage": 3}}


@pytest.fixture
def write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def written(name, text):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text if isinstance(text, str) else json.dumps(text), encoding="utf-8")
        return name

    return written


def found(ran):
    return {(one["rule"], one["file"], one["line"], one["path"]) for one in ran.json["findings"]}


def test_inline_fields_are_a_config(zeroplan, write):
    name = write("accelerate.yaml", HEAD + "  zero_stage: 5\n")
    assert found(zeroplan("check", name, "--format", "json")) == {("ZP401", name, 5, "deepspeed_config.zero_stage")}
    name = write("accelerate.yaml", HEAD + "  zero_stage: 2\n  offload_param_device: cpu\n")
    ran = zeroplan("check", name, "--format", "json")
    assert found(ran) == {("ZP501", name, 6, "deepspeed_config.offload_param_device")}
    assert ran.json["findings"][0]["write"] == "zero_stage: 3, or delete it"
    assert zeroplan("check", write("accelerate.yaml", HEAD + WHOLE)).code == 0


def test_the_file_that_is_named_is_looked_for_beside_the_yaml(zeroplan, write):
    name = write("run/accelerate.yaml", HEAD.replace("mixed_precision: bf16\n", "") + "  deepspeed_config_file: z3.json\n")
    beside = write("run/z3.json", CONFIG)
    assert {(rule, file) for rule, file, *_ in found(zeroplan("check", name, "--format", "json"))} == {("ZP415", beside)}
    assert "run/z3.json:1:" in zeroplan("check", name, "--format", "concise").out


def test_a_named_file_that_is_not_there(zeroplan, write):
    name = write("accelerate.yaml", "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: none.json\n")
    ran = zeroplan("check", name, "--format", "json")
    assert found(ran) == {("ZP811", name, 3, "deepspeed_config.deepspeed_config_file")}


def test_processes_are_the_gpus(zeroplan, write):
    head = "distributed_type: DEEPSPEED\nnum_processes: 6\ndeepspeed_config:\n  deepspeed_config_file: ds.json\n"
    write("ds.json", {"train_batch_size": 16, **CONFIG})
    ran = zeroplan("check", write("a.yaml", head), "--select", "ZP2", "--format", "json")
    assert {one["rule"] for one in ran.json["findings"]} == {"ZP202"}


def test_the_fit_of_inline_fields(zeroplan, write):
    name = write("accelerate.yaml", HEAD + WHOLE)
    asked = ("--model", "llama-3.1-70b", "--gpu-mem", "80", "--seq", "4096")
    assert "on each of 8 GPUs" in zeroplan("check", name, *asked).out
    assert zeroplan("check", name, *asked).code == 1


def test_arguments_of_the_trainer_beside_a_config(zeroplan, write):
    config = write("ds.json", CONFIG | {"zero_optimization": {"stage": 2}})
    arguments = write("train.yaml", "per_device_train_batch_size: 2\nlearning_rate: 1e-4\nbf16: true\n")
    ran = zeroplan("check", config, "--trainer-args", arguments, "--format", "json")
    assert found(ran) == {
        ("ZP112", arguments, 2, "learning_rate"), ("ZP205", config, 1, "train_micro_batch_size_per_gpu"),
    }  # fmt: skip
    assert "train.yaml:1" in zeroplan("check", config, "--trainer-args", arguments).out


def test_a_training_yaml_names_its_config(zeroplan, write):
    write("ds.json", CONFIG | {"zero_optimization": {"stage": 2}})
    name = write("train.yaml", "deepspeed: ds.json\nper_device_train_batch_size: 2\nbf16: true\n")
    assert found(zeroplan("check", name, "--format", "json")) == {
        ("ZP205", "ds.json", 1, "train_micro_batch_size_per_gpu")
    }


@pytest.mark.parametrize(
    "text",
    ["a: 1\n", "deepspeed: none.json\n", "deepspeed: null\n", "a: &a [*a]", "a: !!python/name:os.system x",
     "own: [", "- 1", "", "\0"],
)  # fmt: skip
def test_what_is_no_config_is_one_line(zeroplan, write, text):
    ran = zeroplan("check", write("a.yaml", text))
    assert ran.code == 2
    assert ran.out == ""
    assert ran.err.count("\n") == 1


def test_a_config_inside_a_training_yaml(zeroplan, write):
    """TrainingArguments.deepspeed is a path or the config itself (transformers 5.23 training_args.py)."""
    text = "bf16: true\ndeepspeed:\n  zero_optimization: {stage: 2, overlap_com: true}\n  train_batch_size: auto\n"
    name = write("train.yaml", text)
    assert found(zeroplan("check", name, "--format", "json")) == {("ZP108", name, 3, "zero_optimization.overlap_com")}
    assert zeroplan("check", write("train.yaml", text.replace("overlap_com", "overlap_comm"))).code == 0


@pytest.mark.parametrize(("said", "warned"), [("bf16: true", False), ("fp16: true", False), ("bf16: false", True)])
def test_the_trainer_turns_on_the_precision_that_its_arguments_say(zeroplan, write, said, warned):
    """transformers 5.23 training_args.py:1720: accelerate's set_mixed_precision puts the section where there is none."""
    name = write("train.yaml", f"{said}\ndeepspeed: {{zero_optimization: {{stage: 2}}, train_batch_size: auto}}\n")
    assert ("ZP309" in zeroplan("check", name).out) == warned


def test_a_file_that_is_named_and_is_no_config_is_not_quoted(zeroplan, tmp_path, monkeypatch):
    """A log of CI shows what check prints: /etc/passwd is no ds_config, whoever names it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "passwd").write_text("root:x:0:0:secret:/root\n", encoding="utf-8")
    launch = "distributed_type: DEEPSPEED\ndeepspeed_config: {deepspeed_config_file: passwd}\n"
    for name, text in (("launch.yaml", launch), ("train.yaml", "deepspeed: passwd\n")):
        (tmp_path / name).write_text(text, encoding="utf-8")
        ran = zeroplan("check", name)
        assert "secret" not in ran.out + ran.err
        estimated = zeroplan("estimate", "--params", "1B", "--config", name)
        assert estimated.code == 2
        assert "secret" not in estimated.out + estimated.err


@pytest.mark.parametrize(
    ("steps", "stated", "version", "message"),
    [
        (100, "", "5.24.0", "warmup_steps says 0 (the default of warmup_steps), of which the Trainer makes 1"),
        (0, "", "5.24.0", "warmup_steps says 0 (the default of warmup_steps), of which the Trainer makes 1"),
        (100, "warmup_steps: 0\n", "5.24.0", "warmup_steps says 0 (train.yaml:4), of which the Trainer makes 1"),
        (100, "warmup_steps: 10\n", "5.24.0", "warmup_steps says 10 (train.yaml:4)"),
        (1, "", "5.24.0", ""),
        (100, "", "5.17.0", "warmup_steps says 0 (the default of warmup_steps): the Trainer stops"),
    ],
)
def test_what_the_trainer_makes_of_no_warmup(zeroplan, write, steps, stated, version, message):
    """Run: HfTrainerDeepSpeedConfig.trainer_config_finalize of transformers 5.24: "warmup_num_steps=100 vs hf
    warmup_steps=1", likewise of 0, and of 10 where that is stated. Before 5.18 it compares with 0 (the same function).
    """
    scheduler = {"type": "WarmupLR", "params": {"warmup_num_steps": steps}}
    write("ds.json", {**CONFIG, "train_micro_batch_size_per_gpu": "auto", "zero_optimization": {"stage": 2}, "scheduler": scheduler})
    name = write("train.yaml", f"deepspeed: ds.json\nper_device_train_batch_size: 2\nbf16: true\n{stated}")
    ran = zeroplan("check", name, "--transformers", version, "--select", "ZP620")
    assert message in ran.out
    assert ("ZP620" in ran.out) == bool(message)
