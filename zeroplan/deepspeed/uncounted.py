"""What DeepSpeed 0.19.8 does that the ledger does not count, and that is too little to decide whether a job fits.

It is named beside the numbers. What is more than that is in `zeroplan.deepspeed.unplanned`.
"""

from __future__ import annotations

from zeroplan.deepspeed.facts import Facts
from zeroplan.deepspeed.values import AUTO

ZERO = "zero_optimization"
SANITY_CHECKS = f"{ZERO}.enable_sanity_checks"
"""Each bucket's tensors are broadcast to be compared (runtime/zero/stage3.py:1671): copies of one bucket at most."""
FROZEN_CODES = f"{ZERO}.zero_quantized_nontrainable_weights"
"""Frozen parameters are held as 8-bit codes (runtime/zero/partition_parameters.py:1145): less than is counted."""
FP32_BUFFERS = "data_types.keep_in_fp32_modules"
"""Buffers, not parameters (runtime/keep_in_fp32.py): a rotary table is some hundred bytes."""
GPU_DIRECT = "aio.use_gds"
"""Files are read into GPU memory without the host's buffers (runtime/swap_tensor/utils.py): less than is counted."""
TORCH_ADAM = tuple(f"optimizer.params.{name}" for name in ("capturable", "differentiable", "maximize"))
"""With them torch's Adam copies more (torch/optim/adam.py)."""
IDLE = (
    "activation_checkpointing does nothing unless the model calls deepspeed.checkpointing.checkpoint, which models "
    "of transformers do not of themselves (--checkpointing deepspeed: as if they did, and a call of "
    "deepspeed.checkpointing.configure had read the section)"
)
PIPELINE = "pipeline does nothing for a model of transformers: a PipelineModule alone reads it, which is not planned"
SYNCHRONIZING = ("wall_clock_breakdown", "memory_breakdown", "comms_logger.enabled", "flops_profiler.enabled")
"""They wait for the card at each of their marks (utils/timer.py, runtime/utils.py:see_memory_usage, comm/comm.py)."""


def uncounted(facts: Facts) -> tuple[str, ...]:
    """Dotted keys of a config whose effect on memory or traffic is not in the ledger."""
    at_stage_3 = [path for path in (SANITY_CHECKS, FROZEN_CODES) if facts.stage == 3 and facts.stated(path) is True]
    reasons = list(at_stage_3)
    if facts.stated(FP32_BUFFERS) not in (None, AUTO):
        reasons.append(FP32_BUFFERS)
    if facts.stated(GPU_DIRECT) is True and facts.stated(f"{ZERO}.offload_param.device") == "nvme":
        reasons.append(GPU_DIRECT)
    if facts.stated("optimizer.params.torch_adam") is True:
        reasons += [path for path in TORCH_ADAM if facts.stated(path) is True]
    return tuple(reasons)


def idle(facts: Facts) -> list[str]:
    """What a config states that moves nothing in a model of transformers, or takes time that no step time has in it."""
    reasons = [IDLE] if facts.section("activation_checkpointing") else []
    reasons += [PIPELINE] if facts.section("pipeline") else []
    return reasons + [
        f"{path}: DeepSpeed waits for the card at each of its marks, which is in no step time"
        for path in SYNCHRONIZING if facts.stated(path) is True
    ]  # fmt: skip
