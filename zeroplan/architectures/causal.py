"""From the decoder's output to the loss, as every causal language model of transformers does it."""

from __future__ import annotations

from zeroplan.architectures.forward_run import ForwardRun
from zeroplan.architectures.module import Module
from zeroplan.autograd.elementwise import mul_scalar, tanh
from zeroplan.autograd.losses import causal_loss
from zeroplan.autograd.tensor import Tensor


def next_token_loss(
    run: ForwardRun, body: Module, head: Module, ids: Tensor, *, softcap: bool = False, budget: int = 1
) -> Tensor:
    """The loss of predicting each next token; the body's output and the logits live as long as this runs.

    `budget`: how many times its input Liger's fused loss may have of logits.
    """
    x = body(run, ids)
    if run.fuses_loss:
        from zeroplan.autograd import liger

        return liger.causal_loss(x, run.parameter(head.parameters["weight"]), ids, budget=budget)
    logits: Tensor = head(run, x)
    if softcap:
        logits = mul_scalar(logits)
        logits = tanh(logits)
        logits = mul_scalar(logits)
    return causal_loss(logits, ids)
