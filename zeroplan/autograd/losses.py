"""Losses over logits, as transformers' functions (loss/loss_utils.py) and BERT's classes ask for them."""

from __future__ import annotations

from zeroplan.autograd.autocast import widened
from zeroplan.autograd.elementwise import to
from zeroplan.autograd.graph import Needs, keep, operator, result
from zeroplan.autograd.reductions import log_softmax
from zeroplan.autograd.strides import row_major
from zeroplan.autograd.tensor import Tensor, empty, empty_like, given
from zeroplan.autograd.views import contiguous, viewed

LABEL = 8
"""Bytes of a label (int64)."""
FLOAT = 4


def causal_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy of each next token: logits in fp32, labels padded by one and shifted."""
    logits = to(logits, FLOAT)
    batch, seq = labels.shape
    padded = empty(logits.memory, (batch, seq + 1), LABEL)
    shifted = contiguous(padded.seen_as((batch, seq), padded.strides))
    logits = viewed(logits, (batch * seq, logits.shape[-1]))
    return cross_entropy(logits, viewed(shifted, (batch * seq,)))


def masked_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy of the tokens that were masked; of the others the labels say so, and all are computed."""
    return cross_entropy(viewed(logits, (-1, logits.shape[-1])), viewed(labels, (-1,)))


def token_loss(logits: Tensor, labels: Tensor, *, upcasts: bool) -> Tensor:
    """The mean cross-entropy of every token's label; `upcasts`: in fp32."""
    logits, labels = viewed(logits, (-1, logits.shape[-1])), viewed(labels, (-1,))
    return cross_entropy(to(logits, FLOAT) if upcasts else logits, labels)


def sequence_loss(pooled: Tensor, problem: str, *, on_cpu: bool) -> Tensor:
    """The loss of one row of logits a sequence: mean cross-entropy, or the squared error of a single value.

    Labels come with the batch: whole numbers, or values of the logits' dtype.
    """
    batch, labels = pooled.shape
    if problem == "regression":
        shape = (batch,) if batch > 1 else ()
        return squared_error(viewed(pooled, shape), given(pooled.memory, shape, pooled.width), on_cpu=on_cpu)
    return cross_entropy(viewed(pooled, (-1, labels)), given(pooled.memory, (batch,), LABEL))


def squared_error(values: Tensor, targets: Tensor, *, on_cpu: bool) -> Tensor:
    """Mean of (value - target)², both kept; on the CPU the result lies where the squares would."""
    node = operator("MseLossBackward", _squared_error, (values,), (values, targets))
    return result(node, empty(values.memory, values.shape if on_cpu else (), values.width).seen_as((), ()))


def _squared_error(_gradient: Tensor, values: Tensor, _targets: Tensor, _needs: Needs) -> Tensor:
    return empty_like(values)


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean of -log p over [rows, classes], in the dtype of the logits.

    torch names that dtype to log_softmax, so that autocast casts only what nll_loss is given.
    """
    logs = widened(log_softmax(logits))
    node = operator("NllLossBackward", _nll_loss, (logs,), (logs, targets))
    loss = empty(logs.memory, (), logs.width)
    keep(node, empty(logs.memory, (), logs.width))  # the sum of the rows' weights
    return result(node, loss)


def _nll_loss(gradient: Tensor, logs: Tensor, _targets: Tensor, _weight: Tensor, _needs: Needs) -> Tensor:
    return empty(gradient.memory, logs.shape, logs.width, row_major(logs.shape))
