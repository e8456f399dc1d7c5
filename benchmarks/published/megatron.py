"""Megatron-LM alone, under DeepSpeed's pipeline or ZeRO, and Megatron core with its distributed optimizer."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from benchmarks.published.constants import (
    LIVE_PARAMETERS,
    LOGIT_MEGATRON,
    LOGIT_MEGATRON_DEEPSPEED,
    LOGIT_PIPELINE,
    OUTSIDE,
    OUTSIDE_V100,
    RESERVED,
    RESERVED_2021,
)
from benchmarks.published.prediction import Moment, Prediction, prediction
from benchmarks.published.rows import Row
from benchmarks.published.shapes import Shape, Stage, shape, stages
from zeroplan.formulas import activations, fused, megatron, states, transient_stage_3
from zeroplan.ledger import Line, line

BUCKET = 500_000_000


def deepspeed(row: Row) -> bool:
    """Whether DeepSpeed runs the step, or PaddleNLP's sharding, whose stages split the same states."""
    words = row.lower("framework")
    return bool(re.search(r"deepspeed|paddle", words)) and "use_deepspeed=0" not in words


def of_2021(row: Row) -> bool:
    """Scores are kept: Megatron-LM and its forks before flash attention, on torch 1."""
    words = row.lower("attention_impl")
    return not row.flash or "fused softmax" in words


def predict(row: Row) -> Prediction:
    one = shape(row)
    ranks = [_rank(row, one, stage) for stage in stages(row, one)]
    old = of_2021(row)
    assumed = [] if row.column("checkpointing") else ["no checkpointing, which the row does not state"]
    if not row.sequence_parallel and row.tp > 1 and not old:
        assumed.append("no sequence parallelism")
    return prediction(
        "megatron", ranks, ratio=RESERVED_2021 if old else RESERVED,
        outside=OUTSIDE_V100 if "v100" in row.lower("gpu_type") else OUTSIDE, assumed=assumed,
    )  # fmt: skip


def _rank(row: Row, one: Shape, stage: Stage) -> tuple[list[Line], list[Moment]]:
    states = _states(row, stage)
    held, through_backward = [*states.held, *_kept_outputs(row, one, stage)], states.backward
    kept = _kept(row, one, stage)
    layer = [*held, *through_backward, *kept, *_layer_backward(row, one)]
    moments = [Moment("backward of a layer", tuple(layer)), Moment("step", (*held, *states.step))]
    if stage.last:
        last = _kept(row, one, stage._replace(in_flight=1))
        moments.append(Moment("loss", (*held, *through_backward, *last, *_loss(row, one))))
    return held, moments


class States(NamedTuple):
    held: list[Line]
    """Between steps."""
    backward: list[Line]
    """Beside it through backward."""
    step: list[Line]
    """Beside it in the step."""


def _states(row: Row, stage: Stage) -> States:
    psi, n = stage.parameters, row.ranks
    if deepspeed(row):
        return _zero_states(row, psi, n)
    if of_2021(row):
        flat = [line("flat gradients", megatron.flat_gradients, psi=psi)]
        return States([line("fp16 states", megatron.fp16_states, psi=psi)], flat, flat)
    if row.offloads_optimizer:
        return States([line("parameters and gradients", megatron.whole_pair, psi=psi)], [], [])
    fp16 = row.lower("precision").startswith("fp16")
    rule = megatron.distributed_fp16_states if fp16 else megatron.distributed_states
    return States([line("states", rule, psi=psi, n_d=n if row.stage else 1)], [], [])


def _zero_states(row: Row, psi: int, n: int) -> States:
    whole = line("gradients", megatron.gradients, psi=psi)
    share = line("gradient partition", megatron.gradient_partition, psi=psi, n_d=n)
    elements = min(row.setting("reduce_?bucket") or BUCKET, psi)
    bucket = line("reduce bucket", states.reduce_bucket, bucket=elements, w=2)
    if row.stage == 0:
        held = line("states", megatron.pipeline_states, psi=psi)
        return States([held], [whole], [line("step copies", megatron.step_copies, psi=psi)])
    if row.stage == 3:
        live = min(psi, int(LIVE_PARAMETERS.value))
        gather = line("gathered parameters", transient_stage_3.gathered_parameters, alive=live, w=2)
        held = line("states", megatron.sharded_states, psi=psi, n_d=n)
        return States([held], [share, bucket, gather], [share, share, share])
    if row.offloads_optimizer:
        return States([line("parameters", megatron.gradients, psi=psi)], [bucket], [])
    held = line("states", megatron.optimizer_partition, psi=psi, n_d=n)
    fp32 = line("fp32 gradient partition", megatron.fp32_partition, psi=psi, n_d=n)
    if row.stage == 1:
        return States([held], [whole], [whole, share, fp32])
    return States([held], [share, bucket], [share, share, fp32])


def _kept_outputs(row: Row, one: Shape, stage: Stage) -> list[Line]:
    """DeepSpeed's pipeline keeps what its last stage has put out."""
    if not (stage.last and of_2021(row) and deepspeed(row) and row.stage < 2):
        return []
    per_logit = int(LOGIT_PIPELINE.value)
    return [line("outputs", megatron.parallel_logits, t=row.tokens, v=one.vocab, logit_bytes=per_logit, tp=row.tp)]


def _kept(row: Row, one: Shape, stage: Stage) -> list[Line]:
    """Activations that forward has left."""
    t, old = row.tokens, of_2021(row)
    inflight = stage.in_flight
    lines = []
    if row.checkpointing == "full":
        layers = 1 if row.offloads_checkpoints else stage.layers
        if old or not row.sequence_parallel:
            lines.append(line("checkpoints", megatron.checkpoints, t=t, h=one.hidden, layers=layers, inflight=inflight))
        else:
            lines.append(
                line("checkpoints", fused.checkpoints, t=t, h=one.hidden, layers=layers, inflight=inflight, tp=row.tp)
            )
    else:
        per_layer = sum(entry.bytes for entry in _layer(row, one))
        layers = stage.layers * inflight
        lines.append(line("activations", activations.layers_saved, layer_bytes=per_layer, layers=layers))
    if row.pp > 1 and old:
        lines.append(line("stage outputs", megatron.stage_outputs, t=t, h=one.hidden, inflight=inflight))
    return lines


def _layer(row: Row, one: Shape) -> list[Line]:
    """What one layer keeps without checkpointing."""
    t, tp = row.tokens, row.tp
    if of_2021(row):
        return [line("layer", megatron.unfused_layer, t=t, s=row.seq, h=one.hidden, a=one.heads, tp=tp)]
    rule: Callable[..., int] = fused.swiglu_layer
    if not one.gated:
        rule = fused.gelu_layer
    elif deepspeed(row):
        rule = fused.unfused_swiglu_layer
    widths = {"t": t, "h": one.hidden, "q": one.queries, "kv": one.keys, "f": one.ffn, "a": one.heads}
    lines = [line("layer", rule, **widths, tp=tp)]
    if tp > 1 and not row.sequence_parallel:
        lines.append(line("replicated norms", fused.replicated_norms, t=t, h=one.hidden, tp=tp))
    return lines


def _layer_backward(row: Row, one: Shape) -> list[Line]:
    """What a layer's backward adds."""
    t, h, tp = row.tokens, one.hidden, row.tp
    lines: list[Line] = []
    if row.checkpointing == "full":
        lines += _layer(row, one) * (row.setting("checkpoint-num-layers") or 1)
    if of_2021(row):
        lines.append(line("gradients in flight", megatron.layer_gradients, t=t, h=h, tp=tp))
        if not deepspeed(row):
            lines.append(line("a weight's gradient", megatron.weight_gradient, h=h, f=one.ffn, tp=tp))
    elif not deepspeed(row):
        lines.append(line("a layer's weight gradients", megatron.layer_weight_gradients, psi=one.layer // tp))
    return lines


def _loss(row: Row, one: Shape) -> list[Line]:
    t, tp = row.tokens, row.tp
    if not of_2021(row) and not deepspeed(row):
        lines = [
            line("a layer's weight gradients", megatron.layer_weight_gradients, psi=one.layer // tp),
            line("head's backward", megatron.head_backward, t=t, h=one.hidden, v=one.vocab, tp=tp),
        ]
        if "fused cross entropy" in row.lower("notes"):
            return lines
        return [*lines, line("fp32 logits", megatron.parallel_logits, t=t, v=one.vocab, logit_bytes=4, tp=tp)]
    per_logit = LOGIT_MEGATRON_DEEPSPEED if deepspeed(row) else LOGIT_MEGATRON
    return [line("logits", megatron.parallel_logits, t=t, v=one.vocab, logit_bytes=int(per_logit.value), tp=tp)]
