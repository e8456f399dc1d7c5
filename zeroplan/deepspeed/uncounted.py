"""What DeepSpeed 0.19.8 does that the ledger does not count: named beside the numbers, never passed over."""

from __future__ import annotations

from zeroplan.deepspeed import zenflow
from zeroplan.deepspeed.facts import Facts
from zeroplan.deepspeed.values import AUTO

ZERO = "zero_optimization"
SWITCHES = (
    f"{ZERO}.offload_optimizer.super_offload", "compile.deepcompile", "hybrid_engine.enabled",
    "expert_parallel.enabled", "data_efficiency.data_routing.enabled", "weight_quantization.enabled",
)  # fmt: skip
"""They do something when they are true."""
NEGATIVE = ("managed_gradient_accumulation",)
"""They do something when they are false."""
SANITY_CHECKS = f"{ZERO}.enable_sanity_checks"
"""Each bucket's tensors are broadcast to be compared (runtime/zero/stage3.py:1671)."""
TORCH_ADAM = tuple(f"optimizer.params.{name}" for name in ("capturable", "differentiable", "maximize"))
"""With them torch's Adam copies more (torch/optim/adam.py)."""
DEGREES = ("tensor_parallel.autotp_size", "sequence_parallel_size", "pipeline.stages")
"""They do something when they are numbers over 1."""
IDLE = (
    "activation_checkpointing does nothing unless the model calls deepspeed.checkpointing.checkpoint, which models "
    "of transformers do not of themselves (--checkpointing deepspeed: as if they did, and a call of "
    "deepspeed.checkpointing.configure had read the section)"
)


def uncounted(facts: Facts) -> tuple[str, ...]:
    """Dotted keys of a config whose effect on memory or traffic is not in the ledger."""
    found = [path for path in SWITCHES if facts.stated(path) is True]
    found += [path for path in NEGATIVE if facts.stated(path) is False]
    if facts.stage == 3 and facts.stated(SANITY_CHECKS) is True:
        found.append(SANITY_CHECKS)
    found += [path for path in DEGREES if _number(facts.stated(path)) > 1]
    if zenflow.switched_on(facts) and not zenflow.is_counted(facts):
        found.append(zenflow.SECTION)
    autocast = facts.section("torch_autocast")
    if autocast.get("enabled") is True:
        safe = autocast.get("lower_precision_safe_modules")
        if safe is not None and safe != ["torch.nn.Linear"]:
            found.append("torch_autocast.lower_precision_safe_modules")
        if facts.stated_dtype("torch_autocast.dtype") not in ("bf16", "fp16"):
            found.append("torch_autocast without a 16-bit dtype")
    if facts.stated("data_types.keep_in_fp32_modules") not in (None, AUTO):
        found.append("data_types.keep_in_fp32_modules")
    if facts.stated("optimizer.params.torch_adam") is True:
        found += [path for path in TORCH_ADAM if facts.stated(path) is True]
    if facts.stated("aio.use_gds") is True and facts.stated(f"{ZERO}.offload_param.device") == "nvme":
        found.append("aio.use_gds")
    return tuple(found)


def idle(facts: Facts) -> list[str]:
    """What a config states that moves nothing in a model of transformers, unless --checkpointing says otherwise."""
    return [IDLE] if facts.section("activation_checkpointing") else []


def _number(value: object) -> float:
    return value if isinstance(value, int | float) else 0
