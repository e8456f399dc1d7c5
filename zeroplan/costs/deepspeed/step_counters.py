"""Single numbers that optimizers keep of each tensor that they update: torch's Adam and Adagrad of its steps, on the
host, or with fused kernels beside the tensor (torch/optim/adam.py:_init_group); Adafactor its root mean square
(transformers optimization.py).
"""

from __future__ import annotations

from zeroplan.costs.deepspeed.layout import flat_groups
from zeroplan.costs.deepspeed.muon import matrices
from zeroplan.costs.deepspeed.partitions import sub_group_members
from zeroplan.costs.deepspeed.resident import counts_on_gpu
from zeroplan.formulas import states
from zeroplan.ledger import Line, line
from zeroplan.specs.job import Job


def updated_tensors(job: Job) -> int:
    """How many the optimizer updates, of the model, flat partitions or sub-groups; under Muon those of Adam's half."""
    if job.strategy.stage == 0:
        return len(job.model.trainable) - len(matrices(job))
    if job.strategy.stage == 3:
        return sum(members[0] not in matrices(job) for members in sub_group_members(job))
    return sum(not layout.muon for layout in flat_groups(job))


def on_gpu(job: Job) -> list[Line]:
    adafactor = job.strategy.optimizer == "adafactor" and not job.strategy.offload_optimizer
    if not (adafactor or counts_on_gpu(job)):
        return []
    name = "root mean squares" if adafactor else "step counters"
    return [line(name, states.scalars, "float32", tensors=updated_tensors(job), w=4)]
