"""What a process takes on the card beside PyTorch's allocator."""

from __future__ import annotations

from zeroplan.formulas.outside import communicator, context
from zeroplan.ledger import Line, line
from zeroplan.specs.cluster import NVIDIA
from zeroplan.specs.job import Job
from zeroplan.units import GiB

USUAL_CONTEXT = GiB // 2
"""For a card without a preset; see formulas/outside.py."""
OF_ONE, OF_TWO, OF_MORE = 495 << 20, 544 << 20, 688 << 20
"""NCCL's buffers, by ranks; see formulas/outside.py."""
NAMES = {NVIDIA: ("CUDA", "NCCL"), "AMD": ("HIP", "RCCL"), "Intel": ("device", "HCCL")}
"""Names of contexts and of collectives' libraries, by the card's maker."""


def outside(job: Job) -> tuple[Line, ...]:
    """CUDA context, and NCCL's buffers, or what other makers have in their place; one rank alone has NCCL too, for
    DeepSpeed sends itself what it begins with.

    Nothing on the CPU backend, which has no card.
    """
    if job.strategy.backend == "cpu":
        return ()
    gpu, (runtime, collectives) = job.cluster.gpu, NAMES[job.cluster.maker]
    return (
        line(f"{runtime} context", context, size=int(gpu.context.value) if gpu and gpu.context else USUAL_CONTEXT),
        line(f"{collectives} buffers", communicator, size={1: OF_ONE, 2: OF_TWO}.get(job.ranks, OF_MORE)),
    )
