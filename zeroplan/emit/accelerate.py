"""Accelerate's configuration file for `accelerate launch`, with its DeepSpeed plugin (accelerate 1.15).

It points at a ds_config.json. Beside that Accelerate refuses the fields that the config states itself (mixed precision,
stage, offload, accumulation, clipping: utils/dataclasses.py:_deepspeed_config_checks), so none of them is here. Inline
fields alone would lose bucket sizes, the optimizer and all else that they have no name for.
"""

from __future__ import annotations

from zeroplan.emit.yaml_text import dumps
from zeroplan.specs.job import Job

HEADER = """\
# For accelerate launch --config_file. The script says accelerate.utils.DummyOptim(parameters, lr=...), or leaves it all
# to the Trainer: the optimizer is DeepSpeed's, as deepspeed_config_file has it, with that learning rate.
"""
OWN_OPTIMIZER = "# For accelerate launch --config_file. The script makes the optimizer.\n"


def accelerate_yaml(job: Job, config: str) -> str:
    """`config` is the path of the ds_config.json, as seen from where `accelerate launch` will run."""
    deepspeed: dict[str, object] = {"deepspeed_config_file": config}
    if job.cluster.nodes > 1:
        deepspeed["deepspeed_multinode_launcher"] = "standard"
    deepspeed["zero3_init_flag"] = job.strategy.stage == 3 and job.strategy.builds_partitioned
    content: dict[str, object] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": "DEEPSPEED",
        "deepspeed_config": deepspeed,
        "machine_rank": 0,
        "main_training_function": "main",
        "num_machines": job.cluster.nodes,
        "num_processes": job.ranks,
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": job.strategy.backend == "cpu",
    }
    return (HEADER if job.strategy.has_optimizer_section else OWN_OPTIMIZER) + dumps(content)
