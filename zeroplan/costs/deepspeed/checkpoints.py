"""Inputs of checkpointed layers on the host, as a config's activation_checkpointing says (DeepSpeed 0.19.8).

Zeroplan's jobs have one tensor-parallel rank. What the GPU keeps of them is the timeline's (autograd/emptied.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from zeroplan.costs.deepspeed.swapping import TORCH, Block
from zeroplan.costs.passes import asked
from zeroplan.errors import ContradictionError
from zeroplan.formulas import hosted
from zeroplan.ledger import Line, line
from zeroplan.specs.checkpointing import DEEPSPEED, ActivationCheckpointing
from zeroplan.specs.job import Job

SECTION, CODE = "activation_checkpointing", "runtime/activation_checkpointing/checkpointing.py"
TENSOR_PARALLEL = 1
PASS_ARGUMENTS = ("gpt2", "gpt_bigcode")
"""Families whose model calls a layer with more than one argument by position."""


def check(job: Job) -> None:
    """Raises `ContradictionError` where deepspeed.checkpointing stops, or empties what other layers still read."""
    if job.strategy.checkpointing == DEEPSPEED and (found := _refusal(job, job.strategy.activation_checkpointing)):
        raise ContradictionError(f"{SECTION}: {found}")


def _refusal(job: Job, how: ActivationCheckpointing) -> str:
    family, layers = job.model.family, job.model.shape.layers
    if how.contiguous and not how.partitions:
        return (
            "found contiguous_memory_optimization without partition_activations; DeepSpeed refuses that "
            f'({CODE}:1229), write "partition_activations": true'
        )
    if how.contiguous and (how.number or 0) < layers:
        found = "no number_checkpoints" if how.number is None else f"number_checkpoints {how.number}"
        return (
            f"found contiguous_memory_optimization with {found} for {layers} layers; DeepSpeed stops ({CODE}:390), "
            f'write "number_checkpoints": {layers}'
        )
    if how.partitions and family in PASS_ARGUMENTS:
        return (
            f"found partition_activations for {family}, whose layers get more than one argument by position; DeepSpeed "
            f"hands them one more in backward and stops ({CODE}:738), leave it out"
        )
    if how.through_pool and family == "gpt2" and job.strategy.attention == "eager":
        return (
            "found cpu_checkpointing for gpt2 with eager attention, whose layers get one mask by position; DeepSpeed "
            f"empties it after the first ({CODE}:get_offloaded_activations_for_backward), write --attention sdpa"
        )
    if how.through_pool and job.strategy.backend == "cpu":
        return (
            "found cpu_checkpointing without partition_activations on the CPU accelerator, where DeepSpeed empties the "
            f"only copy ({CODE}:get_cpu_activations_for_backward) and stops, leave it out"
        )
    return ""


def _how(job: Job) -> ActivationCheckpointing:
    return job.strategy.recomputing.inputs


def sizes(job: Job) -> tuple[int, ...]:
    """Bytes of each layer's input; none for a family whose forward is not written out."""
    try:
        return job.model.timeline.emptied(asked(job)) if _how(job).empties else ()
    except NotImplementedError:
        return ()


def pooled(job: Job) -> Iterator[Block]:
    """Page-locked buffers for all but the last input, which never leaves; the pool keeps them between steps."""
    if _how(job).through_pool:
        yield Block("activation checkpoints", job.strategy.dtype, sizes(job)[:-1], TORCH)


def waiting(job: Job) -> list[Line]:
    """From forward to backward, on a node."""
    how, each, ranks = _how(job), sizes(job), job.cluster.gpus_per_node
    if not how.partitions or not each:
        return []
    count = how.number if how.contiguous and how.number else len(each)
    shapes = line("shapes of checkpoints", hosted.shapes_on_node, "int64", layers=count, ranks=ranks)
    if not how.on_host:
        return [shapes]
    size = count * each[0] if how.contiguous else sum(each)
    name, dtype = "activation checkpoints", job.strategy.dtype
    return [line(name, hosted.checkpoints_on_node, dtype, size=size, tp=TENSOR_PARALLEL, ranks=ranks), shapes]


def crossing(job: Job) -> tuple[int, int]:
    """Bytes to the host and back, of one rank in one micro-step."""
    how, each = _how(job), sizes(job)
    if not how.on_host:
        return 0, 0
    return (sum(each), sum(each)) if how.partitions else (sum(each[:-1]), sum(each[:-2]))
