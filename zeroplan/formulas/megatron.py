"""Megatron-LM: states per engine, a layer without flash attention, what a pipeline stage has in flight, the loss."""

from __future__ import annotations

from zeroplan.arithmetic import ceil_div


def fp16_states(psi: int) -> int:
    """20·Ψ -- weights and gradients in 16 bit, and in fp32 master weights, their gradients and two moments: gradients
    are zeroed, not dropped [Megatron-LM docs, distributed optimizer].
    """
    return 20 * psi


def pipeline_states(psi: int) -> int:
    """14·Ψ -- weights in 16 bit, fp32 master weights and two moments; DeepSpeed drops gradients after the step
    [DeepSpeed runtime/fp16/fused_optimizer.py].
    """
    return 14 * psi


def distributed_states(psi: int, n_d: int) -> int:
    """6·Ψ + ⌈12·Ψ / N⌉ -- weights in 16 bit and a whole fp32 gradient buffer; master weights and moments are split
    [Megatron-LM docs, distributed optimizer].
    """
    return 6 * psi + ceil_div(12 * psi, n_d)


def distributed_fp16_states(psi: int, n_d: int) -> int:
    """4·Ψ + ⌈16·Ψ / N⌉ -- the same with gradients accumulated in fp16: their fp32 copies are split too [Megatron-LM
    docs, distributed optimizer].
    """
    return 4 * psi + ceil_div(16 * psi, n_d)


def whole_pair(psi: int) -> int:
    """6·Ψ -- weights in 16 bit and the fp32 gradient buffer, where the optimizer lies on the host [Megatron-LM
    docs, distributed optimizer].
    """
    return 6 * psi


def sharded_states(psi: int, n_d: int) -> int:
    """⌈14·Ψ / N⌉ -- stage 3 of 2021: 16-bit partitions, master weights and two moments; gradients are gone between
    steps [published bslogZ3].
    """
    return ceil_div(14 * psi, n_d)


def optimizer_partition(psi: int, n_d: int) -> int:
    """2·Ψ + ⌈12·Ψ / N⌉ -- whole 16-bit weights; master weights and moments are split [DeepSpeed
    runtime/zero/stage_1_and_2.py].
    """
    return 2 * psi + ceil_div(12 * psi, n_d)


def gradients(psi: int) -> int:
    """2·Ψ -- whole 16-bit gradients, alive through backward [DeepSpeed runtime/engine.py]."""
    return 2 * psi


def gradient_partition(psi: int, n_d: int) -> int:
    """⌈2·Ψ / N⌉ -- this rank's share of the 16-bit gradients [DeepSpeed runtime/zero/stage_1_and_2.py]."""
    return ceil_div(2 * psi, n_d)


def fp32_partition(psi: int, n_d: int) -> int:
    """⌈4·Ψ / N⌉ -- the fp32 copy of this rank's gradients that the optimizer reads [DeepSpeed
    runtime/zero/stage_1_and_2.py].
    """
    return ceil_div(4 * psi, n_d)


def flat_gradients(psi: int) -> int:
    """2·Ψ -- all gradients flattened for the all-reduce, even with one data-parallel rank [Megatron-LM
    megatron/model/distributed.py:allreduce_gradients].
    """
    return 2 * psi


def step_copies(psi: int) -> int:
    """6·Ψ -- gradients in 16 bit and a flat fp32 copy of them in the step of stage 0 [published bslog3Don-4].

    DeepSpeed 0.19.8 makes the copies before it joins them: 10·Ψ for a moment.
    """
    return 6 * psi


def unfused_layer(t: int, s: int, h: int, a: int, tp: int) -> int:
    """10·T·h + ⌈(24·T·h + 5·n·T·s) / τ⌉ -- a layer of 16-bit activations with dropout masks, scores kept, without
    sequence parallelism [Korthikanti §4.2].
    """
    return 10 * t * h + ceil_div(24 * t * h + 5 * a * t * s, tp)


def layer_gradients(t: int, h: int, tp: int) -> int:
    """4·T·h + ⌈8·T·h / τ⌉ -- gradients in flight inside a layer: of the residual and a branch, and of the MLP's width
    [published bslog].
    """
    return 4 * t * h + ceil_div(8 * t * h, tp)


def checkpoints(t: int, h: int, layers: int, inflight: int) -> int:
    """2·φ·L·T·h -- the input of each layer of a stage, for every micro-batch in flight, not split over the tensor-
    parallel ranks [Megatron-LM megatron/mpu/random.py:checkpoint].
    """
    return 2 * inflight * layers * t * h


def stage_outputs(t: int, h: int, inflight: int) -> int:
    """2·φ·T·h -- a stage's outputs, kept until their backward [DeepSpeed runtime/pipe/engine.py:pipe_buffers]."""
    return 2 * inflight * t * h


def weight_gradient(h: int, f: int, tp: int) -> int:
    """⌈2·h·f / τ⌉ -- the gradient of an MLP's weight before it is added to the one kept [torch
    torch/csrc/autograd/functions/accumulate_grad.h].
    """
    return ceil_div(2 * h * f, tp)


def layer_weight_gradients(psi: int) -> int:
    """2·Ψ -- weight gradients in 16 bit of one layer on their way into the fp32 buffer [published simumax]."""
    return 2 * psi


def parallel_logits(t: int, v: int, logit_bytes: int, tp: int) -> int:
    """⌈λ·T·D / τ⌉ -- logits and loss on this rank's share of the vocabulary [Megatron-DeepSpeed
    megatron/mpu/cross_entropy.py].
    """
    return ceil_div(logit_bytes * t * v, tp)


def head_backward(t: int, h: int, v: int, tp: int) -> int:
    """⌈(2·h·D + 2·T·D) / τ⌉ -- the head's weight gradient and the logits' gradient, both in 16 bit, after a fused
    cross-entropy [published simumax].
    """
    return ceil_div(2 * h * v + 2 * t * v, tp)
