"""The ds_configs of the clones of LLaMA-Factory and axolotl, which files elsewhere name by their path there."""

from __future__ import annotations

import hashlib
import json

import pytest

from zeroplan.catalog.trainers.example_configs import EXAMPLES, example_config

SHA_256 = {
    "examples/deepspeed/ds_z0_config.json": "b41da4f4a5aa721b",
    "examples/deepspeed/ds_z2_config.json": "788d1effc46b0e2b",
    "examples/deepspeed/ds_z2_offload_config.json": "953f43b2489d1e9b",
    "examples/deepspeed/ds_z3_config.json": "e58e4d9462d9b823",
    "examples/deepspeed/ds_z3_offload_config.json": "90ebd94ff60faea1",
    "deepspeed_configs/zero1.json": "ccc5f296ff473ff8",
    "deepspeed_configs/zero1_torch_compile.json": "53da40684461eef3",
    "deepspeed_configs/zero2.json": "ad3412140d967e50",
    "deepspeed_configs/zero2_torch_compile.json": "47a947a2d0d0abe3",
    "deepspeed_configs/zero3.json": "93851a66f76d597b",
    "deepspeed_configs/zero3_bf16.json": "23cf0fa04b74eb2d",
    "deepspeed_configs/zero3_bf16_cpuoffload_all.json": "1102a427e1c5e128",
    "deepspeed_configs/zero3_bf16_cpuoffload_params.json": "838b04813dd6c3c4",
}
"""Of json.dumps(json.load(file), sort_keys=True), its beginning: LLaMA-Factory ff6d4d12 (2026-08), axolotl 067b021c (2026-07)."""
OF_LLAMA_FACTORY = "model_name_or_path: x/y\nfinetuning_type: full\noutput_dir: o\nbf16: true\ndeepspeed: %s\n"
OF_AXOLOTL = "base_model: x/y\ndatasets: [{path: d, type: alpaca}]\nmicro_batch_size: 1\nnum_epochs: 1\nbf16: true\ndeepspeed: %s\n"


@pytest.mark.parametrize("path", EXAMPLES)
def test_their_content(path):
    content = json.dumps(json.loads(example_config(path, EXAMPLES[path][0])[1]), sort_keys=True)
    assert hashlib.sha256(content.encode()).hexdigest().startswith(SHA_256[path])


@pytest.mark.parametrize(
    ("file", "path"),
    [(OF_LLAMA_FACTORY, "examples/deepspeed/ds_z3_config.json"), (OF_AXOLOTL, "deepspeed_configs/zero2.json")],
)
def test_named_from_elsewhere(check_files, file, path):
    ran = check_files({"train.yaml": file % path})
    assert (ran.code, ran.err) == (0, "")
    assert f"train.yaml: its deepspeed is {path} of " in ran.out
    assert check_files({"train.yaml": file % "configs/zero9.json"}).code == 2


def test_of_another_tool(check_files):
    text = "output_dir: o\nper_device_train_batch_size: 1\ndeepspeed: deepspeed_configs/zero2.json\n"
    assert "which is not there" in check_files({"train.yaml": text}).err


def test_a_file_of_that_name_comes_first(check_files, tmp_path):
    path = "examples/deepspeed/ds_z3_config.json"
    (tmp_path / "examples/deepspeed").mkdir(parents=True)
    ran = check_files({"train.yaml": OF_LLAMA_FACTORY % path, path: '{"zero_optimization": {"stage": 7}}'})
    assert ran.code == 1
    assert " of LLaMA-Factory" not in ran.out


def test_a_script_names_one(check_files):
    line = "torchrun --nproc_per_node 2 src/train.py --stage sft --finetuning_type full --deepspeed examples/deepspeed/ds_z2_config.json --output_dir o"
    ran = check_files({"run.sh": f"{line}\n"})
    assert (ran.code, ran.err) == (0, "")
    assert "run.sh:1: examples/deepspeed/ds_z2_config.json of LLaMA-Factory, given to torchrun, on 2 GPUs" in ran.out
