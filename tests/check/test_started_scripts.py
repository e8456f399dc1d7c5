"""What a script starts: Python that has the config, a strategy by its name, OpenRLHF's ranks on Ray."""

from __future__ import annotations

import pytest

CONCISE = ("--format", "concise", "--fail-on", "error")
INSIDE = 'ds_config = {"train_batch_size": 8, "zero_optimization": {"stage": %d}}\ndeepspeed.initialize(config=ds_config)\n'


@pytest.mark.parametrize("line", ["deepspeed train.py", "torchrun --nproc_per_node 8 train.py", "accelerate launch train.py", "deepspeed train.py $@"])
@pytest.mark.parametrize(("stage", "code"), [(2, 0), (5, 1)])
def test_python_that_has_the_config(check_files, line, stage, code):
    ran = check_files({"run.sh": f"{line}\n", "train.py": INSIDE % stage}, *CONCISE)
    assert ran.code == code
    assert ("error ZP401" in ran.out) == bool(code)


def test_python_that_names_the_config(check_files):
    files = {"run.sh": "deepspeed train.py\n", "train.py": 'args = TrainingArguments("o", deepspeed="ds.json")\n', "ds.json": "{'a'"}
    assert check_files(files, *CONCISE).code == 1


def test_python_without_one(check_files):
    ran = check_files({"run.sh": "deepspeed train.py\n", "train.py": "import deepspeed\n"})
    assert ran.code == 2


@pytest.mark.parametrize(
    ("line", "code"),
    [("srun python3 train.py --strategy deepspeed_stage_2", 0), ("python main.py fit --trainer.strategy=deepspeed_stage_3_offload", 0),
     ("python main.py trainer.strategy=deepspeed_stage_2", 0), ("python main.py --strategy ddp", 2)],
)  # fmt: skip
def test_a_strategy_by_its_name(check_files, line, code):
    assert check_files({"run.sh": f"{line}\n"}, *CONCISE).code == code


RAY = "ray job submit -- python3 -m openrlhf.cli.train_ppo_ray --zero_stage 3 --bf16 "


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ("--actor_num_nodes 1 --actor_num_gpus_per_node 4 --train_batch_size 128 --micro_train_batch_size 2", ""),
        ("--actor_num_nodes 1 --actor_num_gpus_per_node 7 --train_batch_size 128 --micro_train_batch_size 2", "ZP202"),
        ("--train_batch_size 128 --micro_train_batch_size 3", "ZP202"),
        ("--colocate_all_models --vllm_num_engines 2 --vllm_tensor_parallel_size 2", "ZP845"),
        ("--colocate_all_models --vllm_num_engines 4 --vllm_tensor_parallel_size 2", ""),
        ("--colocate_all_models --async_train --vllm_num_engines 2 --vllm_tensor_parallel_size 2", ""),
        ("--train.colocate_all --vllm.num_engines 2 --actor.num_gpus_per_node 8", "ZP845"),
    ],
)
def test_ranks_on_ray(check_files, options, rule):
    """8 GPUs of one node where nothing else is said; 128 = 4 ranks * 2 * 16, and 7 or 3 divide no 128."""
    ran = check_files({"run.sh": f"{RAY}{options}\n"}, *CONCISE)
    assert ran.code == bool(rule)
    assert rule in ran.out


OWN_KEY = "name: x\npaths:\n  model: m.yaml\n  deepspeed: ds.json\n"
BAD = '{"train_batch_size": 8, "zero_optimization": {"stage": 5}}'


def test_a_program_that_names_a_config_by_a_key_of_its_own(check_files):
    ran = check_files({"own.yaml": OWN_KEY, "ds.json": BAD}, *CONCISE)
    assert ran.code == 1
    assert "ds.json:1:" in ran.out
    assert "paths.deepspeed is ds.json" in check_files({"own.yaml": OWN_KEY, "ds.json": BAD}).out


def test_such_a_file_without_the_config(check_files, tmp_path):
    ran = check_files({"own.yaml": OWN_KEY.replace("ds.json", "elsewhere.json")})
    assert ran.code == 2
    assert 'paths.deepspeed: "elsewhere.json", which is not there' in ran.err


def test_a_script_that_is_given_such_a_file(check_files):
    line = "deepspeed --num_gpus 8 --module own.train --config own.yaml\n"
    assert check_files({"run.sh": line, "own.yaml": OWN_KEY, "ds.json": BAD}, *CONCISE).code == 1
    section = "sft:\n  output_dir: o\n  per_device_train_batch_size: 1\n  bf16: true\n  deepspeed: ds.json\n"
    assert check_files({"run.sh": line, "own.yaml": section, "ds.json": BAD}, *CONCISE).code == 1


@pytest.mark.parametrize("line", ["bash train.sh", "srun bash train.sh", "sh ./train.sh --more"])
def test_a_script_that_another_starts(check_files, line):
    files = {"job.sh": f"#!/bin/bash\n{line}\n", "train.sh": "deepspeed train.py --deepspeed_config ds.json\n", "ds.json": BAD}
    ran = check_files(files, *CONCISE)
    assert ran.code == 1
    assert "ds.json:1:" in ran.out


def test_scripts_that_start_one_another(check_files):
    assert check_files({"a.sh": "bash b.sh\n", "b.sh": "bash a.sh\n"}).code == 2
