"""One strategy on one cluster in plain numbers."""

from typing import NamedTuple

from zeroplan.clock import Speed
from zeroplan.fit import Fit
from zeroplan.ledger import Ledger, total
from zeroplan.specs.job import Job


class Outcome(NamedTuple):
    """What a strategy needs and how fast it is. Sizes in bytes, `step` in seconds."""

    stage: int
    """ZeRO stage, 0 to 3."""
    micro_batch: int
    """Sequences of one micro-batch on one GPU."""
    grad_accum: int
    """Micro-batches of an optimizer step."""
    checkpointing: str
    """As `--checkpointing` has it."""
    offload_optimizer: str | None
    """Where the optimizer's states are: cpu, nvme, or None: on the GPU."""
    offload_param: str | None
    """Where parameters are: cpu, nvme, or None: on the GPU."""
    gpus: int
    """All GPUs."""
    held: int
    """Bytes that a GPU holds between steps."""
    peak: int
    """Most bytes that PyTorch has allocated on a GPU."""
    needed: int
    """Bytes of a GPU: the peak, the CUDA context and NCCL's buffers."""
    capacity: int | None
    """Bytes of a GPU that may be used; None where no card is named."""
    host_needed: int
    """Bytes of a node's memory."""
    nvme_needed: int
    """Bytes of a node's disks."""
    fits: bool | None
    """Whether the verdict is `fits`; None where no capacity is known."""
    verdict: str | None
    """`fits`, `tight` (such runs took more than is there) or `does_not_fit`: the worst of GPU, host and NVMe."""
    most: int
    """Bytes of a GPU that such runs took at most."""
    host_most: int
    """Bytes of a node's memory that such runs took at most."""
    sent: int
    """Bytes that a GPU sends in an optimizer step."""
    step: float | None
    """Seconds of an optimizer step; None where no card is named."""
    tokens_per_s_per_gpu: float | None
    """Tokens per second of one GPU; None where no card is named."""

    @property
    def headroom(self) -> int | None:
        """Bytes of a GPU that stay free; less than zero: that are missing."""
        return None if self.capacity is None else self.capacity - self.needed

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens per second of all GPUs together."""
        return None if self.tokens_per_s_per_gpu is None else self.tokens_per_s_per_gpu * self.gpus


def outcome(job: Job, counted: Ledger, verdict: Fit, speed: Speed | None) -> Outcome:
    strategy = job.strategy
    optimizer, parameters = strategy.offload_optimizer, strategy.offload_param
    return Outcome(
        stage=strategy.stage,
        micro_batch=strategy.micro_batch,
        grad_accum=strategy.micro_steps,
        checkpointing=strategy.checkpointing,
        offload_optimizer=optimizer.device if optimizer else None,
        offload_param=parameters.device if parameters else None,
        gpus=job.ranks,
        held=total(counted.gpu.resident),
        peak=total(counted.gpu.peak.lines),
        needed=verdict.gpu.needed,
        capacity=verdict.gpu.capacity,
        host_needed=verdict.host.needed,
        nvme_needed=verdict.nvme.needed,
        fits=verdict.fits,
        verdict=verdict.verdict,
        most=verdict.gpu.most,
        host_most=verdict.host.most,
        sent=counted.sent(strategy.micro_steps),
        step=speed.step.total if speed else None,
        tokens_per_s_per_gpu=speed.tokens_per_gpu if speed else None,
    )
