"""Losses over logits, as transformers' functions (loss/loss_utils.py) and BERT's classes ask for them."""

from __future__ import annotations

from zeroplan.autograd.autocast import cast_to_fp32
from zeroplan.autograd.elementwise import to
from zeroplan.autograd.graph import operator, result, save_for_backward
from zeroplan.autograd.reductions import log_softmax
from zeroplan.autograd.strides import contiguous_strides
from zeroplan.autograd.tensor import Needs, Tensor, empty, empty_like, given
from zeroplan.autograd.views import contiguous, view

LABEL = 8
"""Bytes of a label (int64)."""
FLOAT = 4


def causal_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy of each next token: logits in fp32, labels padded by one and shifted."""
    logits = to(logits, FLOAT)
    batch, seq = labels.shape
    padded = empty(logits.memory, (batch, seq + 1), LABEL)
    shifted = contiguous(padded.as_strided((batch, seq), padded.strides))
    logits = view(logits, (batch * seq, logits.shape[-1]))
    return cross_entropy(logits, view(shifted, (batch * seq,)))


def masked_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy of the tokens that were masked; of the others the labels say so, and all are computed."""
    return cross_entropy(view(logits, (-1, logits.shape[-1])), view(labels, (-1,)))


def token_loss(logits: Tensor, labels: Tensor, *, upcasts: bool) -> Tensor:
    """The mean cross-entropy of every token's label; `upcasts`: in fp32."""
    logits, labels = view(logits, (-1, logits.shape[-1])), view(labels, (-1,))
    return cross_entropy(to(logits, FLOAT) if upcasts else logits, labels)


def sequence_loss(pooled: Tensor, problem: str, *, on_cpu: bool) -> Tensor:
    """The loss of one row of logits a sequence: mean cross-entropy, or the squared error of a single value.

    Labels come with the batch: whole numbers, or values of the logits' dtype.
    """
    batch, labels = pooled.shape
    if problem == "regression":
        shape = (batch,) if batch > 1 else ()
        return mse_loss(view(pooled, shape), given(pooled.memory, shape, pooled.width), on_cpu=on_cpu)
    return cross_entropy(view(pooled, (-1, labels)), given(pooled.memory, (batch,), LABEL))


def mse_loss(values: Tensor, targets: Tensor, *, on_cpu: bool) -> Tensor:
    """Mean of (value - target)², both kept; on the CPU the result lies where the squares would."""
    node = operator("MseLossBackward", _mse_loss_backward, (values,), (values, targets))
    return result(node, empty(values.memory, values.shape if on_cpu else (), values.width).as_strided((), ()))


def _mse_loss_backward(_gradient: Tensor, values: Tensor, _targets: Tensor, _needs: Needs) -> Tensor:
    return empty_like(values)


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean of -log p over [rows, classes], in the dtype of the logits.

    torch names that dtype to log_softmax, so that autocast casts only what nll_loss is given.
    """
    logs = cast_to_fp32(log_softmax(logits))
    node = operator("NllLossBackward", _nll_loss_backward, (logs,), (logs, targets))
    loss = empty(logs.memory, (), logs.width)
    save_for_backward(node, empty(logs.memory, (), logs.width))  # the sum of the rows' weights
    return result(node, loss)


def _nll_loss_backward(gradient: Tensor, logs: Tensor, _targets: Tensor, _weight: Tensor, _needs: Needs) -> Tensor:
    return empty(gradient.memory, logs.shape, logs.width, contiguous_strides(logs.shape))
