"""The files of `accelerate launch` that TRL has itself, named in its training files and on its command line."""

from __future__ import annotations

import hashlib
import json

import pytest
import yaml

from zeroplan.catalog.trainers.trl_configs import DEEPSPEED, WITHOUT, own_accelerate_config

SHA_256 = {"zero1": "d80bb28424b1059f", "zero2": "1c3069ad523e1def", "zero3": "4590b5da6c8ff1ec"}
"""Of json.dumps(..., sort_keys=True) of each file of trl/accelerate_configs of trl 1.16.0, its beginning."""
FILE = "model_name_or_path: x\ndataset_name: d\noutput_dir: o\ngradient_accumulation_steps: 4\nbf16: true\n"
STOPS = "error ZP205: 1 for gradient_accumulation_steps, gradient_accumulation_steps says 4 (sft.yaml:4)"
"""The Trainer's ValueError for zero1 of accelerate 1.15 and transformers 5.24, run."""


@pytest.mark.parametrize("name", DEEPSPEED)
def test_its_own_files_are_its_own(name):
    content = json.dumps(yaml.safe_load(own_accelerate_config(name)[1]), sort_keys=True)
    assert hashlib.sha256(content.encode()).hexdigest().startswith(SHA_256[name])


@pytest.mark.parametrize("stated", [False, True])
def test_a_training_file_and_what_accelerate_is_given(check_files, stated):
    in_file = {"sft.yaml": f"{FILE}accelerate_config: %s\n"}
    on_line = {"run.sh": "trl sft --config sft.yaml --accelerate_config %s --num_processes 4\n", "sft.yaml": FILE}
    files = on_line if stated else in_file
    for name, code in (("zero1", 1), ("zero3", 0)):
        ran = check_files({file: text.replace("%s", name) for file, text in files.items()})
        assert (ran.code, ran.err) == (code, "")
        assert (STOPS in ran.out) == (name == "zero1")
        assert f"{name} of TRL" in ran.out


@pytest.mark.parametrize("name", [*WITHOUT, "nowhere"])
def test_a_file_that_starts_no_deepspeed_or_is_not_there(check_files, name):
    ran = check_files({"sft.yaml": f"{FILE}accelerate_config: {name}\n"})
    assert (ran.code, ran.out) == (2, "")
    assert f'sft.yaml:6:1: found accelerate_config: "{name}", which' in ran.err


def test_a_file_of_ones_own_comes_first(check_files):
    own = "compute_environment: LOCAL_MACHINE\ndistributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 5}\nnum_processes: 2\n"
    ran = check_files({"sft.yaml": f"{FILE}accelerate_config: zero3\n", "zero3": own})
    assert (ran.code, "zero3:3:" in ran.out) == (1, True)


@pytest.mark.parametrize(
    ("more", "gpus", "stops"),
    [
        ("num_generations: 8", 8, False), ("num_generations: 6", 8, True), ("num_generations: 1", 8, True),
        ("num_generations: 6\ngradient_accumulation_steps: 3", 8, False), ("num_generations: 6\nsteps_per_generation: 3", 8, False),
        ("num_generations: 6\ngeneration_batch_size: 12", 8, False), ("num_generations: 6\ngeneration_batch_size: 16", 8, True),
        ("num_generations: 6", None, False),
    ],
)  # fmt: skip
def test_groups_of_answers(check_files, more, gpus, stops):
    """trl 1.16 grpo_config.py: generation_batch_size, or micro-batch * ranks * steps_per_generation, by num_generations."""
    text = "model_name_or_path: x\ndataset_name: d\noutput_dir: o\nper_device_train_batch_size: 2\nbf16: true\ndeepspeed: {bf16: {enabled: auto}, zero_optimization: " \
           f"{{stage: 2}}, train_micro_batch_size_per_gpu: auto}}\n{more}\n"  # fmt: skip
    options = ("--gpus", str(gpus)) if gpus else ()
    assert ("error ZP835" in check_files({"grpo.yaml": text}, *options).out) == stops


def test_another_trainer_may_group_otherwise(check_files):
    line = "torchrun --nproc_per_node 1 grpo.py --output_dir o --num_generations 4 --per_device_train_batch_size 1 --deepspeed ds.json"
    files = {"run.sh": f"{line}\n", "ds.json": '{"zero_optimization": {"stage": 2}, "train_micro_batch_size_per_gpu": "auto"}'}
    ran = check_files(files, "--format", "concise")
    assert "warning ZP835" in ran.out
    assert "write: per_device_train_batch_size: 4" in ran.out


FROZEN_REFERENCE = {"0.15.4": True, "0.16.4": True, "0.17.5": True, "0.17.6": False, "0.18.0": False, "0.18.9": False, "0.19.8": False}
"""deepspeed.initialize(model, config) of a linear layer in bf16 without ZeRO that nothing trains, with an AdamW in the config:
"torch.cat(): expected a non-empty list of Tensors", or none, in each release.
"""


@pytest.mark.parametrize("version", FROZEN_REFERENCE)
def test_an_optimizer_of_a_reference_model(check_files, version):
    ds = '{"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", "bf16": {"enabled": true}, ' \
         '"zero_optimization": {"stage": 2}, "optimizer": {"type": "AdamW", "params": {"lr": 1e-6}}}'  # fmt: skip
    line = "accelerate launch --num_processes 8 train.py --output_dir o --bf16 --per_device_train_batch_size 8 --num_generations 8 %s --deepspeed ds.json\n"
    files = {"ds.json": ds, "requirements.txt": f"trl==0.17.0\ndeepspeed=={version}\n"}
    stops = "error ZP850"
    assert (stops in check_files({"run.sh": line % "--learning_rate 1e-6", **files}, "--format", "concise").out) == FROZEN_REFERENCE[version]
    assert stops not in check_files({"run.sh": line % "--beta 0 --learning_rate 1e-6", **files}, "--format", "concise").out


def test_a_newer_trl_takes_it_out(check_files):
    ds = '{"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": true}, "zero_optimization": {"stage": 2}, ' \
         '"optimizer": {"type": "AdamW", "params": {"lr": 1e-6}}}'  # fmt: skip
    line = "accelerate launch --num_processes 8 train.py --output_dir o --bf16 --num_generations 8 --beta 0.1 --deepspeed ds.json\n"
    files = {"run.sh": line, "ds.json": ds, "requirements.txt": "trl==1.16.0\ndeepspeed==0.16.4\n"}
    assert "ZP850" not in check_files(files, "--format", "concise").out
