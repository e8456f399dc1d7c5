"""Torch's Adagrad, whose states are made as it is built: ZeRO builds it again for its partitions."""

from __future__ import annotations

from zeroplan.costs.deepspeed.layout import group_members
from zeroplan.errors import ContradictionError
from zeroplan.specs.job import Job


def check(job: Job) -> None:
    """Raises `ContradictionError` where the new one has a single group and the step asks for a second.

    runtime/zero/stage_1_and_2.py:947 and 2969, stage3.py:1358 and 1260.
    """
    strategy = job.strategy
    torchs = strategy.runs_torch_adam or not strategy.offload_optimizer  # DeepSpeed's own runs on the host
    rebuilt = strategy.optimizer == "adagrad" and strategy.stage > 0 and torchs and not strategy.runs_bf16_optimizer
    if rebuilt and len(group_members(job)) > 1:
        raise ContradictionError(
            f"optimizer: found Adagrad at stage {strategy.stage} with several parameter groups; DeepSpeed builds it "
            "anew with one and stops in its first step, give it one group, or take another optimizer"
        )
