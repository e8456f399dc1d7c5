"""The files of `accelerate launch` in TRL's own package, which `accelerate_config: zero3` names (trl 1.16
accelerate_configs, and cli/accelerate_config.py, which looks for a file of that name first).
"""

from __future__ import annotations

DEEPSPEED = {
    "zero1": "  gradient_accumulation_steps: 1\n  zero3_init_flag: false\n  zero_stage: 1\n",
    "zero2": (
        "  offload_optimizer_device: none\n  offload_param_device: none\n  zero3_init_flag: false\n"
        "  zero_stage: 2\n"
    ),
    "zero3": (
        "  offload_optimizer_device: none\n  offload_param_device: none\n  zero3_init_flag: true\n"
        "  zero3_save_16bit_model: true\n  zero_stage: 3\n"
    ),
}
"""Fields of each that starts DeepSpeed, beside the launcher of several machines."""
WITHOUT = ("fsdp1", "fsdp2", "multi_gpu", "single_gpu")
"""Those that start none."""
SUFFIX = " of TRL"
AROUND = """compute_environment: LOCAL_MACHINE
debug: false
deepspeed_config:
  deepspeed_multinode_launcher: standard
%sdistributed_type: DEEPSPEED
downcast_bf16: 'no'
machine_rank: 0
main_training_function: main
mixed_precision: bf16
num_machines: 1
num_processes: 8
rdzv_backend: static
same_network: true
tpu_env: []
tpu_use_cluster: false
tpu_use_sudo: false
use_cpu: false
"""


def is_own_accelerate_config(name: str) -> bool:
    """Whether findings call such a file so."""
    return name.removesuffix(SUFFIX) in DEEPSPEED and name.endswith(SUFFIX)


def own_accelerate_config(name: object) -> tuple[str, str] | None:
    """What findings call such a file, and its text; None for any other name."""
    return (f"{name}{SUFFIX}", AROUND % DEEPSPEED[name]) if isinstance(name, str) and name in DEEPSPEED else None
