"""Public issues of 2024 to 2026, each as the smallest file that shows its cause; what stops was run, in the versions named."""

from __future__ import annotations

import pytest

STAGE_2 = '{"train_batch_size": 8, "train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2%s}}'
STAGE_3 = ('{"train_batch_size": 8, "bf16": {"enabled": true}, "zero_optimization": {"stage": 3, '
           '"stage3_gather_16bit_weights_on_model_save": true%s}}')  # fmt: skip
LAUNCH = "distributed_type: DEEPSPEED\nnum_machines: 8\nnum_processes: 64\ndeepspeed_config: {deepspeed_config_file: ds.json%s}\n"


@pytest.fixture
def check(check_files):
    return lambda files, *options: check_files(files, "--format", "concise", *options).out


def test_machines_that_do_not_find_each_other(check):
    """accelerate issues 2601 and 2869, run: deepspeed --hostfile None --num_gpus 8, local resources only: 8 ranks, not 64."""
    files = {"accelerate.yaml": LAUNCH % "", "ds.json": STAGE_2 % ""}
    said = check(files)
    assert "warning ZP823: num_machines 8 without a deepspeed_hostfile: each machine trains by itself, on 8 ranks" in said
    assert "ZP201" not in said
    joined = check({**files, "accelerate.yaml": LAUNCH % ", deepspeed_multinode_launcher: standard"})
    assert "ZP823" not in joined
    assert "error ZP202" in joined  # 8 is no multiple of 1 · 64


@pytest.mark.parametrize(
    ("more", "options", "rule"),
    [
        (', "mics_shard_size": 8', ("--for", "hf", "--deepspeed", "0.16.4"), "error ZP824"),
        (', "mics_shard_size": 8', ("--for", "deepspeed", "--deepspeed", "0.16.4"), None),
        (', "mics_shard_size": 8', ("--for", "hf", "--deepspeed", "0.19.7"), "error ZP413"),
        (', "zero_hpz_partition_size": 2', ("--for", "hf", "--deepspeed", "0.17.6"), "warning ZP716"),
        (', "zero_hpz_partition_size": 2', ("--for", "hf", "--deepspeed", "0.18.3"), None),
    ],
)  # fmt: skip
def test_what_zero_init_builds(check, more, options, rule):
    """accelerate 3442, run with 0.19.2: AssertionError under zero.Init, and none without it. DeepSpeed 7606, run: other losses
    in 0.17.6, the same in 0.18.3.
    """
    said = check({"ds.json": STAGE_3 % more}, *options)
    assert (rule in said) if rule else not any(each in said for each in ("ZP824", "ZP716"))


@pytest.mark.parametrize(("reentrant", "version", "stops"), [("false", "0.19.2", True), ("true", "0.19.2", False), ("false", "0.19.3", False)])
def test_adapters_that_are_recomputed(check, reentrant, version, stops):
    """transformers 47254, run with 0.19.2: CheckpointError, recomputed values have different metadata; 0.19.3 runs."""
    file = ("base_model: x\nadapter: lora\nlora_r: 8\nlora_alpha: 16\nlora_target_linear: true\nsequence_len: 512\nmicro_batch_size: 8\n"
            f"bf16: true\ngradient_checkpointing: true\ngradient_checkpointing_kwargs: {{use_reentrant: {reentrant}}}\ndeepspeed: ds.json\n")
    assert ("error ZP825" in check({"train.yaml": file, "ds.json": STAGE_3 % ""}, "--deepspeed", version)) == stops


@pytest.mark.parametrize(("version", "rule"), [("1.2.1", "ZP819"), ("1.9.0", None)])
def test_accumulate_of_an_older_accelerate(check, version, rule):
    """FaithDiff 24, run: no_sync context manager is incompatible with gradient partitioning logic of ZeRO stage 2."""
    text = '{"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 2, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'
    assert ("ZP819" in check({"ds.json": text}, "--for", "accelerate", "--accelerate", version)) == bool(rule)


@pytest.mark.parametrize(("version", "stops"), [("1.5.2", True), ("1.6.0", False)])
def test_autotp_below_its_accelerate(check, version, stops):
    text = '{"train_batch_size": 8, "bf16": {"enabled": true}, "zero_optimization": {"stage": 1}, "tensor_parallel": {"autotp_size": 2}}'
    assert ("error ZP826" in check({"ds.json": text}, "--for", "accelerate", "--accelerate", version)) == stops


@pytest.mark.parametrize(("version", "stops"), [("0.17.5", True), ("0.17.6", False)])
def test_lion_on_the_host(check, version, stops):
    """DeepSpeed 7524: DeepSpeedCPULion is a client's optimizer that 0.17.5 refuses beside an offloaded one."""
    text = STAGE_2 % ', "offload_optimizer": {"device": "cpu", "pin_memory": true}'
    assert ("error ZP516" in check({"ds.json": text}, "--optimizer", "lion", "--client-optimizer", "yes", "--deepspeed", version)) == stops


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("NPROC_PER_NODE=8 swift sft --model x --torch_dtype bfloat16 --deepspeed zero3_offload --zero_hpz_partition_size 8", "ZP521"),
        ("NPROC_PER_NODE=8 swift sft --model x --torch_dtype bfloat16 --deepspeed zero2 --deepspeed_autotp_size 3", "ZP709"),
        ("deepspeed --num_gpus 2 src/train.py --deepspeed ds.json --stage sft --use_unsloth true --output_dir o --bf16", "ZP820"),
        ("deepspeed --num_gpus 2 src/train.py --deepspeed ds.json --finetuning_type lora --model_name_or_path x/y-Chat-Int4 --output_dir o "
         "--bf16", "ZP820"),
        ("deepspeed --num_gpus 2 src/train.py --deepspeed ds.json --finetuning_type full --use_muon true --output_dir o --bf16", "ZP820"),
    ],
)  # fmt: skip
def test_lines_of_scripts(check, line, rule):
    """ms-swift 3697; LLaMA-Factory 3949, 2974 and 8041 (run: KeyError 'use_muon' at stages 1 to 3)."""
    assert rule in check({"run.sh": f"{line}\n", "ds.json": (STAGE_3 % "").replace('"train_batch_size": 8', '"train_batch_size": "auto"')})
