"""Bytes at least beside the buffers that gradients are copied into, without a replay of all their reduction.

runtime/zero/stage_1_and_2.py of DeepSpeed 0.19.8: the first gradient of a micro-step makes the buffers, two where
reduction overlaps. Stage 2 frees them when backward ends; stage 1 keeps them, and all gradients, to the step's end.
"""

from __future__ import annotations

from zeroplan.costs.deepspeed.backward_beginning import backward_beginning, bare_backward_beginning
from zeroplan.costs.deepspeed.layout import tensor_sizes
from zeroplan.costs.deepspeed.resident import DTYPE_BYTES
from zeroplan.costs.deepspeed.stages_1_2_backward import bucket_elements, gradient_dtype
from zeroplan.costs.ledger import resident_at_least
from zeroplan.costs.passes import pass_peak, timeline_of
from zeroplan.specs.job import Job


def beside_buckets(job: Job) -> int:
    """Of stages 1 and 2: what is held, buffers and gradients, and the model's own; 0 where nothing is known."""
    strategy = job.strategy
    if strategy.stage not in (1, 2) or strategy.runs_bf16_optimizer or strategy.selective:
        return 0
    if (found := timeline_of(job)) is None:
        return 0
    backward, at = found.backward, found.backward.ready.get(job.execution.gradients[0])
    width = DTYPE_BYTES[gradient_dtype(strategy)]
    buffers = width * bucket_elements(job)
    own = [] if at is None else [buffers + max([backward.now[at], *backward.most[at + 1 :]])]
    if strategy.stage == 1:
        kept = buffers + width * sum(map(tensor_sizes(job).__getitem__, job.execution.gradients))
        own += [kept + found.forward.fullest[0]] * (strategy.micro_steps > 1)
        own += [kept + backward.fullest[0]] * (strategy.micro_steps > 2)
    return resident_at_least(job) + max(own, default=0)


def with_first_gradients(job: Job, *, gathered: bool) -> int:
    """Of stage 3 beside what is held: the fullest moment while the first gradients of a backward are reduced.

    Not `gathered`: with the parameters of the module at work alone, whatever thresholds and prefetched buckets are.
    """
    if (found := timeline_of(job)) is None:
        return 0
    return pass_peak(backward_beginning(job) if gathered else bare_backward_beginning(job), found.backward).bytes
