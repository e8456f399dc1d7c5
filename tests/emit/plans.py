"""Plans to write out: a job that was counted and timed, whatever its strategy."""

from __future__ import annotations

from functools import cache

from tests.jobs import job
from zeroplan.catalog.hardware import gpu
from zeroplan.search.candidate import evaluate
from zeroplan.specs.strategy import Offload, Strategy

NVME = Offload("nvme", nvme_path="/scratch/run one", buffer_count=6)
STRATEGIES = {
    "stage 0": Strategy(0, micro_batch=2),
    "stage 1 in fp32": Strategy(1, "fp32", "sgd-momentum", micro_batch=1, grad_accum=4, gradient_clipping=0.5),
    "stage 2, every other layer": Strategy(2, "fp16", checkpointing="every-2", micro_batch=4, grad_accum=2),
    "stage 3 with decay": Strategy(3, weight_decay=0.1, checkpointing="full-reentrant", hpz_partition_size=8),
    "stage 3 on disks": Strategy(
        3, offload_optimizer=NVME, offload_param=NVME, aio_queue_depth=32, aio_intra_op_parallelism=4, grad_accum=2
    ),
    "the script's optimizer": Strategy(2, optimizer="adafactor", kernels="liger-loss", grad_accum=8),
}
GPUS = {"one node": 8, "four nodes": 32}


@cache
def candidate(name: str, gpus: int, model: str = "llama-3.2-1b"):
    """Some are too large for the card; they are written all the same."""
    planned = job(model, gpus=gpus, seq=512)
    card = gpu("h100-80gb")
    cluster = planned.cluster._replace(gpu=card, capacity=int(card.memory.value))
    return evaluate(planned._replace(cluster=cluster, strategy=STRATEGIES[name]), 0.05)
