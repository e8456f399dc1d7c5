"""The Trainer of Lightning 2.6 that goes with a ds_config.json for it.

Its DeepSpeedStrategy refuses gradient_accumulation_steps in the config, and writes accumulate_grad_batches there.
train_micro_batch_size_per_gpu, gradient_clipping, fp16 and bf16 stay as the config states them; with an optimizer in
the config configure_optimizers is never called (lightning/pytorch/strategies/deepspeed.py: _format_config,
_initialize_deepspeed_train).
"""

from __future__ import annotations

from zeroplan.specs.job import Job

PRECISIONS = {"fp32": "32-true", "fp16": "16-mixed", "bf16": "bf16-mixed", "fp8": "bf16-mixed"}
"""DeepSpeed casts the weights; mixed leaves the model as it was built until then."""
TEXT = '''\
"""The Trainer that goes with ds_config.json beside this file.

{optimizer}
"""

from pathlib import Path

from lightning.pytorch import Trainer
from lightning.pytorch.strategies import DeepSpeedStrategy

MICRO_BATCH = {micro_batch}  # batch_size of the training DataLoader


def trainer(**more):
    """A Trainer on {gpus} GPUs; `more` are further arguments of it."""
    config = str(Path(__file__).with_name("ds_config.json"))
    return Trainer(
        accelerator="{accelerator}",
        devices={devices},
        num_nodes={nodes},
        precision="{precision}",
        accumulate_grad_batches={grad_accum},
        strategy=DeepSpeedStrategy(config=config),
        **more,
    )
'''
IN_CONFIG = "The optimizer and its learning rate are in there: Lightning does not call configure_optimizers."
IN_MODULE = "The optimizer is made in configure_optimizers."


def lightning_trainer(job: Job) -> str:
    """A Python module with `trainer()`."""
    strategy = job.strategy
    return TEXT.format(
        optimizer=IN_CONFIG if strategy.has_optimizer_section else IN_MODULE,
        micro_batch=strategy.micro_batch,
        gpus=job.ranks,
        accelerator="cpu" if strategy.backend == "cpu" else "gpu",
        devices=job.cluster.gpus_per_node,
        nodes=job.cluster.nodes,
        precision=PRECISIONS[strategy.precision],
        grad_accum=strategy.grad_accum,
    )
