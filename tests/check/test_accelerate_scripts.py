"""What a script below `accelerate launch` is given itself: a ds_config, or a file of its arguments."""

from __future__ import annotations

import json

import pytest

CONFIG = {"train_micro_batch_size_per_gpu": "auto", "train_batch_size": "auto", "gradient_accumulation_steps": "auto",
          "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}  # fmt: skip
ARGUMENTS = "--output_dir o --per_device_train_batch_size 1 --bf16"
INLINE = "zero_stage: 2, gradient_accumulation_steps: 1"
RECIPE = "output_dir: o\nper_device_train_batch_size: 2\ngradient_accumulation_steps: 4\nbf16: true\n"


@pytest.fixture
def check(zeroplan, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(line, fields="", more="", kind="DEEPSPEED", config=CONFIG, recipe=RECIPE, options=()):
        head = f"distributed_type: {kind}, num_processes: 4, num_machines: 1, {more}"
        section = f"deepspeed_config: {{{fields}}}" if kind == "DEEPSPEED" else ""
        (tmp_path / "acc.yaml").write_text(f"{{{head}{section}}}\n", encoding="utf-8")
        (tmp_path / "ds.json").write_text(json.dumps(config), encoding="utf-8")
        (tmp_path / "x.yaml").write_text(recipe, encoding="utf-8")
        (tmp_path / "run.sh").write_text(f"accelerate launch --config_file acc.yaml {line}\n", encoding="utf-8")
        return zeroplan("check", "run.sh", *options)

    return run


@pytest.mark.parametrize(
    ("fields", "more", "kind", "options", "stops"),
    [
        (INLINE, "", "DEEPSPEED", "", ["zero_stage", "gradient_accumulation_steps"]),
        ("zero_stage: null, deepspeed_multinode_launcher: standard", "", "DEEPSPEED", "", ["zero_stage"]),
        ("zero3_init_flag: true", "mixed_precision: bf16, ", "DEEPSPEED", "", ["mixed_precision"]),
        ("zero3_init_flag: true", "mixed_precision: 'no', ", "DEEPSPEED", "", ["mixed_precision"]),
        ("zero3_init_flag: true", "mixed_precision: bf16, ", "DEEPSPEED", "--mixed_precision bf16", []),
        ("zero3_init_flag: true", "", "DEEPSPEED", "", []),
        ("deepspeed_config_file: ds.json", "", "DEEPSPEED", "", []),
        ("", "mixed_precision: bf16, ", "MULTI_GPU", "", []),
    ],
)
def test_fields_beside_a_config_of_the_script(check, fields, more, kind, options, stops):
    """Each was run with accelerate 1.15, transformers 5.24 and deepspeed 0.19.8 on the CPU, as `accelerate launch
    --config_file FILE script --deepspeed ds.json`: ValueError of DeepSpeedPlugin._deepspeed_config_checks, or it trained.
    """
    ran = check(f"{options} t.py {ARGUMENTS} --deepspeed ds.json", fields, more, kind, options=("--format", "json"))
    errors = [one for one in ran.json["findings"] if one["severity"] == "error"]
    assert [(one["rule"], one["file"], one["path"].rpartition(".")[2]) for one in errors] == [
        ("ZP802", "acc.yaml", name) for name in stops
    ]


def test_its_processes_are_the_ranks_of_a_config_of_the_script(check):
    config = {**CONFIG, "train_batch_size": 6, "train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1,
              "bf16": {"enabled": True}}  # fmt: skip
    ran = check(f"t.py {ARGUMENTS} --deepspeed ds.json", kind="MULTI_GPU", config=config)
    assert "ds.json, given to accelerate, on 4 GPUs" in ran.out
    assert "train_batch_size 6 is not 1 · 1 · 4 GPUs = 4" in ran.out


@pytest.mark.parametrize(
    ("line", "compared"),
    [
        ("t.py --config x.yaml", "x.yaml:3"),
        ("t.py --config x.yaml --gradient_accumulation_steps 2", "run.sh:1"),
        ("t.py --config x.yaml --gradient_accumulation_steps 1", ""),
        ("t.py", ""),
        ("t.py --config no.yaml", ""),
    ],
)
def test_arguments_in_a_file_of_the_script(check, line, compared):
    """trl 1.16 scripts/utils.py, TrlParser: the file's values are defaults, and what the line says wins. Accelerate's
    accumulation against the Trainer's: fill_match, as in test_launcher.
    """
    ran = check(line, INLINE, "mixed_precision: bf16, ")
    assert ("1 for gradient_accumulation_steps" in ran.out) == bool(compared)
    assert compared in ran.out
    assert ("run.sh:1: x.yaml has the script's arguments\n" in ran.out) == ("x.yaml" in line)


def test_a_file_of_the_script_that_names_the_config(check):
    """The Trainer hands it to DeepSpeedPlugin as it does --deepspeed."""
    ran = check("t.py --config x.yaml", "zero3_init_flag: false", recipe=RECIPE + "deepspeed: ds.json\n",
                config={**CONFIG, "gradient_accumulation_steps": 8})  # fmt: skip
    assert "8 for gradient_accumulation_steps, gradient_accumulation_steps says 4 (x.yaml:3)" in ran.out
    assert "ZP802" not in ran.out
    assert "ZP802" in check("t.py --config x.yaml", INLINE, recipe=RECIPE + "deepspeed: ds.json\n").out


def test_a_config_of_something_else_is_none_of_its_arguments(check):
    assert "ZP2" not in check("t.py --config x.yaml", INLINE, recipe="data: {path: x}\nmodel: {dim: 8}\n").out


def test_the_model_of_the_file_is_judged(check):
    recipe = f"{RECIPE}model_name_or_path: meta-llama/Llama-3.1-8B\nmax_length: 8192\n"
    stage_3 = "zero_stage: 3, gradient_accumulation_steps: 4, zero3_init_flag: true, zero3_save_16bit_model: true"
    card = ("--gpu-mem", "80")
    ran = check("t.py --config x.yaml --gradient_checkpointing false", stage_3, "mixed_precision: bf16, ", recipe=recipe, options=card)
    assert "on each of 4 GPUs" in ran.out
    assert "full training of llama-3.1-8b" in ran.out
    assert "every sequence 8,192 tokens" in ran.out
    ran = check("t.py --config x.yaml --max_length 512", stage_3, "mixed_precision: bf16, ", recipe=recipe, options=card)
    assert "every sequence 512 tokens" in ran.out
    ran = check("t.py --config x.yaml --use_peft", stage_3, "mixed_precision: bf16, ", recipe=recipe, options=card)
    assert ("ZP901" in ran.out, "ZP904" in ran.out) == (False, True)
    assert "--use_peft says what trains, beside x.yaml" in ran.out


def test_a_launcher_without_deepspeed_is_not_said_where_the_script_brings_it(check):
    assert "uses no DeepSpeed" not in check(f"--multi_gpu t.py {ARGUMENTS} --deepspeed ds.json", kind="MULTI_GPU").out
