"""What DeepSpeed 0.19.8 does that the ledger does not count: named beside the numbers, never passed over."""

from __future__ import annotations

from zeroplan.deepspeed.facts import Facts
from zeroplan.deepspeed.values import AUTO

ZERO = "zero_optimization"
SWITCHES = (
    f"{ZERO}.offload_optimizer.super_offload", "torch_autocast.enabled", "compile.deepcompile", "hybrid_engine.enabled",
    "expert_parallel.enabled", "data_efficiency.data_routing.enabled", "weight_quantization.enabled",
    "activation_checkpointing.partition_activations", "activation_checkpointing.cpu_checkpointing",
)  # fmt: skip
"""They do something when they are true."""
DEGREES = ("tensor_parallel.autotp_size", "sequence_parallel_size", "pipeline.stages")
"""They do something when they are numbers over 1."""


def uncounted(facts: Facts) -> tuple[str, ...]:
    """Dotted keys of a config whose effect on memory or traffic is not in the ledger."""
    found = [path for path in SWITCHES if facts.stated(path) is True]
    found += [path for path in DEGREES if _number(facts.stated(path)) > 1]
    if facts.stated(f"{ZERO}.zenflow") is not None:
        found.append(f"{ZERO}.zenflow")
    if facts.stage == 3 and facts.stated(f"{ZERO}.memory_efficient_linear") is False:
        found.append(f"{ZERO}.memory_efficient_linear")
    if facts.stated("data_types.keep_in_fp32_modules") not in (None, [], AUTO):
        found.append("data_types.keep_in_fp32_modules")
    return tuple(found)


def _number(value: object) -> float:
    return value if isinstance(value, int | float) else 0
