"""Korthikanti's activations of a layer beside what the model's own operators keep, and what makes the difference."""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

from zeroplan.autograd.equation import terms, value
from zeroplan.costs.passes import alone, timeline_request
from zeroplan.formulas import korthikanti
from zeroplan.ledger import Line, line
from zeroplan.specs.account import SavedActivations, SavedByLayer, SavedByOperator
from zeroplan.specs.checkpointing import PLAIN
from zeroplan.specs.execution import AllocatedActivations
from zeroplan.specs.job import Job

CHECKPOINT = "Checkpoint"
"""The operator that keeps a checkpointed part's inputs."""
CHECKPOINTS = "checkpoints"
"""The part of a checkpointed layer, which is all there is."""
HALF, WIDENING = 2, 4
"""Bytes of an element, and the width of the MLP over h, in both papers."""


class Reason(NamedTuple):
    """Why a paper's form is so many bytes off."""

    text: str
    bytes: int


class ComponentComparison(NamedTuple):
    """A part of one layer, counted twice."""

    name: str
    counted: int
    published: Line
    reasons: tuple[Reason, ...]

    @property
    def difference(self) -> int:
        return self.counted - self.published.bytes


class LayerComparison(NamedTuple):
    """Identical layers beside Korthikanti's layer."""

    make: SavedByLayer
    parts: tuple[ComponentComparison, ...]
    """None under checkpointing: there is nothing but a layer's input."""


def counted(job: Job, *, recomputed: bool = False) -> SavedActivations | None:
    """What the operators keep, if it adds up to the timeline's own bytes; None where no timeline is.

    `recomputed`: what they keep of a layer that runs again, in place of its input.
    """
    own_bytes = alone(job)
    if own_bytes is None:
        return None
    request = timeline_request(job)._replace(zero_linear=False)
    if recomputed:
        return job.model.profile.saved(request._replace(recomputing=PLAIN))
    result = job.model.profile.saved(request)
    return result if result is not None and result.bytes == own_bytes.saved else None


def peaks(job: Job) -> dict[str, AllocatedActivations]:
    """The model's own largest moments, where their equations add up to the timeline's own bytes."""
    own_bytes = alone(job)
    if own_bytes is None:
        return {}
    request = timeline_request(job)._replace(zero_linear=False)
    sizes = {"forward": own_bytes.forward_peak, "backward": own_bytes.backward_peak}
    result = {phase: job.model.profile.peak(request, backward=phase == "backward") for phase in sizes}
    return {phase: at for phase, at in result.items() if at is not None and sum(at.kinds.values()) == sizes[phase]}


def compared(job: Job, saved: SavedActivations) -> tuple[LayerComparison, ...]:
    """Each make of layers, part by part."""
    return tuple(LayerComparison(make, _parts(job, make, saved.sizes)) for make in saved.makes)


def _parts(job: Job, make: SavedByLayer, sizes: Mapping[str, int]) -> tuple[ComponentComparison, ...]:
    if CHECKPOINTS in make.parts:
        return ()
    b, s, shape = job.strategy.micro_batch, job.workload.seq, job.model.shape
    scores = korthikanti.scores_again if job.strategy.recomputing.attention else korthikanti.scores
    published = (
        line("norms", korthikanti.norms, b=b, s=s, h=shape.hidden),
        line("attention", korthikanti.attention, b=b, s=s, h=shape.hidden),
        line("scores", scores, b=b, s=s, a=shape.heads),
        line("mlp", korthikanti.mlp, b=b, s=s, h=shape.hidden),
        line("dropout", korthikanti.dropout_masks, b=b, s=s, h=shape.hidden),
    )
    result = make.parts
    return tuple(
        ComponentComparison(
            entry.name, here := result.get(entry.name, 0), entry, _reasons(entry, here, make.kept, sizes)
        )
        for entry in published
    )


def _reasons(
    published: Line, size: int, kept: tuple[SavedByOperator, ...], sizes: Mapping[str, int]
) -> tuple[Reason, ...]:
    """The equation with one size after the other replaced by the paper's; what is left is what the operators keep."""
    now: dict[str, int | Fraction] = dict(sizes)
    before, reasons = Fraction(size), []
    for text, change in _assumptions(sizes):
        now |= change
        after = value(terms(size), now)
        reasons.append(Reason(text, round(before - after)))
        before = after
    rest = size - published.bytes - sum(reason.bytes for reason in reasons)
    reasons.append(Reason(_operators(published.name, [each for each in kept if each.part == published.name]), rest))
    return tuple(reason for reason in reasons if reason.bytes)


def _assumptions(sizes: Mapping[str, int]) -> list[tuple[str, dict[str, int | Fraction]]]:
    """What a paper takes for granted of the sizes, as far as this model is otherwise; a recording's have no letters."""
    if "h" not in sizes:
        return []
    h, n, result = sizes["h"], sizes["n"], list[tuple[str, dict[str, int | Fraction]]]()
    if sizes["w"] != HALF:
        result.append((f"elements of {sizes['w']} bytes, not 2", {"w": HALF}))
    if sizes.get("ν", n) != n:
        result.append((f"{sizes['ν']} key-value heads for {n} heads", {"ν": n}))
    if sizes.get("d", Fraction(h, n)) != Fraction(h, n):
        result.append((f"heads {sizes['d']} wide, not h/n = {Fraction(h, n)}", {"d": Fraction(h, n)}))
    if sizes.get("f", WIDENING * h) != WIDENING * h:
        result.append((f"an MLP {sizes['f']:,} wide, not 4·h = {WIDENING * h:,}", {"f": WIDENING * h}))
    return result


def _operators(part: str, kept: list[SavedByOperator]) -> str:
    """What this model's operators do otherwise than the paper's."""
    names = {each.operator for each in kept}
    if not kept:
        return "no dropout" if part == "dropout" else "nothing of this kind is kept"
    return {"norms": _norms, "attention": _attention, "scores": _scores, "mlp": _mlp}.get(part, _dropout)(names, kept)


def _norms(names: set[str], kept: list[SavedByOperator]) -> str:
    if "NativeLayerNorm" in names:
        return "the mean and 1/deviation of each token"
    count = len({each.module for each in kept})
    return f"{count} norms made of operators: each keeps its input in fp32, 1/root, and their product before the weight"


def _attention(names: set[str], _kept: list[SavedByOperator]) -> str:
    if CHECKPOINT in names:
        return "queries, keys and values as this family lays them out, which the checkpoint keeps, and the output"
    fused = any(name.endswith("Attention") for name in names)
    return "the fused kernel's inputs and output" if fused else "queries, keys and values as this family lays them out"


def _scores(names: set[str], _kept: list[SavedByOperator]) -> str:
    if any(name.endswith("Attention") for name in names):
        return "a fused kernel: the log-sum-exp of each query and head instead of softmax, mask and dropped scores"
    dropped = "" if "NativeDropout" in names else "; no dropout of scores: no mask"
    return f"the softmax's result and, where its dtype is another, a copy in the model's{dropped}"


def _mlp(names: set[str], kept: list[SavedByOperator]) -> str:
    if "GroupedMm" in names:
        return "routed experts: tokens gathered by expert, their gated MLPs, and the router's indices"
    if any(each.operator == "Mul" and each.module == "mlp" for each in kept):
        return "three matrices: the gate before and after its function, what it multiplies, and the product"
    if "Relu" in names:
        return "relu keeps its result, which is the second linear layer's input anyway"
    return "an activation function made of operators: each keeps what its own gradient needs"


def _dropout(_names: set[str], _kept: list[SavedByOperator]) -> str:
    return "another number of dropouts"
