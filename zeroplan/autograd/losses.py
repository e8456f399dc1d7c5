"""Cross-entropy over logits, as transformers' loss/loss_utils.py:ForCausalLMLoss asks torch for it."""

from __future__ import annotations

from zeroplan.autograd.elementwise import contiguous, to
from zeroplan.autograd.graph import Needs, operator, result
from zeroplan.autograd.reductions import log_softmax
from zeroplan.autograd.tensor import Sizes, Tensor, empty, row_major
from zeroplan.autograd.views import viewed

LABEL = 8
"""Bytes of a label (int64)."""
FLOAT = 4


def causal_loss(logits: Tensor, labels: Tensor) -> Tensor:
    """The mean cross-entropy of each next token: logits in fp32, labels padded by one and shifted."""
    logits = to(logits, FLOAT)
    batch, seq = labels.shape
    padded = empty(logits.memory, (batch, seq + 1), LABEL)
    shifted = contiguous(Tensor(padded.storage, (batch, seq), padded.strides, LABEL, padded.memory))
    logits = viewed(logits, (batch * seq, logits.shape[-1]))
    return cross_entropy(logits, viewed(shifted, (batch * seq,)))


def cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    """Mean of -log p over [rows, classes]."""
    logs = log_softmax(logits)
    weight: Tensor
    memory = logs.memory
    node = operator("NllLossBackward", _nll_loss, (logs,), (logs, targets), (logs.shape,))
    loss = empty(memory, (), FLOAT)
    weight = empty(memory, (), FLOAT)
    if node is not None:
        pack = memory.checkpoint.pack if memory.checkpoint else None
        node.keep(weight, pack)
    return result(node, loss)


def _nll_loss(gradient: Tensor, logs: Tensor, _targets: Tensor, *rest: object) -> Tensor:
    return empty(gradient.memory, logs.shape, logs.width, row_major(logs.shape))



