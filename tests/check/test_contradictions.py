"""Arguments that axolotl and LLaMA-Factory refuse beside one another: each file was read by the tool itself."""

from __future__ import annotations

import json

import pytest
import yaml

DS = json.dumps({"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "bf16": {"enabled": "auto"},
                 "zero_optimization": {"stage": 2}})  # fmt: skip
AXOLOTL = {
    "base_model": "x/y", "datasets": [{"path": "d", "type": "alpaca"}], "micro_batch_size": 1, "gradient_accumulation_steps": 2,
    "num_epochs": 1, "optimizer": "adamw_torch", "learning_rate": 1e-4, "bf16": True, "output_dir": "o", "sequence_len": 512,
    "flash_attention": True, "deepspeed": "ds.json", "val_set_size": 0.1,
}  # fmt: skip
LORA = {"lora_r": 8, "lora_alpha": 16, "lora_target_linear": True}
LLAMA_FACTORY = {
    "model_name_or_path": "x/y", "stage": "sft", "do_train": True, "finetuning_type": "lora", "dataset": "identity",
    "template": "llama3", "cutoff_len": 512, "output_dir": "o", "per_device_train_batch_size": 1, "bf16": True,
    "learning_rate": 1e-4, "num_train_epochs": 1.0, "deepspeed": "ds.json",
}  # fmt: skip
FULL = {"finetuning_type": "full"}


def ran(check_files, whole, more):
    given = {name: value for name, value in {**whole, **more}.items() if value is not None}
    files = {"train.yaml": yaml.safe_dump(given), "ds.json": DS}
    return check_files(files, "--format", "concise", "--fail-on", "error")


@pytest.mark.parametrize(
    ("more", "stops"),
    [
        ({}, False),
        ({"rl": "dpo", "sample_packing": True}, True),
        ({"batch_size": 4}, True),
        ({"adapter": "qlora", "load_in_8bit": True, **LORA}, True),
        ({"adapter": "qlora", **LORA}, True),
        ({"adapter": "qlora", "load_in_4bit": True, **LORA}, False),
        ({"adapter": "lora", "flash_attn_fuse_mlp": True, **LORA}, True),
        ({"load_in_8bit": True}, True),
        ({"warmup_steps": 10, "warmup_ratio": 0.1}, True),
        ({"save_strategy": "epoch", "save_steps": 10}, True),
        ({"saves_per_epoch": 1, "save_steps": 10}, True),
        ({"saves_per_epoch": 1, "save_strategy": "epoch"}, False),
        ({"eval_strategy": "epoch", "eval_steps": 10}, True),
        ({"evaluation_strategy": "epoch", "eval_steps": 10}, True),
        ({"val_set_size": 0, "eval_steps": 10}, True),
        ({"val_set_size": 0.0, "eval_steps": 0.1}, True),
        ({"val_set_size": 0, "evaluation_strategy": "steps"}, True),
        ({"val_set_size": 0, "eval_strategy": "no"}, False),
        ({"val_set_size": 0, "evals_per_epoch": 4}, False),
        ({"val_set_size": None, "eval_steps": 10}, False),
        ({"evals_per_epoch": 1, "eval_steps": 10}, True),
        ({"evals_per_epoch": 1, "eval_strategy": "epoch"}, True),
        ({"sample_packing": True, "eval_table_size": 5}, True),
        ({"sample_packing": True, "eval_table_size": 5, "eval_sample_packing": False}, False),
        ({"test_datasets": [{"path": "d", "type": "alpaca", "split": "t"}]}, True),
        ({"datasets": None}, True),
        ({"max_memory": {0: "1GB"}, "gpu_memory_limit": "1GB"}, True),
        ({"early_stopping_patience": 3}, True),
        ({"early_stopping_patience": 3, "save_steps": 10, "eval_steps": 3}, True),
        ({"adapter": "lora", "peft_layers_to_transform": [0], "unfrozen_parameters": ["a"], **LORA}, True),
    ],
)
def test_axolotl(check_files, more, stops):
    """Run: validate_config of axolotl 0.9.0 and 0.19.0, which agree on each."""
    checked = ran(check_files, AXOLOTL, more)
    assert (checked.code, "ZP860" in checked.out) == (int(stops), stops)


@pytest.mark.parametrize(
    ("more", "stops"),
    [
        ({}, False),
        ({"dataset": None}, True),
        ({"dataset": None, "val_size": 0.1}, True),
        ({"dataset": None, "do_train": False}, False),
        ({"eval_dataset": "identity", "val_size": 0.1}, True),
        ({"do_eval": True}, True),
        ({"eval_strategy": "steps", "eval_steps": 10}, True),
        ({"eval_strategy": "steps", "eval_steps": 10, "val_size": 0.1}, False),
        ({"streaming": True}, True),
        ({"streaming": True, "max_steps": 10}, False),
        ({"streaming": True, "max_steps": 10, "val_size": 0.1}, True),
        ({"streaming": True, "max_steps": 10, "max_samples": 5}, True),
        ({"mask_history": True, "train_on_prompt": True}, True),
        ({"interleave_probs": "0.5,0.5", "dataset": "identity,alpaca"}, True),
        ({"adapter_name_or_path": "a", **FULL}, True),
        ({"quantization_bit": 4, **FULL}, True),
        ({"quantization_bit": 4, "finetuning_type": "freeze"}, True),
        ({"quantization_bit": 4, "pissa_init": True}, True),
        ({"quantization_bit": 4, "resize_vocab": True}, True),
        ({"quantization_bit": 4, "quantization_device_map": "auto"}, True),
        ({"stage": "dpo", "predict_with_generate": True}, True),
        ({"stage": "dpo", "neat_packing": True}, True),
        ({"stage": "dpo", "train_on_prompt": True}, True),
        ({"predict_with_generate": True}, True),
        ({"do_predict": True, "predict_with_generate": True}, True),
        ({"predict_with_generate": True, "compute_accuracy": True, "val_size": 0.1}, True),
        ({"stage": "rm", "load_best_model_at_end": True, "eval_strategy": "steps", "eval_steps": 500, "val_size": 0.1}, True),
        ({"stage": "ppo"}, True),
        ({"use_llama_pro": True, **FULL}, True),
        ({"loraplus_lr_ratio": 16.0, **FULL}, True),
        ({"use_rslora": True, **FULL}, True),
        ({"use_dora": True, **FULL}, True),
        ({"pissa_init": True, **FULL}, True),
        ({"stage": "kto", "pissa_init": True}, True),
    ],
)
def test_llama_factory(check_files, more, stops):
    """Run: hparams/parser.py:get_train_args of LLaMA-Factory 0.9.5, as one of several ranks."""
    checked = ran(check_files, LLAMA_FACTORY, more)
    assert (checked.code, "ZP860" in checked.out) == (int(stops), stops)


def test_beside_galore(check_files):
    """LLaMA-Factory 0.9.5 has another reason beside DeepSpeed: GaLore and APOLLO are refused there at all."""
    assert "ZP860" in ran(check_files, LLAMA_FACTORY, {"use_galore": True}).out
    assert "ZP860" in ran(check_files, LLAMA_FACTORY, {"use_galore": True, "use_badam": True, **FULL}).out


@pytest.mark.parametrize("name", ["val_size", "dataset"])
def test_what_another_file_decides(check_files, name):
    more = {"dataset": None, "do_train": None, "val_size": None, "do_eval": True, name: "${value}"}
    assert "val_size without" not in ran(check_files, LLAMA_FACTORY, more).out


def test_without_a_config(check_files):
    """A training file that names no DeepSpeed config is one of its tool all the same, and stops there."""
    checked = ran(check_files, AXOLOTL, {"deepspeed": None, "warmup_steps": 10, "warmup_ratio": 0.1})
    assert checked.code == 1
    assert "names no DeepSpeed config" in ran(check_files, AXOLOTL, {"deepspeed": None}).err
