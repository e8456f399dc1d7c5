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


@pytest.mark.parametrize(
    ("version", "deepspeed", "stops"),
    [("1.5.2", "0.16.9", True), ("1.5.2", "0.16.4", True), ("1.5.2", "0.19.8", True), ("1.6.0", "0.16.9", False), ("1.5.2", "0.16.3", False)],
)
def test_autotp_below_its_accelerate(check, version, deepspeed, stops):
    """Run on two ranks: AssertionError, Data inconsistency within the TP group; 0.16.3 leaves tensor_parallel out."""
    text = '{"train_batch_size": 8, "bf16": {"enabled": true}, "zero_optimization": {"stage": 1}, "tensor_parallel": {"autotp_size": 2}}'
    assert ("error ZP826" in check({"ds.json": text}, "--for", "accelerate", "--accelerate", version, "--deepspeed", deepspeed)) == stops


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


AUTO_3 = ('{"train_batch_size": "auto", "bf16": {"enabled": "auto"}, "optimizer": {"type": "AdamW", "params": {"lr": "auto"}}, '
          '"zero_optimization": {"stage": 3, "stage3_gather_16bit_weights_on_model_save": true}}')  # fmt: skip
DPO = "model_name_or_path: x\nstage: %s\nfinetuning_type: %s\npref_loss: %s\nbf16: true\noutput_dir: o\ndeepspeed: ds.json\n"


@pytest.mark.parametrize(
    ("words", "stops"),
    [(("dpo", "full", "sigmoid"), True), (("dpo", "full", "simpo"), False), (("dpo", "lora", "sigmoid"), False), (("sft", "full", "sigmoid"), False)],
)
def test_a_reference_model_is_prepared_before_anybody_fills(check, words, stops):
    """LLaMA-Factory 2546 and trl 2154, run with trl 0.24's prepare_deepspeed."""
    said = check({"train.yaml": DPO % words, "ds.json": AUTO_3})
    assert ('"auto" in optimizer beside a reference model (train.yaml:2)' in said) == stops


@pytest.mark.parametrize(("version", "stops"), [("4.52.4", False), ("4.53.0", True), ("4.53.3", True), ("4.54.0", False)])
def test_a_config_on_the_command_line(check, version, stops):
    """transformers 39673, run with 4.53.0: argument --deepspeed: invalid dict value; 4.52.4 and 4.54.0 take it."""
    line = "torchrun --nproc_per_node 8 t.py --output_dir o --bf16 --deepspeed ds.json\n"
    files = {"run.sh": line, "ds.json": AUTO_3, "requirements.txt": f"transformers=={version}\n"}
    assert ("error ZP829" in check(files)) == stops


@pytest.mark.parametrize(("version", "stops"), [("0.15.1", False), ("0.15.2", True), ("0.19.6", True), ("0.19.7", False)])
def test_a_whole_host_to_include(check, version, stops):
    """DeepSpeed 6671, run in each: parse_inclusion_exclusion leaves no slots."""
    files = {"run.sh": "deepspeed --hostfile hosts --include b t.py --deepspeed ds.json\n", "hosts": "a slots=8\nb slots=8\n", "ds.json": AUTO_3}
    assert ("error ZP830" in check(files, "--deepspeed", version)) == stops
    assert "ZP830" not in check({**files, "run.sh": "deepspeed --hostfile hosts --include b:0,1 t.py --deepspeed ds.json\n"}, "--deepspeed", version)


@pytest.mark.parametrize(
    ("version", "reader", "severity"),
    [
        ("0.18.0", "deepspeed", "error"), ("0.18.3", "deepspeed", "error"), ("0.18.4", "deepspeed", "warning"),
        ("0.18.8", "deepspeed", "warning"), ("0.18.8", "hf", "error"), ("0.18.9", "hf", ""),
    ],
)  # fmt: skip
def test_super_offload_of_the_releases_that_brought_it(check, version, reader, severity):
    """DeepSpeed 7925 and 7905, run with cpu_adam built: 0.18.0 and 0.18.1 stop with TypeError as they start; 0.18.4 and 0.18.8 with
    KeyError in the first backward, but for one group of parameters in several sub-groups; 0.18.9 runs with one group and two.
    """
    text = STAGE_3 % ', "offload_optimizer": {"device": "cpu", "super_offload": true}'
    out = check({"ds.json": text}, "--deepspeed", version, "--for", reader)
    assert (f"{severity} ZP528" in out) if severity else ("ZP528" not in out)


def test_a_model_alone_that_is_resumed(check):
    """LLaMA-Factory 5497: deepspeed_load_checkpoint finds no global_step folder, and stops."""
    text = "output_dir: o\nsave_only_model: true\nresume_from_checkpoint: true\nbf16: true\nper_device_train_batch_size: 8\ndeepspeed: ds.json\n"
    assert "warning ZP817: resume_from_checkpoint true and save_only_model" in check({"train.yaml": text, "ds.json": AUTO_3})


def test_an_option_on_a_line_of_its_own(check):
    """ms-swift 5989: the line before it has no backslash."""
    line = "NPROC_PER_NODE=8 swift sft --model x --torch_dtype bfloat16 --deepspeed zero2 \\\n  --max_steps 10\n  --lora_rank 8\n"
    assert "ZP828: the command ends before --lora_rank" in check({"run.sh": line})


@pytest.mark.parametrize("reader", ["hf", "accelerate"])
def test_a_value_that_accelerate_replaces(check, reader):
    """accelerate 1.15 utils/dataclasses.py: steps_per_print becomes infinity whatever it says, run with the Trainer."""
    text = AUTO_3.replace("{", '{"steps_per_print": "auto", ', 1)
    assert "ZP109" not in check({"ds.json": text}, "--for", reader)
    assert "error ZP109" in check({"ds.json": text.replace('"auto"', "8").replace('"steps_per_print": 8', '"steps_per_print": "auto"')},
                                  "--for", "deepspeed")  # fmt: skip


@pytest.mark.parametrize(
    ("code", "line", "stops"),
    [
        ("a = TrlParser((GRPOConfig,))\n", "--output_dir o", False), ("a = HfArgumentParser(TrainingArguments)\n", "--output_dir o", True),
        (None, "--output_dir o --num_generations 8", False),
    ],
)  # fmt: skip
def test_scripts_of_trl_train_in_bf16(check, code, line, stops):
    """trl 0.24 and later: bf16 is true where nothing is said; transformers' own is false."""
    launch = "distributed_type: DEEPSPEED\nmixed_precision: bf16\nnum_processes: 2\ndeepspeed_config: {zero_stage: 2}\n"
    files = {"run.sh": f"accelerate launch --config_file a.yaml t.py {line}\n", "a.yaml": launch, **({"t.py": code} if code else {})}
    assert ("ZP620" in check(files)) == stops


@pytest.mark.parametrize(
    ("trl", "deepspeed", "stops"),
    [
        ("0.14.0", "0.16.4", True), ("0.15.2", "0.16.4", True), ("0.15.2", "0.19.8", True),
        ("0.16.0", "0.16.4", False), ("0.16.0", "0.19.8", False), ("0.15.2", "0.16.3", False),
    ],
)  # fmt: skip
def test_generation_of_an_older_trl(check, trl, deepspeed, stops):
    """VLM-R1 32, run on a stage 3 engine of each: unwrap_model_for_generation, AttributeError, _register_hooks_recursively."""
    files = {"run.sh": "torchrun --nproc_per_node 8 grpo.py --output_dir o --bf16 --num_generations 8 --deepspeed ds.json\n",
             "ds.json": AUTO_3, "requirements.txt": f"trl=={trl}\ndeepspeed=={deepspeed}\n"}  # fmt: skip
    assert ("error ZP832" in check(files)) == stops
