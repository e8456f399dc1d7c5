"""A 16-bit layer with fused norms and flash attention, as TransformerEngine, apex and Liger run it, and its parts."""

from __future__ import annotations

from zeroplan.arithmetic import ceil_div


def swiglu_layer(t: int, h: int, q: int, kv: int, f: int, a: int, tp: int) -> int:
    """⌈(8·T·h + 4·T·q + 4·T·k + 6·T·f + 4·T·n + 8·T) / τ⌉ -- norms keep input and output in 16 bit, attention q, k,
    v, its output and the log-sum-exp, a fused SwiGLU gate, up and their product; with sequence parallelism all of it
    is split [published galv].
    """
    return ceil_div(8 * t * h + 4 * t * q + 4 * t * kv + 6 * t * f + 4 * t * a + 8 * t, tp)


def unfused_swiglu_layer(t: int, h: int, q: int, kv: int, f: int, a: int, tp: int) -> int:
    """⌈(8·T·h + 4·T·q + 4·T·k + 8·T·f + 4·T·n + 8·T) / τ⌉ -- the same with silu's output kept beside gate, up and
    their product [torch derivatives.yaml silu, mul].
    """
    return ceil_div(8 * t * h + 4 * t * q + 4 * t * kv + 8 * t * f + 4 * t * a + 8 * t, tp)


def gelu_layer(t: int, h: int, q: int, kv: int, f: int, a: int, tp: int) -> int:
    """⌈(8·T·h + 4·T·q + 4·T·k + 4·T·f + 4·T·n + 8·T) / τ⌉ -- the same with a plain MLP: GELU's input and output
    [torch derivatives.yaml gelu].

    With f = 4·h and k = q = h these are 32·T·h and small change.
    """
    return ceil_div(8 * t * h + 4 * t * q + 4 * t * kv + 4 * t * f + 4 * t * a + 8 * t, tp)


def replicated_norms(t: int, h: int, tp: int) -> int:
    """8·T·h - ⌈8·T·h / τ⌉ -- what the norms' inputs and outputs hold more without sequence parallelism
    [Korthikanti §4.2.1].
    """
    return 8 * t * h - ceil_div(8 * t * h, tp)


def checkpoints(t: int, h: int, layers: int, inflight: int, tp: int) -> int:
    """⌈2·φ·L·T·h / τ⌉ -- the input of each layer, split over the sequence by sequence parallelism [Korthikanti §5]."""
    return ceil_div(2 * inflight * layers * t * h, tp)


def head_input(t: int, h: int, tp: int) -> int:
    """⌈4·T·h / τ⌉ -- the final norm's input and output, which the head keeps, in 16 bit [published mleng]."""
    return ceil_div(4 * t * h, tp)


def residual_gradients(t: int, h: int, tp: int) -> int:
    """⌈4·T·h / τ⌉ -- gradients of the residual stream and of the branch beside it [torch
    torch/csrc/autograd/engine.cpp].
    """
    return ceil_div(4 * t * h, tp)


def liger_loss(t: int, h: int, v: int) -> int:
    """4·T·h + 2·h·D -- Liger's fused head and loss: gradients of its input and of the head's weight, made in forward,
    and one chunk of logits, about as large as the input [Liger ops/fused_linear_cross_entropy.py].
    """
    return 4 * t * h + 2 * h * v


def cross_entropy_backward(t: int, v: int, w: int) -> int:
    """3·w·T·D -- torch's cross-entropy in the logits' own precision: log-probabilities, their gradient, and the
    logits' gradient [torch derivatives.yaml _log_softmax, nll_loss].
    """
    return 3 * w * t * v
