"""What ms-swift makes of a config that it has itself, and of the variables of its files."""

from __future__ import annotations

import hashlib
import json

import pytest

from zeroplan.catalog.trainers.swift_configs import OLDER, OWN, own_config

SHA_256 = {
    "zero0": "6913b81cfdf44bb8", "zero1": "6be02f316cff3764", "zero2": "94c34d73c2270a81", "zero3": "347efebaaf4ff198",
    "zero2_offload": "7641cf1b0f1b53e8", "zero3_offload": "957f253b006035de",
}  # fmt: skip
"""Of json.dumps(..., sort_keys=True) of each file of swift/config of ms-swift 4.6.0, its beginning; llm/ds_config of 3.4.0,
3.8.0 and 3.12.0 and config of 4.0.0 and 4.3.0 have the same.
"""
SHA_256_OF_2 = {
    "default-zero2": "a82584cc10d47329", "default-zero3": "68e101788d29f8b3", "zero2-offload": "f7de8f4df7b195ec",
    "zero3-offload": "7b82ca7021b9bff4",
}  # fmt: skip
"""The same of llm/ds_config of 2.6.1: zero2.json, zero3.json, zero2_offload.json and zero3_offload.json."""
FILE = "model: x\ntuner_type: full\ntorch_dtype: bfloat16\ndataset: d\ndeepspeed: %s\n"


@pytest.fixture
def check(check_files):
    return check_files


@pytest.mark.parametrize("name", OWN)
def test_its_own_configs_are_its_own(name):
    content = json.dumps(json.loads(own_config(name)[1]), sort_keys=True)
    assert hashlib.sha256(content.encode()).hexdigest().startswith(SHA_256[name])


@pytest.mark.parametrize("name", OLDER)
def test_those_of_release_2(name):
    content = json.dumps(json.loads(own_config(name, release="2.6.1")[1]), sort_keys=True)
    assert hashlib.sha256(content.encode()).hexdigest().startswith(SHA_256_OF_2[name])


@pytest.mark.parametrize("name", OWN)
def test_nothing_of_them_is_advised(check, name):
    """They lie in a package, where nobody changes them: steps_per_print 2000 gets advice in anybody else's file."""
    ran = check({"run.sh": f"NPROC_PER_NODE=8 swift sft --model x --deepspeed {name} --torch_dtype bfloat16\n"})
    assert (ran.code, ran.err) == (0, "")
    assert "nothing found" in ran.out
    assert f"{name} of ms-swift, given to swift, on 8 GPUs" in ran.out


def test_one_of_them_in_a_file(check):
    ran = check({"train.yaml": FILE % "zero3"})
    assert (ran.code, ran.err) == (0, "")
    assert check({"train.yaml": FILE % "zero4"}).code == 2


@pytest.mark.parametrize(
    ("variables", "line", "gpus"),
    [
        ("NPROC_PER_NODE: 4", "swift sft train.yaml", 4), ("NPROC_PER_NODE: '4'", "NPROC_PER_NODE=2 swift sft train.yaml", 2),
        ("NNODES: 2, NPROC_PER_NODE: 8", "swift pt train.yaml", 16),
    ],
)  # fmt: skip
def test_variables_of_a_file(check, variables, line, gpus):
    """ms-swift 4.6 cli/main.py:parse_yaml_args: each of ENV is set, but where the environment has it."""
    file = FILE % "zero2" + f"ENV: {{{variables}}}\n"
    assert f"train.yaml, given to swift, on {gpus} GPUs" in check({"run.sh": f"{line}\n", "train.yaml": file}).out


def test_cards_that_a_file_shows(check):
    file = FILE % "zero2" + "ENV: {CUDA_VISIBLE_DEVICES: '0,1'}\n"
    assert "error ZP821" in check({"run.sh": "swift sft train.yaml\n", "train.yaml": file}, "--format", "concise").out


def test_ray_starts_its_own_ranks(check):
    """arguments/sft_args.py:_init_deepspeed: `if is_mp() and not self.use_ray` raises."""
    line = "CUDA_VISIBLE_DEVICES=0,1 swift sft --model x --deepspeed zero2 --torch_dtype bfloat16"
    assert "ZP821" in check({"run.sh": f"{line}\n"}).out
    ran = check({"run.sh": f"{line} --use_ray true\n"})
    assert ran.code == 0
    assert ran.out.startswith("run.sh:1: zero2 of ms-swift, given to swift\n")


@pytest.mark.parametrize(
    ("release", "argument", "written"),
    [
        ("2.6.1", "model_id_or_path", None), ("2.6.1", "train_type", "sft_type"), ("3.8.0", "train_type", None),
        ("3.8.0", "sft_type", "train_type"), ("3.8.0", "model_id_or_path", "model"), ("3.8.0", "tuner_type", "train_type"),
        ("4.0.4", "train_type", None), ("4.1.0", "train_type", "tuner_type"), ("3.4.0", "vllm_mode", "delete it"),
        ("3.8.0", "vllm_mode", None), ("3.8.0", "batch_size", "per_device_train_batch_size"),
        ("4.6.0", "trian_batch", "delete it"), ("4.6.0", "learning_rat", "learning_rate: ..."),
    ],
)  # fmt: skip
def test_names_by_release(check, release, argument, written):
    """Classes of the wheels: 2.6.1 llm/utils/argument.py, 3.4.0 and 3.8.0 llm/argument and trainers/arguments.py, 4.0.4, 4.1.0 and
    4.6.0 arguments; 4.0 still takes train_type.
    """
    file = f"model: x\ndataset: d\nattn_impl: sdpa\nlazy_tokenize: true\n{argument}: v\ndeepspeed: d.json\n"
    config = '{"train_micro_batch_size_per_gpu": "auto", "bf16": {"enabled": "auto"}, "zero_optimization": {"stage": 2}}'
    pins = f"ms-swift=={release}\n"
    ran = check({"train.yaml": file, "d.json": config, "requirements.txt": pins}, "--format", "concise")
    line = next((line for line in ran.out.splitlines() if f'ZP831: {argument} ' in line or f'ZP831: "{argument}"' in line), "")
    assert bool(line) == (written is not None), ran.out
    assert written is None or f"write: {written}" in line


@pytest.mark.parametrize(("name", "warns"), [("tuner_type", False), ("train_type", True), ("sft_type", True)])
def test_names_of_older_releases(check, name, warns):
    """Run with 4.6.0: ValueError: remaining_argv: ['--train_type', 'full']; 3.12.0 takes it."""
    assert ("warning ZP831" in check({"train.yaml": FILE.replace("tuner_type", name) % "zero2"}).out) == warns
    ran = check({"run.sh": f"NPROC_PER_NODE=8 swift sft --model x --{name} full --torch_dtype bfloat16 --deepspeed zero2\n"})
    assert ("warning ZP831" in ran.out) == warns


@pytest.mark.parametrize(
    ("release", "name", "code"),
    [("", "default-zero2", 0), ("2.6.1", "default-zero2", 0), ("2.6.1", "zero3-offload", 0), ("2.6.1", "zero2", 2),
     ("3.4.0", "default-zero2", 1), ("3.4.0", "zero2", 0), ("2.6.1", "zero2_offload", 2)],
)  # fmt: skip
def test_a_name_of_swift_2(check, release, name, code):
    """2.6.1 llm/utils/argument.py: deepspeed_mapping has default-zero2, default-zero3, zero2-offload and zero3-offload; since 3.0 the
    names are zero0 to zero3 and zero2_offload, zero3_offload, and any other is looked for as a file.
    """
    model = "model_id_or_path" if release.startswith("2") else "model"
    files = {"requirements.txt": f"ms-swift=={release}\n" if release else "numpy\n"}
    options = ("--format", "concise", "--fail-on", "error")
    line = f"NPROC_PER_NODE=8 swift sft --{model} x --torch_dtype bfloat16 --deepspeed {name}\n"
    line = line.replace("torch_dtype bfloat16", "dtype bf16") if release.startswith("2") else line
    ran = check({"run.sh": line, **files}, *options)
    assert ran.code == code, ran.out + ran.err
    assert ("ZP831: deepspeed" in ran.out) == (name == "default-zero2" and release != "2.6.1")
    kind = "sft_type" if release.startswith("2") else "train_type"
    ran = check({"train.yaml": f"{model}: x\n{kind}: full\ndeepspeed: {name}\n", **files}, *options)
    assert ran.code == code, ran.out + ran.err


@pytest.mark.parametrize(("release", "found"), [("3.12.4", True), ("4.0.0", False)])
def test_a_name_of_ms_swift_4_under_3(check_files, release, found):
    """ms-swift 3.12.4's parser, run: remaining_argv: ['--tuner_type', 'full']."""
    line = "NPROC_PER_NODE=2 swift sft --model x --tuner_type full --torch_dtype bfloat16 --deepspeed zero2\n"
    ran = check_files({"run.sh": line, "requirements.txt": f"ms-swift=={release}\n"}, "--format", "concise")
    assert ("error ZP831: tuner_type came with ms-swift 4.0" in ran.out) == found


@pytest.mark.parametrize(("options", "word"), [("--model --num_train_epochs 3", "--model has no value"), ("--model x --dataset\\\n --bf16 true", "--dataset has"), ("--model x", ""), ('--model "$M"', ""), ("--model $M --seed 1", "--model has no value")])
def test_an_option_without_its_value(check_files, options, word):
    """Run with 4.6: argument --model: expected one argument."""
    ran = check_files({"run.sh": f"M=\"\"\nswift sft {options} --deepspeed zero2 --output_dir o\n"}, "--format", "concise")
    assert word in ran.out
    assert ("has no value" in ran.out) == bool(word)
