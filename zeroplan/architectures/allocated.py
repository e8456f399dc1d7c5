"""Moments of the full pass: what a model has allocated by the operator that saves it, where in it that is, and which
layers have run by then.
"""

from __future__ import annotations

from collections import Counter
from functools import lru_cache
from typing import NamedTuple

from zeroplan.architectures.structure import OUTSIDE, Structure
from zeroplan.architectures.timeline import ExpandedTrace
from zeroplan.architectures.trace import EventColumns
from zeroplan.autograd.log import BACKWARD, WORKSPACE, AllocationSource, allocated
from zeroplan.autograd.memory import ENTER, READY
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
    "MatMul8BitLt": LINEAR, "MatMul8BitFp": LINEAR,
    "Pow": NORMS, "Rsqrt": NORMS, "NativeLayerNorm": NORMS,
    "Bmm": ATTENTION, "Baddbmm": ATTENTION, "Softmax": ATTENTION, "CpuAttention": ATTENTION,
    "FlashAttention": ATTENTION, "EfficientAttention": ATTENTION, "CudnnAttention": ATTENTION,
    "ScaledDotProductFlashAttention": ATTENTION, "ScaledDotProductEfficientAttention": ATTENTION,
    "ScaledDotProductFlashAttentionForCpu": ATTENTION,
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
Ender = tuple[str, int]
"""The kind of an event that ends an interval, and its module's identity."""


def allocated_at(expanded: ExpandedTrace, *, backward: bool, at: int, size: int) -> AllocatedActivations:
    """What is allocated in an interval of the full pass, where `size` bytes are: all layers together."""
    result, trace = interval_source(expanded, backward=backward, at=at), expanded.trace
    log = trace.log()
    before = len(trace.forward.kinds) if backward else 0
    sums: Counter[str] = Counter()
    for of, amount in allocated(log, before + result.interval, size - result.offset).items():
        sums[kind(of)] += amount
    by_layer = kinds_by_layer(expanded)
    for layers, sign in ((result.there, 1), (result.ran, -1)):
        for layer, count in Counter(layers).items():
            for name, amount in by_layer.get(layer, {}).items():
                sums[name] += sign * count * amount
    rest = size - sum(sums.values())
    sums[GRADIENTS if backward else AT_WORK] += rest
    return AllocatedActivations(result.module, {name: amount for name, amount in sums.items() if amount})


@lru_cache(maxsize=KEPT_TRACES)
def kinds_by_layer(expanded: ExpandedTrace) -> dict[int, Counter[str]]:
    """Bytes that each layer that ran has allocated when forward has returned, by what they are for."""
    result: dict[int, Counter[str]] = {}
    for of, amount in allocated(expanded.trace.log(), len(expanded.trace.forward.kinds) - 1).items():
        result.setdefault(of.layer, Counter())[kind(of)] += amount
    return result


def kind(of: AllocationSource) -> str:
    """What a storage is for."""
    if of.kept_by:
        return KEEPS.get(of.kept_by.removesuffix("Backward"), AT_WORK)
    return GRADIENTS if of.phase == BACKWARD else AT_WORK


class IntervalSource(NamedTuple):
    interval: int
    offset: int
    there: list[int]
    """The representatives of those that have run forward and not yet backward, each as often as it does."""
    ran: list[int]
    """Those of them that are in the trace by themselves."""
    module: str
    """The path of the module at work, empty for the model itself."""


def interval_source(expanded: ExpandedTrace, *, backward: bool, at: int) -> IntervalSource:
    """The interval of the trace that represents one of the full pass, and which layers it lacks."""
    structure = expanded.structure
    expanded_pass = expanded.backward if backward else expanded.forward
    block = next(block for block in reversed(expanded_pass.blocks) if block.start <= at)
    before = block.before
    known = structure.representative[block.layer] if block.layer != OUTSIDE else before
    keys = [key for key, _chosen in structure.layers]
    there = [keys[structure.representative[number]] for number in range(before)]
    ran = [keys[number] for number in expanded_pass.ran if number < known]
    offset = expanded_pass.offset_of(block)
    interval = block.ran + at - block.start
    module = _module(structure, _enders(expanded_pass.events)[interval], block.layer)
    return IntervalSource(interval, offset, there, ran, module)


def places(expanded: ExpandedTrace, *, backward: bool) -> list[str]:
    """The path of the module at work in each interval of the full pass."""
    expanded_pass = expanded.backward if backward else expanded.forward
    enders = _enders(expanded_pass.events)
    return [
        _module(expanded.structure, enders[at], block.layer)
        for block in expanded_pass.blocks
        for at in range(block.ran, block.ran_end)
    ]


def _enders(events: EventColumns) -> list[Ender | None]:
    """For each event the next one at which a module is entered, left or has run: gradients get ready on the way."""
    result: list[Ender | None] = []
    following: Ender | None = None
    for kind, identity in zip(reversed(events.kinds), reversed(events.identities), strict=True):
        following = following if kind == READY else (kind, identity)
        result.append(following)
    return result[::-1]


def _module(structure: Structure, event: Ender | None, layer: int) -> str:
    """Where the interval belongs that this event ends; `layer` is the one that it represents."""
    path = structure.paths.get(event[1], "") if event else ""
    if event and event[0] == ENTER:
        path = path.rpartition(".")[0]
    if layer == OUTSIDE:
        return path
    own, ran = (structure.paths[key] for key in structure.layers[layer])
    return own + path.removeprefix(ran) if path.startswith(ran) else path
