"""Cross-entropy over logits, as transformers' ForCausalLMLoss (loss/loss_utils.py) and BertForMaskedLM ask for it."""

from __future__ import annotations

from zeroplan.autograd.autocast import widened
from zeroplan.autograd.elementwise import to
from zeroplan.autograd.graph import Needs, keep, operator, result
from zeroplan.autograd.reductions import log_softmax
from zeroplan.autograd.strides import row_major
from zeroplan.autograd.tensor import Tensor, empty
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
