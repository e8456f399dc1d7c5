"""Configs that Lightning and Accelerate build of the arguments of a call, beside what both made of them when run."""

from __future__ import annotations

import pytest

from zeroplan.check.python_reader import python_configs

LIGHTNING_ZERO = {
    "stage": 2, "contiguous_gradients": True, "overlap_comm": True, "allgather_partitions": True, "reduce_scatter": True,
    "allgather_bucket_size": 200000000, "reduce_bucket_size": 200000000,
}  # fmt: skip
"""DeepSpeedStrategy().config["zero_optimization"] of lightning 2.6.6, but for sub_group_size, which does nothing at stage 2."""
OPTIMIZER = {"device": "cpu", "nvme_path": "/local_nvme", "buffer_count": 4, "pin_memory": False}
PARAMETERS = {
    "device": "cpu", "nvme_path": "/local_nvme", "buffer_count": 5, "buffer_size": 100000000, "max_in_cpu": 1000000000,
    "pin_memory": False,
}  # fmt: skip


def built(call):
    (one,) = python_configs("a.py", f"x = {call}\n").literals
    return one.document.config


@pytest.mark.parametrize(
    ("call", "zero"),
    [
        ("DeepSpeedStrategy()", LIGHTNING_ZERO),
        ("Trainer(strategy='deepspeed')", LIGHTNING_ZERO),
        ("L.Fabric(strategy='deepspeed_stage_1')", {**LIGHTNING_ZERO, "stage": 1}),
        ("DeepSpeedStrategy(stage=2, offload_optimizer=True, allgather_bucket_size=5e8)",
         {**LIGHTNING_ZERO, "allgather_bucket_size": 5e8, "offload_optimizer": OPTIMIZER}),
        ("Trainer(strategy='deepspeed_stage_3_offload_nvme')",
         {"stage": 3, "contiguous_gradients": True, "overlap_comm": True, "reduce_bucket_size": 200000000,
          "sub_group_size": 1000000000000, "offload_optimizer": {**OPTIMIZER, "device": "nvme"},
          "offload_param": {**PARAMETERS, "device": "nvme"}}),
    ],
)  # fmt: skip
def test_as_lightning_builds_them(call, zero):
    assert built(call)["zero_optimization"] == zero


def test_other_sections_of_lightnings():
    config = built("DeepSpeedStrategy(zero_optimization=False, partition_activations=True, logging_batch_size_per_gpu=4, thread_count=2)")
    assert config == {
        "activation_checkpointing": {"partition_activations": True}, "aio": {"thread_count": 2},
        "train_micro_batch_size_per_gpu": 4,
    }  # fmt: skip


def test_as_accelerate_builds_them():
    """DeepSpeedPlugin(...).deepspeed_config of accelerate 1.15, but for offload sections whose device is none."""
    config = built("DeepSpeedPlugin(zero_stage=3, offload_param_device='cpu', gradient_clipping=1.0)")
    assert config == {
        "train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
        "zero_optimization": {
            "stage": 3, "stage3_gather_16bit_weights_on_model_save": False, "offload_param": {"device": "cpu"},
        },
        "gradient_clipping": 1.0,
    }  # fmt: skip


@pytest.mark.parametrize(
    "call",
    ["DeepSpeedPlugin()", "DeepSpeedPlugin(**options)", "DeepSpeedPlugin(hf_ds_config=config, zero_stage=2)", "Trainer(strategy='ddp')",
     "DeepSpeedStrategy(config=config)", "Trainer(strategy=name)"],
)  # fmt: skip
def test_not_of_arguments(call):
    assert not python_configs("a.py", f"x = {call}\n").literals


def test_findings_stand_at_the_argument(check_files):
    ran = check_files({"a.py": "p = DeepSpeedPlugin(\n    gradient_accumulation_steps=2,\n    zero_stage=4)\n"}, "--format", "concise")
    assert ran.code == 1
    assert "a.py:3:16: error ZP401" in ran.out
    assert "write: zero_stage=" in ran.out


def test_what_other_code_decides(check_files):
    ran = check_files({"a.py": "s = DeepSpeedStrategy(stage=3, offload_optimizer=cfg.offload)\n"})
    assert (ran.code, ran.err) == (0, "")
    assert "other code decides zero_optimization.offload_optimizer" in ran.out
