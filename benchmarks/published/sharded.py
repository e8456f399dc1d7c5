"""PyTorch's FSDP: torchtitan, and llm-foundry on composer."""

from __future__ import annotations

import re

from benchmarks.published.constants import (
    LOGIT_FUSED,
    LOGIT_LOSS_PARALLEL,
    LOGIT_TORCHTITAN,
    RESERVED,
    RESERVED_COMPILED,
)
from benchmarks.published.prediction import Moment, Prediction, prediction
from benchmarks.published.rows import Row
from benchmarks.published.shapes import Shape, shape, stages
from zeroplan.formulas import activations, fully_sharded, fused, megatron
from zeroplan.ledger import Line, line


def torchtitan(row: Row) -> Prediction:
    """Raises `UncomputableError` for what a row leaves open."""
    one = shape(row)
    ranks = []
    pipelined = row.pp > 1
    for stage in stages(row, one):
        psi, tp, t, h = stage.parameters, row.tp, row.tokens, one.hidden
        if pipelined:  # pipeline_parallel_microbatches is the pipeline's degree by default
            t //= row.pp
        layer = one.layer // tp
        held = [line("fp32 shards", fully_sharded.shards, psi=psi, k=16, n_d=row.ranks)]
        in_flight = row.pp if pipelined else 1
        kept = _kept(row, one, t, stage.layers * in_flight)
        at_work = _at_work(row, one, t)
        if pipelined:
            gathered = [
                line("gathered parameters", megatron.gradients, psi=psi),
                line("unsharded gradients", fully_sharded.whole_gradients, psi=psi, g=4),
            ]
        else:
            gathered = [
                line("embedding and head", fully_sharded.root_group, h=h, v=one.vocab, copies=2, tp=tp),
                line("gathered layers", fully_sharded.gathered_layers, psi=layer, copies=2),
            ]
        moments = [
            Moment("backward of a layer", (
                *held, *gathered, *kept, *at_work,
                *([] if pipelined else [line("reduced layer", fully_sharded.reduced_layer, psi=layer)]),
                line("head's gradient", fully_sharded.head_gradient, h=h, v=one.vocab, tp=tp),
            )),
        ]  # fmt: skip
        if stage.last:
            per_logit = LOGIT_LOSS_PARALLEL if tp > 1 else LOGIT_TORCHTITAN
            moments.append(Moment("loss", (
                *held, *gathered, *kept, line("head input", fused.head_input, t=t, h=h, tp=1),
                line("logits", megatron.parallel_logits, t=t, v=one.vocab, logit_bytes=int(per_logit.value), tp=tp),
            )))  # fmt: skip
        ranks.append((held, moments))
    ratio = RESERVED_COMPILED if "compile" in row.lower("framework") else RESERVED
    assumed = ["the maximum is taken while sharded gradients are there"]
    return prediction("torchtitan", ranks, ratio=ratio, assumed=assumed)


def _kept(row: Row, one: Shape, t: int, layers: int) -> list[Line]:
    tp = row.tp
    widths = {"t": t, "h": one.hidden, "q": one.queries, "kv": one.keys, "f": one.ffn, "a": one.heads, "tp": tp}
    if row.checkpointing == "full":
        return [line("checkpoints", fused.checkpoints, t=t, h=one.hidden, layers=layers, inflight=1, tp=tp)]
    rule = fully_sharded.selective_layer if row.checkpointing == "selective" else fused.unfused_swiglu_layer
    return [line("activations", activations.layers_saved, layer_bytes=rule(**widths), layers=layers)]


def _at_work(row: Row, one: Shape, t: int) -> list[Line]:
    widths = {"t": t, "h": one.hidden, "q": one.queries, "kv": one.keys, "f": one.ffn, "a": one.heads, "tp": row.tp}
    recomputed = [] if row.checkpointing == "none" else [line("layer recomputed", fused.unfused_swiglu_layer, **widths)]
    return [*recomputed, line("gradients in flight", fused.residual_gradients, t=t, h=one.hidden, tp=row.tp)]


def llm_foundry(row: Row) -> Prediction:
    """MPT: norms in 16 bit, flash attention, a fused loss; parameters, gradients and moments sharded."""
    one = shape(row)
    t, h, n = row.tokens, one.hidden, row.ranks
    per_parameter = 8 if re.search(r"pure", row.lower("precision")) else 16
    held = [line("shards", fully_sharded.shards, psi=one.parameters, k=per_parameter, n_d=n)]
    widths = {"t": t, "h": h, "q": one.queries, "kv": one.keys, "f": one.ffn, "a": one.heads, "tp": 1}
    layer = line("layer", fused.swiglu_layer if one.gated else fused.gelu_layer, **widths)
    if row.checkpointing == "full":
        kept = line("checkpoints", activations.checkpoints, t=t, h=h, layers=one.layers, w=2)
        inner = [layer]
    else:
        kept = line("activations", activations.layers_saved, layer_bytes=layer.bytes, layers=one.layers)
        inner = []
    if row.stage == 3:
        table = line("embedding", fully_sharded.root_group, h=h, v=one.vocab, copies=1 if one.tied else 2, tp=1)
        gathered = [table, line("gathered layers", fully_sharded.gathered_layers, psi=one.layer, copies=2)]
    else:
        gathered = [line("gathered parameters", megatron.gradients, psi=one.parameters)]
    logits = line("logits", activations.logits, t=t, v=one.vocab, logit_bytes=int(LOGIT_FUSED.value))
    reduced = line("reduced layer", fully_sharded.reduced_layer, psi=one.layer)
    flight = line("gradients in flight", fused.residual_gradients, t=t, h=h, tp=1)
    moments = [
        Moment("loss", (*held, *gathered, kept, logits)),
        Moment("backward of a layer", (*held, *gathered, kept, *inner, flight, reduced)),
    ]
    return prediction("llm-foundry", [(held, moments)])
