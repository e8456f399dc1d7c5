"""What LLaMA-Factory itself refuses beside DeepSpeed."""

from __future__ import annotations

import json

import pytest

HEAD = {"model_name_or_path": "x/y", "stage": "sft", "do_train": True, "finetuning_type": "lora", "dataset": "a",
        "template": "llama3", "output_dir": "o", "bf16": True, "deepspeed": "ds.json", "per_device_train_batch_size": 1}  # fmt: skip
FULL = {"finetuning_type": "full"}
STOPS = [
    ({}, 3, False),
    ({"predict_with_generate": True, "val_size": 0.1}, 3, True),
    ({"predict_with_generate": "true", "val_size": 0.1}, 3, True),
    ({"predict_with_generate": True, "val_size": 0.1}, 2, False),
    ({"pissa_init": True}, 3, True),
    ({"pissa_init": True}, 2, False),
    ({"pure_bf16": True, "bf16": False}, 3, True),
    ({"pure_bf16": True, "bf16": False}, 2, False),
    ({"use_badam": True, **FULL}, 2, True),
    ({"use_badam": True, **FULL}, 3, False),
    ({"use_badam": True, "badam_mode": "ratio", **FULL}, 3, True),
    ({"use_badam": True, "badam_mode": "ratio", **FULL}, 2, True),
    ({"use_galore": True, **FULL}, 2, True),
    ({"use_apollo": True, **FULL}, 2, True),
    ({"use_galore": True, "finetuning_type": "freeze"}, 3, True),
    ({"use_unsloth": True}, 3, True),
    ({"use_unsloth": True}, 2, False),
    ({"use_kt": True}, 3, True),
    ({"use_kt": True}, 2, False),
    ({"quantization_bit": 4}, 3, False),
    ({"quantization_bit": 8}, 3, True),
    ({"quantization_bit": 8}, 2, False),
    ({"quantization_bit": 4, "quantization_method": "hqq"}, 3, True),
    ({"quantization_bit": 4, "quantization_method": "hqq"}, 2, False),
    ({"quantization_bit": 8, "quantization_method": "eetq"}, 3, True),
    ({"model_name_or_path": "x/y-AWQ"}, 3, True),
    ({"model_name_or_path": "x/y-GPTQ-Int4"}, 3, True),
    ({"model_name_or_path": "x/y-bnb-4bit"}, 3, True),
    ({"model_name_or_path": "x/y-FP8"}, 3, False),
    ({"model_name_or_path": "x/y-AWQ"}, 2, False),
]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def write(stage):
        config = {"train_micro_batch_size_per_gpu": "auto", "train_batch_size": "auto", "gradient_accumulation_steps": "auto",
                  "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": stage}}  # fmt: skip
        (tmp_path / "ds.json").write_text(json.dumps(config), encoding="utf-8")
        return tmp_path

    return write


@pytest.mark.parametrize(("more", "stage", "stops"), STOPS)
def test_what_its_parser_refuses(zeroplan, folder, more, stage, stops):
    """Run: llamafactory 0.9.5 hparams/parser.py:get_train_args of this mapping, as one of several ranks: ValueError, or it
    returns; and model/model_utils/quantization.py:configure_quantization at stage 3, which stops at all but bitsandbytes'
    4 bits, and at a model that is published quantized, but in fp8 or mxfp4.
    """
    (folder(stage) / "lf.json").write_text(json.dumps({**HEAD, **more}), encoding="utf-8")
    findings = zeroplan("check", "lf.json", "--format", "json").json["findings"]
    assert [one["rule"] for one in findings if one["severity"] == "error"] == (["ZP820"] if stops else [])


@pytest.mark.parametrize(("stage", "stops"), [(3, True), (2, False)])
@pytest.mark.parametrize("how", ["deepspeed --num_gpus 2 src/train.py --finetuning_type lora", "llamafactory-cli train"])
def test_on_a_command_line(zeroplan, folder, how, stage, stops):
    """HfArgumentParser: a switch alone is true."""
    line = f"{how} --deepspeed ds.json --output_dir o --bf16 --predict_with_generate\n"
    (folder(stage) / "run.sh").write_text(line, encoding="utf-8")
    ran = zeroplan("check", "run.sh")
    assert ("predict_with_generate (run.sh:1) at stage 3" in ran.out) == stops


def test_another_tool_s_argument_of_that_name_is_none_of_it(zeroplan, folder):
    (folder(3) / "run.sh").write_text(
        "deepspeed --num_gpus 2 run_summarization.py --deepspeed ds.json --output_dir o --predict_with_generate\n", encoding="utf-8"
    )
    assert "ZP820" not in zeroplan("check", "run.sh").out


def test_its_checkpointing_is_on_where_nothing_says_it(zeroplan, folder):
    """llamafactory 0.9.5 hparams/model_args.py: disable_gradient_checkpointing is false."""
    line = ("llamafactory-cli train --deepspeed ds.json --output_dir o --bf16 --finetuning_type full --cutoff_len 4096 "
            "--per_device_train_batch_size 2 --model_name_or_path meta-llama/Llama-3.1-8B")  # fmt: skip
    asked = ("check", "run.sh", "--gpu-mem", "80", "--gpus", "8")
    (folder(3) / "run.sh").write_text(line, encoding="utf-8")
    assert "ZP901" not in zeroplan(*asked).out
    (folder(3) / "run.sh").write_text(f"{line} --disable_gradient_checkpointing True", encoding="utf-8")
    assert "ZP901" in zeroplan(*asked).out


@pytest.mark.parametrize(
    ("line", "more", "ranks"),
    [
        ("llamafactory-cli train lf.yaml", "", 0),
        ("llamafactory-cli train lf.yaml per_device_train_batch_size=4", "", 4),
        ("llamafactory-cli train lf.yaml deepspeed=ds.json", "deepspeed: none.json\n", 0),
        ("deepspeed --num_gpus 2 src/train.py lf.yaml", "", None),
    ],
)
def test_a_command_line_wins_over_its_file(zeroplan, folder, line, more, ranks):
    """Run: llamafactory 0.9.5 hparams/parser.py:read_args merges the file with OmegaConf.from_cli: name=value wins."""
    path = folder(3)
    config = {"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 1, "bf16": {"enabled": True},
              "zero_optimization": {"stage": 2}}  # fmt: skip
    (path / "ds.json").write_text(json.dumps(config), encoding="utf-8")
    file = "model_name_or_path: meta-llama/Llama-3.2-1B\nfinetuning_type: full\noutput_dir: o\nbf16: true\ncutoff_len: 512\n"
    file += "per_device_train_batch_size: 1\n" + (more or "deepspeed: ds.json\n")
    (path / "lf.yaml").write_text(file, encoding="utf-8")
    (path / "run.sh").write_text(f"{line}\n", encoding="utf-8")
    ran = zeroplan("check", "run.sh", "--gpu-mem", "80", "--gpus", "8")
    if ranks is None:  # run: the launcher's --local_rank=0 is sys.argv[1]
        assert "error ZP837" in ran.out
        return
    assert ("per_device_train_batch_size says 4 (run.sh:1)" in ran.out, "ZP904" in ran.out) == (ranks == 4, False)
    assert "every sequence 512 tokens" in ran.out


V1 = """model: x/y
model_class: llm
dist_config:
  name: deepspeed
  config_file: ds.json
train_dataset: d.yaml
micro_batch_size: 1
"""
OWN_BATCH = '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "zero_optimization": {"stage": 2}%s}'


@pytest.mark.parametrize(("more", "rules"), [
    ("", []),
    (', "fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}', []),
    (', "fp16": {"enabled": true}', ["ZP820"]),
    (', "bf16": {"enabled": true}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-4}}', ["ZP618"]),
    (', "bf16": {"enabled": true}, "scheduler": {"type": "WarmupLR", "params": {}}', ["ZP820"]),
])  # fmt: skip
def test_the_config_of_its_v1(zeroplan, tmp_path, monkeypatch, more, rules):
    """llamafactory 0.9.5 v1/plugins/model_plugins/deepspeed_utils.py:infer_deepspeed_mixed_precision, run: ValueError at fp16
    that is on; v1/core/base_trainer.py hands Accelerate 1.15 an optimizer and a schedule of its own, beside which
    accelerator.py:2251 and 2266 raise for such a section.
    """
    monkeypatch.chdir(tmp_path)
    (tmp_path / "v1.yaml").write_text(V1, encoding="utf-8")
    (tmp_path / "ds.json").write_text(OWN_BATCH % more, encoding="utf-8")
    findings = zeroplan("check", "v1.yaml", "--format", "json").json["findings"]
    assert [one["rule"] for one in findings if one["severity"] == "error"] == rules


@pytest.mark.parametrize(("old", "new", "said"), [
    ("name: deepspeed", "name: fsdp2", "names no DeepSpeed config, expected dist_config: {name: deepspeed,"),
    ("ds.json", "gone.json", 'config_file "gone.json", which is not there'),
])  # fmt: skip
def test_a_file_of_v1_without_a_config(zeroplan, tmp_path, monkeypatch, old, new, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ds.json").write_text(OWN_BATCH % "", encoding="utf-8")
    (tmp_path / "v1.yaml").write_text(V1.replace(old, new), encoding="utf-8")
    ran = zeroplan("check", "v1.yaml")
    assert ran.code == 2
    assert said in ran.err


@pytest.mark.parametrize(("method", "stage", "code"), [("gptq", 3, 1), ("gptq", 2, 0), ("mxfp4", 3, 0), ("", 3, 0)])
def test_a_quantized_model_in_a_folder(zeroplan, tmp_path, monkeypatch, method, stage, code):
    """0.9.5 model_utils/quantization.py: ValueError of all but MXFP4 and FP8 where is_deepspeed_zero3_enabled()."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model").mkdir()
    quantized = {"quantization_config": {"quant_method": method}} if method else {}
    (tmp_path / "model" / "config.json").write_text(json.dumps({"model_type": "llama", **quantized}))
    zero = f"{{bf16: {{enabled: auto}}, train_micro_batch_size_per_gpu: auto, zero_optimization: {{stage: {stage}}}}}"
    (tmp_path / "a.yaml").write_text(f"model_name_or_path: ./model\nfinetuning_type: lora\noutput_dir: o\nbf16: true\ndeepspeed: {zero}\n")
    ran = zeroplan("check", "a.yaml", "--fail-on", "error", "--format", "concise")
    assert (ran.code, "ZP820: ./model, quantized by gptq" in ran.out) == (code, bool(code))
