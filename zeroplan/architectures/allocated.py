"""What a model has allocated at one moment of its timeline, by the operator that saves it."""

from __future__ import annotations

from collections import Counter
from functools import lru_cache

from zeroplan.architectures.places import interval_source
from zeroplan.architectures.timeline import ExpandedTrace
from zeroplan.autograd.log import BACKWARD, WORKSPACE, AllocationSource, allocated
from zeroplan.specs.execution import AllocatedActivations

KEPT_TRACES = 4
LINEAR, NORMS, ATTENTION, ACTIVATION = "linear layers", "norms", "attention", "activation functions"
PRODUCTS, DROPOUT, EXPERTS, LOSS = "products", "dropout", "experts", "logits and loss"
LIGER_NORMS, LIGER_MLPS, LIGER_EXPERTS = "Liger norms", "Liger MLPs", "Liger experts"
LIGER_ROPE, LIGER_LOSS = "Liger rotary positions", "Liger loss"
FLASH, FLASH_INSIDE = "flash attention", "flash attention inside its kernel"
INPUTS = "inputs of layers"
AT_WORK, GRADIENTS = "at work", "gradients of activations"
KEEPS = {
    "Mm": LINEAR, "Addmm": LINEAR, "LinearFunctionForZeroStage3": LINEAR, "Clone": LINEAR,
    "Pow": NORMS, "Rsqrt": NORMS, "NativeLayerNorm": NORMS,
    "Bmm": ATTENTION, "Baddbmm": ATTENTION, "Softmax": ATTENTION, "CpuAttention": ATTENTION,
    "FlashAttention": ATTENTION, "EfficientAttention": ATTENTION, "CudnnAttention": ATTENTION,
    "Silu": ACTIVATION, "Gelu": ACTIVATION, "Relu": ACTIVATION, "Tanh": ACTIVATION, "Sigmoid": ACTIVATION,
    "GeLUFunction": ACTIVATION, "Clamp": ACTIVATION,
    "Mul": PRODUCTS, "NativeDropout": DROPOUT,
    "GroupedMm": EXPERTS, "Index": EXPERTS, "Topk": EXPERTS, "Gather": EXPERTS, "Div": EXPERTS, "MaskedFill": EXPERTS,
    "LogSoftmax": LOSS, "NllLoss": LOSS, "CheckpointFunction": INPUTS, "Checkpoint": ATTENTION,
    "LigerRMSNormFunction": LIGER_NORMS, "LigerSiLUMulFunction": LIGER_MLPS, "LigerFusedMoEFunction": LIGER_EXPERTS,
    "FlashAttnFunc": FLASH, WORKSPACE: FLASH_INSIDE,
    "LigerRopeFunction": LIGER_ROPE, "LigerFusedLinearCrossEntropyFunction": LIGER_LOSS,
}  # fmt: skip
"""Operators by what they belong to."""


def allocated_at(expanded: ExpandedTrace, *, backward: bool, at: int, size: int) -> AllocatedActivations:
    """What is allocated in an interval of the full pass, where `size` bytes are: all layers together."""
    result, trace = interval_source(expanded, backward=backward, at=at), expanded.trace
    log = trace.log()
    before = len(trace.forward.kinds) if backward else 0
    sums: Counter[str] = Counter()
    for of, amount in allocated(log, before + result.interval, size - result.offset).items():
        sums[kind(of)] += amount
    by_layer = kept_by_layer(expanded)
    for layers, sign in ((result.there, 1), (result.ran, -1)):
        for layer, count in Counter(layers).items():
            for name, amount in by_layer.get(layer, {}).items():
                sums[name] += sign * count * amount
    rest = size - sum(sums.values())
    sums[GRADIENTS if backward else AT_WORK] += rest
    return AllocatedActivations(result.module, {name: amount for name, amount in sums.items() if amount})


@lru_cache(maxsize=KEPT_TRACES)
def kept_by_layer(expanded: ExpandedTrace) -> dict[int, Counter[str]]:
    """What each layer that ran has allocated when forward has returned."""
    result: dict[int, Counter[str]] = {}
    for of, amount in allocated(expanded.trace.log(), len(expanded.trace.forward.kinds) - 1).items():
        result.setdefault(of.layer, Counter())[kind(of)] += amount
    return result


def kind(of: AllocationSource) -> str:
    """What a storage is for."""
    if of.kept_by:
        return KEEPS.get(of.kept_by.removesuffix("Backward"), AT_WORK)
    return GRADIENTS if of.phase == BACKWARD else AT_WORK
