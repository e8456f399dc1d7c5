"""Activations and logits of one micro-batch, in closed form from the shape of a layer.

Exact for llama in transformers 5.23 but for temporaries; other families differ by their operators, so all of it
is labelled by its weakest part until each operator is counted.
"""

from __future__ import annotations

from typing import NamedTuple

from zeroplan.formulas import activations as forms
from zeroplan.ledger import Line, line
from zeroplan.specs.job import Job


class ClosedFormActivations(NamedTuple):
    """Lines alive beside the held ones at the moments that can be the peak."""

    forward: tuple[Line, ...]
    """At the loss, when forward holds most."""
    loss_backward: tuple[Line, ...]
    """As backward starts: everything saved, and the loss's gradients."""
    layer_backward: tuple[Line, ...]
    """Inside the first layer's backward: all else has been freed."""


def activations(job: Job) -> ClosedFormActivations:
    """What forward keeps, and what the loss and a layer's backward add."""
    shape, tokens, w = job.model.shape, job.tokens, job.strategy.element_bytes
    layer = layer_saved(job)
    every = job.strategy.recomputing.every
    number_checkpointed = -(-shape.layers // every) if every else 0
    kept = []
    if number_checkpointed:
        kept.append(line("checkpoints", forms.checkpoints, t=tokens, h=shape.hidden, layers=number_checkpointed, w=w))
    if number_checkpointed < shape.layers:
        kept.append(
            line("activations", forms.layers_saved, layer_bytes=layer, layers=shape.layers - number_checkpointed)
        )
    saved = tuple(kept) if every else ()
    kept.append(line("final norm and head input", forms.head_input, t=tokens, h=shape.hidden, w=w))
    inner = line("one layer at work", forms.one_layer, layer_bytes=layer)
    flight = line("activation gradients", forms.layer_gradients, t=tokens, f=width_at_work(job), h=shape.hidden, w=w)
    return ClosedFormActivations(
        forward=(*kept, _logits(job, 10 if w == 2 else 8)),
        loss_backward=(*kept, _logits(job, 12)),
        layer_backward=(*saved, inner, flight),
    )


def layer_saved(job: Job) -> int:
    """Bytes that one layer keeps for backward without checkpointing."""
    shape, t, w = job.model.shape, job.tokens, job.strategy.element_bytes
    norm = forms.rms_norm(t, shape.hidden, w) if shape.rms_norm else forms.layer_norm(t, shape.hidden, w)
    return shape.norms * norm + _attention_saved(job) + _mlp_saved(job)


def width_at_work(job: Job) -> int:
    """The width of the MLP one token goes through."""
    shape = job.model.shape
    return shape.ffn * max(1, shape.experts_per_token) + shape.shared_ffn


def _attention_saved(job: Job) -> int:
    shape, t, w = job.model.shape, job.tokens, job.strategy.element_bytes
    if job.strategy.attention == "eager" and job.strategy.checkpointing != "selective":
        return forms.attention_eager(t, job.workload.seq, shape.queries, shape.heads, w)
    return forms.attention_fused(t, shape.queries, shape.keys, shape.heads, w)


def _mlp_saved(job: Job) -> int:
    shape, t, w = job.model.shape, job.tokens, job.strategy.element_bytes
    mlp = forms.gated_mlp if shape.gated else forms.plain_mlp
    if not shape.experts:
        return mlp(t, shape.ffn, w)
    routed = forms.routed_experts(t, shape.hidden, shape.ffn, shape.experts, shape.experts_per_token, w)
    return routed + (mlp(t, shape.shared_ffn, w) if shape.shared_ffn else 0)


def _logits(job: Job, per_logit: int) -> Line:
    return line("logits and loss", forms.logits, t=job.tokens, v=job.model.shape.vocab, logit_bytes=per_logit)
