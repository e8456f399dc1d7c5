"""What 183 further public files and 22 issues had, each as small as it fails, beside what their own readers do with it."""

from __future__ import annotations

import pytest

AUTO = "{bf16: {enabled: auto}, zero_optimization: {stage: 2}, train_micro_batch_size_per_gpu: auto}"
LAUNCH = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\nnum_processes: %s\nnum_machines: %s\n"
OF_LLAMA_FACTORY = f"model_name_or_path: x/y\nfinetuning_type: full\noutput_dir: o\nbf16: true\ndeepspeed: {AUTO}\n"
CONFIG = '{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}'
CONCISE = ("--format", "concise")


def test_names_whose_values_other_code_decides(check_files):
    """Run: ValidationError, enabled and tp_size, extra inputs are not permitted."""
    text = "ds_config = {'train_batch_size': 8, 'zero_optimization': {'stage': 1}, 'tensor_parallel': {'enabled': c.on, 'tp_size': c.size}}\n"
    ran = check_files({"a.py": text}, *CONCISE)
    assert ran.out.count("error ZP108") == 2
    assert '"autotp_size": ...' in ran.out
    yaml = "deepspeed:\n  zero_optimization: {stage: 2}\n  train_batch_size: ${batch}\n  tensor_parallel: {tp_size: '${size}'}\n"
    assert "error ZP108: tp_size" in check_files({"a.yaml": yaml}, *CONCISE).out


def test_a_file_as_the_name_of_a_field(check_files):
    """Run: a mapping with a null value; Accelerate trains at stage 2."""
    ran = check_files({"a.yaml": LAUNCH % (2, 1) + "deepspeed_config: {configs/zero3.json}\n"}, *CONCISE)
    assert ran.code == 1
    assert "write: deepspeed_config: {deepspeed_config_file: configs/zero3.json}" in ran.out


def test_a_deepspeed_config_that_is_no_accelerates(check_files):
    """Its program gives it to TrainingArguments; no distributed_type is missing."""
    ran = check_files({"a.yaml": f"deepspeed_config: {AUTO}\n"})
    assert (ran.code, ran.err) == (0, "")
    assert "a.yaml: a ds_config under deepspeed_config:" in ran.out


def test_an_optimizer_that_its_program_takes_out_of_a_block(check_files):
    """sat 0.4.12 builds what stands there and takes it out before deepspeed.initialize."""
    text = "deepspeed:\n  train_micro_batch_size_per_gpu: 1\n  zero_optimization: {stage: 2}\n  bf16: {enabled: true}\n" \
           "  optimizer: {type: sat.ops.FusedEmaAdam, params: {lr: 0.001}}\n"  # fmt: skip
    ran = check_files({"a.yaml": text}, *CONCISE)
    assert "warning ZP602" in ran.out
    assert "if the program does not take it out" in ran.out


@pytest.mark.parametrize(
    ("text", "tool"),
    [
        ("model_name_or_path: x\ndataset_name: d\ndataset_config_name: c\noutput_dir: o\nper_device_train_batch_size: 1\n",
         "transformers' TrainingArguments"),
        ("stage: sft\nfinetuning_type: lora\ndataset: d\noutput_dir: o\nper_device_train_batch_size: 1\n", "LLaMA-Factory"),
    ],
)  # fmt: skip
def test_whose_training_file_it_is(check_files, text, tool):
    assert f"a training file of {tool} that names no" in check_files({"a.yaml": text}).err


@pytest.mark.parametrize(
    "text", ["[INFO|2025-03-06 08:42:56] configuration_utils.py:699 >> loading\n\n{\n", "06-Feb-24 23:26:10 - Test\n"]
)
def test_logs(check_files, text):
    assert "found a log" in check_files({"run.txt": text}).err


def test_a_path_from_the_root_of_another_machine(check_files, tmp_path):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "ds.json").write_text(CONFIG)
    ran = check_files({"run.sh": "deepspeed --num_gpus 2 t.py --deepspeed /home/me/clone/configs/ds.json\n"})
    assert (ran.code, ran.err) == (0, "")
    assert "run.sh:1: configs/ds.json, given to deepspeed, on 2 GPUs" in ran.out


def test_arguments_beside_accelerates_own_fields(check_files):
    """open-r1 217: 7 ranks; run with trl 1.16: no whole groups of 8, its default."""
    file = "model_name_or_path: x\ndataset_name: d\noutput_dir: o\nbf16: true\nuse_vllm: true\nvllm_device: auto\n" \
           "per_device_train_batch_size: 1\nfsdp: full_shard\n"  # fmt: skip
    files = {"run.sh": "accelerate launch --config_file a.yaml --num_processes=7 grpo.py --config t.yaml\n", "t.yaml": file,
             "a.yaml": LAUNCH % (8, 1) + "deepspeed_config: {zero_stage: 2}\n"}  # fmt: skip
    ran = check_files(files, *CONCISE)
    assert "error ZP835: 7 answers of a generation (1 * 7 * 1) are no whole groups of num_generations 8" in ran.out
    assert "error ZP822: fsdp beside deepspeed" in ran.out


@pytest.mark.parametrize(
    ("line", "severity"),
    [
        ("deepspeed --num_gpus 8 src/train.py t.yaml", "error"), ("deepspeed --no_local_rank src/train.py t.yaml", ""),
        ("torchrun --nproc_per_node 8 src/train.py t.yaml", ""),
    ],
)  # fmt: skip
def test_a_file_before_which_local_rank_stands(check_files, line, severity):
    """LLaMA-Factory 6075, run: sys.argv[1] is --local_rank=0, and read_args takes that for an option."""
    ran = check_files({"run.sh": f"{line}\n", "t.yaml": OF_LLAMA_FACTORY}, *CONCISE)
    assert (f" {severity} ZP837" in ran.out) == bool(severity)
    assert ("ZP837" in ran.out) == bool(severity)


def test_a_command_that_does_not_train(check_files):
    """LLaMA-Factory 8301, run: Some keys are not used by the HfArgumentParser."""
    files = {"run.sh": "llamafactory-cli webchat t.yaml\n", "t.yaml": OF_LLAMA_FACTORY}
    assert "error ZP838: llamafactory-cli webchat stops" in check_files(files, *CONCISE).out


def test_keys_that_llama_factory_does_not_know(check_files):
    """Run with 0.9.5: ValueError for the first three; the last is the Trainer's."""
    more = "train_mm_proj_only: true\nlora_rnak: 8\nrole_tag: from\nlearning_rate: 1.0e-5\n"
    ran = check_files({"t.yaml": OF_LLAMA_FACTORY + more}, *CONCISE)
    assert ran.out.count("warning ZP833") == 3
    assert "train_mm_proj_only is gone since LLaMA-Factory 0.9.2" in ran.out
    assert "write: lora_rank: ..." in ran.out


@pytest.mark.parametrize(
    ("processes", "machines", "hosts", "severities"),
    [
        (8, 2, "a slots=4\nb slots=4\n", []), (5, 2, "a slots=4\nb slots=4\n", ["warning"]),
        (8, 2, "a slots=4\nb slots=2\n", ["error"]), (5, 2, "a slots=4\nb slots=1\n", ["warning", "error"]),
        (8, 1, "a slots=1\n", []),
    ],
)  # fmt: skip
def test_ranks_of_a_hostfile(check_files, processes, machines, hosts, severities):
    """accelerate 2780: `deepspeed --num_gpus` num_processes // num_machines, which each host gets."""
    text = LAUNCH % (processes, machines) + "deepspeed_config: {zero_stage: 2, deepspeed_hostfile: hosts}\n"
    ran = check_files({"a.yaml": text, "hosts": hosts}, *CONCISE)
    assert [line.split()[1] for line in ran.out.splitlines() if "ZP839" in line] == severities


def test_more_ranks_than_slots(check_files):
    """DeepSpeedExamples 893, run: 16 ranks on each of two hosts with 8 slots."""
    line = "srun bash -c 'deepspeed --num_gpus 16 --num_nodes 2 --hostfile hosts train.py --lr 1'"
    ran = check_files({"run.sh": f"{line}\n", "hosts": "a slots=8\nb slots=8\n"}, *CONCISE)
    assert "error ZP839: --num_gpus 16 is for each host, and a has 8 slots" in ran.out


@pytest.mark.parametrize(
    ("line", "warns"),
    [
        ("accelerate launch --num_machines 2 --machine_rank $SLURM_NODEID --num_processes 8 --config_file a.yaml t.py", True),
        ("srun accelerate launch --num_machines 2 --num_processes 8 --config_file a.yaml t.py", False),
        ("srun bash -c 'accelerate launch --num_machines 2 --num_processes 8 --config_file a.yaml t.py'", False),
        ("accelerate launch --num_machines 1 --num_processes 4 --config_file a.yaml t.py", False),
    ],
)
def test_one_node_of_a_job(check_files, line, warns):
    """accelerate 2816: nothing starts it on the second node."""
    files = {"job.sbatch": f"#!/bin/bash\n#SBATCH --nodes=2\n{line}\n", "a.yaml": LAUNCH % (8, 1) + "deepspeed_config: {zero_stage: 2}\n"}
    assert ("warning ZP840" in check_files(files, *CONCISE).out) == warns


OPENRLHF = "deepspeed --include localhost:0,1,2,3,4,5,6 --module openrlhf.cli.train_dpo --train_batch_size %s --micro_train_batch_size 2 --bf16 --zero_stage 3\n"


@pytest.mark.parametrize(("batch", "code"), [(256, 1), (252, 0)])
def test_options_of_openrlhf(check_files, batch, code):
    """OpenRLHF 346: AssertionError, 256 does not go into 2 times 7."""
    ran = check_files({"run.sh": OPENRLHF % batch}, "--fail-on", "error")
    assert ran.code == code
    assert "run.sh:1: the config that OpenRLHF makes of these options, on 7 GPUs" in ran.out
    assert ("error ZP202" in ran.out) == (code == 1)


def test_commands_that_read_takes_of_a_here_document(check_files):
    """OpenRLHF's own examples."""
    text = "read -r -d '' commands <<EOF\nopenrlhf.cli.train_sft \\\n  --train_batch_size 60 --micro_train_batch_size 8 \\\n" \
           "  --zero_stage 2 --bf16\nEOF\ndeepspeed --num_gpus 8 --module $commands\n"  # fmt: skip
    assert "error ZP202" in check_files({"run.sh": text}, *CONCISE).out
    sections = "deepspeed --num_gpus 8 --module openrlhf.cli.train_sft --train.batch_size 64 --train.micro_batch_size 8 --ds.zero_stage 7\n"
    assert "error ZP401" in check_files({"run.sh": sections}, *CONCISE).out


@pytest.mark.parametrize(
    ("line", "stops"),
    [
        ("MODEL=<llama2_7b_chat> # replace it", True), ("OUT=<checkpoint>/${RUN}", True), ("export MODEL=<path to it>", True),
        ("usage() { cat <<EOF\n  --model <path>\nEOF\n}", False), ('U="a\n --model <path>\n"', False),
        ("MODEL='<s>'", False), ("# MODEL=<x>", False), ("N=$(wc -l <hosts)", False),
    ],
)  # fmt: skip
def test_placeholders(check_files, line, stops):
    """Run: bash, syntax error near unexpected token `newline'; checkpoint: No such file or directory."""
    ran = check_files({"run.sh": f"{line}\ndeepspeed --num_gpus 2 t.py --deepspeed ds.json\n", "ds.json": CONFIG}, *CONCISE)
    assert ("error ZP841" in ran.out) == stops


@pytest.mark.parametrize(("line", "found"), [
    ("--model <path to a model> \\\n  --x 1", True), ("--template '<s>{}' \\\n  --x 1", False), ("--special <pad> --x 1", False),
])  # fmt: skip
def test_placeholders_behind_options(check_files, line, found):
    ran = check_files({"run.sh": f"deepspeed --num_gpus 2 t.py --deepspeed ds.json {line}\n", "ds.json": CONFIG}, *CONCISE)
    assert ("error ZP841" in ran.out) == found


def test_a_fraction_of_what_other_code_decides(check_files):
    """Run: ValidationError, a valid integer, got a number with a fractional part."""
    text = "ds_config = {'train_batch_size': 1, 'zero_optimization': {'stage': 3, 'stage3_prefetch_bucket_size': 0.9 * h * h,\n" \
           "    'reduce_bucket_size': h * h, 'stage3_param_persistence_threshold': int(0.9 * h)}}\n"  # fmt: skip
    ran = check_files({"a.py": text}, *CONCISE)
    assert ran.out.count("warning ZP113") == 1
    assert "0.9 * h * h is a fraction for most sizes" in ran.out
    assert "ZP113" not in check_files({"a.py": text}, *CONCISE, "--deepspeed", "0.14.4").out


@pytest.mark.parametrize(("pin", "severity"), [("ms-swift>=3.0", "error"), ("ms-swift==3.12.0", ""), ("torch", "warning")])
def test_the_ms_swift_that_a_project_asks_for(check_files, pin, severity):
    text = "model: x\ntrain_type: full\ntorch_dtype: bfloat16\ndataset: d\ndeepspeed: zero2\n"
    ran = check_files({"t.yaml": text, "requirements.txt": f"{pin}\n"}, *CONCISE)
    assert (f" {severity} ZP831" in ran.out, "ZP831" in ran.out) == (bool(severity), bool(severity))


@pytest.mark.parametrize(("config", "stops"), [("zero2", True), ("zero0", False)])
def test_muon_of_ms_swift(check_files, config, stops):
    """ms-swift 3991's like, run with a copy of its bookkeeping: KeyError 'use_muon'."""
    line = f"NPROC_PER_NODE=2 swift sft --model x --tuner_type full --optimizer muon --torch_dtype bfloat16 --deepspeed {config}"
    assert ("error ZP822: ms-swift's Muon" in check_files({"run.sh": f"{line}\n"}, *CONCISE).out) == stops


def test_a_list_for_a_batch_beside_ranks_that_do_not_divide(check_files):
    ran = check_files({"a.json": '{"train_micro_batch_size_per_gpu": [4], "sequence_parallel_size": 4}'}, "--gpus", "3")
    assert ran.code == 1


def test_arguments_beside_a_dict_that_other_code_decides(check_files):
    call = 'a = TrainingArguments("o", fsdp="full_shard", deepspeed={"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": n})\n'
    assert "error ZP822: fsdp" in check_files({"a.py": call}, *CONCISE).out
    files = {"b.py": "ds_config = {'train_batch_size': 8, 'zero_optimization': {'stage': 2}}\n", "t.yaml": "evaluation_strategy: no\noutput_dir: o\n"}
    assert check_files(files, "--trainer-args", "t.yaml", *CONCISE).out.count("ZP833") == 1


def test_a_release_of_two_numbers(check_files):
    files = {"t.yaml": f"output_dir: o\nper_device_train_batch_size: 1\nevaluation_strategy: 'no'\ndeepspeed: {AUTO}\n"}
    for release, warns in (("4.51", True), ("4.50", False)):
        assert ("ZP833" in check_files(files, "--transformers", release, *CONCISE).out) == warns


@pytest.mark.parametrize(
    ("line", "write"),
    [
        ("evaluation_strategy: 'no'", 'eval_strategy: "no"'), ("group_by_length: false", "delete it"), ("warmup_ratio: ${x}", "delete it"),
        ("group_by_length: true", "train_sampling_strategy: group_by_length"), ("warmup_ratio: 0.1", "warmup_steps: 0.1"),
    ],
)  # fmt: skip
def test_what_to_write_for_an_argument(check_files, line, write):
    text = f"output_dir: o\nper_device_train_batch_size: 1\n{line}\ndeepspeed: {AUTO}\n"
    assert f"stops at it; write: {write}\n" in check_files({"t.yaml": text}, *CONCISE).out


def test_hosts_that_num_nodes_leaves_out(check_files):
    line = "deepspeed --num_nodes 1 --num_gpus 8 --hostfile hosts train.py --deepspeed ds.json"
    assert "ZP839" not in check_files({"run.sh": f"{line}\n", "hosts": "a slots=8\nb slots=4\n", "ds.json": CONFIG}, *CONCISE).out


@pytest.mark.parametrize("line", ["ssh $h torchrun --nnodes 2", "/usr/bin/srun bash -c 'torchrun --nnodes 2 {}'", "torchrun --nnodes $N"])
def test_other_hosts_are_started(check_files, line):
    run = "--nproc_per_node 4 t.py --deepspeed ds.json"
    text = line.format(run) if "{}" in line else f"{line} {run}"
    ran = check_files({"job.sbatch": f"#!/bin/bash\n#SBATCH --nodes=2\n{text}\n", "ds.json": CONFIG}, *CONCISE)
    assert "ZP840" not in ran.out


def test_nvme_of_accelerates_plugin(check_files):
    """accelerate 1.15: nvme_path is "none" where nothing says it."""
    ran = check_files({"a.py": "p = DeepSpeedPlugin(zero_stage=3, offload_optimizer_device='nvme')\n"}, *CONCISE)
    assert "error" not in ran.out


def test_lines_to_write_for_openrlhf(check_files):
    line = "deepspeed --num_gpus 8 --module openrlhf.cli.train_sft --zero_stage 3 --micro_train_batch_size 2"
    assert "error" not in check_files({"run.sh": f"{line} --bf16\n"}, *CONCISE).out
    assert "write: --train_batch_size 256" in check_files({"run.sh": f"{line} --train_batch_size 250 --bf16\n"}, *CONCISE).out
    other = "deepspeed --num_gpus 8 my/train_sft.py --zero_stage 3 --train_batch_size 128"
    assert check_files({"run.sh": f"{other}\n"}, *CONCISE).code == 2


def test_line_ends_of_windows(check_files):
    """Run: bash, can't open file '\\r', and --deepspeed: command not found."""
    text = "deepspeed --num_gpus 2 t.py \\\n  --deepspeed ds.json\n"
    assert "ZP842" not in check_files({"run.sh": text, "ds.json": CONFIG}).out
    assert "error ZP842" in check_files({"run.sh": text.replace("\n", "\r\n"), "ds.json": CONFIG}, *CONCISE).out


@pytest.mark.parametrize(
    "text",
    [
        "p.add_argument('--deepspeed_config', type=str, default='ds.json')\ne, *_ = deepspeed.initialize(args=args, model=m)\n",
        "p.add_argument('--config', default='ds.json')\ne, *_ = deepspeed.initialize(model=m, config=args.config)\n",
        "a = TrainingArguments('o', bf16=True, deepspeed='ds.json' if args.deepspeed else None)\n",
    ],
)
def test_a_config_that_a_default_names(check_files, text):
    ran = check_files({"a.py": text, "ds.json": '{"train_batch_size": 1, "zero_optimization": {"stage": 7}}'}, *CONCISE)
    assert "error ZP401: 7 here" in ran.out


def test_gpt_neox_by_its_own_keys(check_files):
    ran = check_files({"a.yml": "zero_optimization: {stage: 1}\nfp16: {fp16: true, enabled: true}\ncheckpoint_factor: 1000\n"})
    assert ran.code == 0
    assert "what GPT-NeoX hands to DeepSpeed" in ran.out
