"""Inputs of checkpointed layers on the host, as a config's activation_checkpointing says (DeepSpeed 0.19.8).

Zeroplan's jobs have one tensor-parallel rank. What the GPU keeps of them is the timeline's
(autograd/offloaded_inputs.py).
"""

from __future__ import annotations

from collections.abc import Iterator

from zeroplan.costs.deepspeed.nvme_swap import TORCH, HostAllocation
from zeroplan.costs.passes import timeline_request
from zeroplan.errors import ContradictionError
from zeroplan.formulas import hosted
from zeroplan.ledger import Line, line
from zeroplan.specs.checkpointing import ActivationCheckpointing
from zeroplan.specs.job import Job

TENSOR_PARALLEL = 1


def _how(job: Job) -> ActivationCheckpointing:
    return job.strategy.recomputing.inputs


def sizes(job: Job) -> tuple[int, ...]:
    """Bytes of each layer's input. Raises `ContradictionError` for a family whose forward is not written out."""
    try:
        return job.model.profile.offloaded_inputs(timeline_request(job)) if _how(job).empties else ()
    except NotImplementedError:
        raise ContradictionError(
            f"activation_checkpointing: found for {job.model.family}, whose activations are a closed form that has "
            "nothing of it; leave it out"
        ) from None


def pooled(job: Job) -> Iterator[HostAllocation]:
    """Page-locked buffers for all but the last input, which never leaves; the pool keeps them between steps."""
    if _how(job).through_pool:
        yield HostAllocation("activation checkpoints", job.strategy.dtype, sizes(job)[:-1], TORCH)


def inputs_on_host(job: Job) -> list[Line]:
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


def input_copies(job: Job) -> tuple[int, int]:
    """Bytes to the host and back, of one rank in one micro-step."""
    how, each = _how(job), sizes(job)
    if not how.on_host:
        return 0, 0
    return (sum(each), sum(each)) if how.partitions else (sum(each[:-1]), sum(each[:-2]))
