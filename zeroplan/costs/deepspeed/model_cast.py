"""Replay of the cast of a model that was built in another dtype than it trains in (DeepSpeed 0.19.8
runtime/engine.py:_cast_module_mixed_precision): each parameter is copied and takes the copy's place, then the whole
model goes to the GPU, if it is not there yet.
"""

from __future__ import annotations

from zeroplan.costs.allocations import AllocationTracker
from zeroplan.costs.deepspeed.layout import tensor_sizes
from zeroplan.formulas import hosted, moments
from zeroplan.ledger import DTYPE_BYTES, Line, line
from zeroplan.specs.job import Job


def with_model(job: Job) -> AllocationTracker:
    """The GPU with the model on it as `initialize` goes on with it."""
    strategy, tracker = job.strategy, AllocationTracker()
    if strategy.built_on == "gpu":
        _cast(job, tracker)
    else:
        tracker.allocate(moments.model_as_built, strategy.dtype, job.model.parameters)
    return tracker


def on_host(job: Job) -> list[Line]:
    """The models that a node's processes build, and their copies, where most bytes are alive."""
    if job.strategy.builds_partitioned or job.strategy.built_on == "gpu":
        return []
    tracker = AllocationTracker()
    _cast(job, tracker)
    return [
        line("models built", hosted.built_model, dtype, psi=elements, w=DTYPE_BYTES[dtype],
             ranks=job.cluster.gpus_per_node)
        for (_rule, dtype), elements in tracker.peak.items() if elements
    ]  # fmt: skip


def _cast(job: Job, tracker: AllocationTracker) -> None:
    strategy = job.strategy
    tracker.allocate(moments.model_as_built, strategy.built_dtype, job.model.parameters)
    if strategy.is_cast:
        for size in tensor_sizes(job):
            tracker.allocate(moments.model_as_built, strategy.dtype, size)
            tracker.free(moments.model_as_built, strategy.built_dtype, size)
