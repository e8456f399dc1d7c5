"""A job as a case to measure: the model's config.json, the ds_config.json to run, and the rank to be."""

from __future__ import annotations

from typing import Any

from zeroplan.architectures.model import model_of
from zeroplan.architectures.read import read_config
from zeroplan.costs.outside import outside
from zeroplan.deepspeed.write import ds_config
from zeroplan.errors import ContradictionError
from zeroplan.ledger import total
from zeroplan.specs.job import Job
from zeroplan.specs.optimizer import OPTIMIZERS
from zeroplan.verify import zenflow

RUNNABLE = ("adam", "adamw", "sgd", "sgd-momentum", "lion", "adagrad", "lamb", "muon")
"""Optimizers that the measurement can run without their compiled kernels."""


def as_measured(job: Job, *, real: bool) -> Job:
    """The job that a run can be compared with: a rank is named, and a shape made up from a count stands as it is.

    Raises `ContradictionError` for a model that is not transformers' own, or that computes no loss.
    """
    if job.model.approximate:
        raise ContradictionError(
            f"verify compares models that are planned exactly; {job.model.name} ({job.model.family}) is approximate"
        )
    if job.model.unplanned:
        what = "; ".join(part.what for part in job.model.unplanned)
        raise ContradictionError(f"verify runs whole steps: {what}; {job.model.unplanned[0].instead}")
    if job.model.inferred:
        config = job.model.config
        model = model_of(
            *read_config(config, job.model.name), name=job.model.name, source=job.model.source, content=config
        )
        job = job._replace(model=model)
    if real:
        job = job.at(backend="cpu")
    return job if job.rank is not None else job._replace(rank=0)


def case_of(job: Job, given: dict[str, Any] | None, *, mode: str, activations: bool = False) -> dict[str, Any]:
    """The case of a job from `as_measured`; `given` is its ds_config.json where there is one.

    `mode` is that of `zeroplan.verify.measure`. With `activations` the model also runs without
    DeepSpeed, which takes as long again.
    """
    strategy = job.strategy
    if strategy.optimizer not in RUNNABLE:
        kind = OPTIMIZERS[strategy.optimizer].config_type or "the training script's own"
        raise ContradictionError(f"verify cannot run the optimizer {kind}; write --optimizer adamw")
    if mode == "real" and (strategy.offload_optimizer or strategy.offload_param):
        raise ContradictionError("--real cannot tell GPU memory from the host's; leave it out to verify an offload")
    swaps = any(part and part.device == "nvme" for part in (strategy.offload_optimizer, strategy.offload_param))
    if mode == "cuda" and swaps:
        raise ContradictionError("--cuda runs no offload to NVMe; leave it out to verify that by sizes alone")
    if strategy.flash:
        raise ContradictionError("verify runs --attention eager or sdpa")
    if strategy.kernels != "transformers":
        raise ContradictionError("verify runs no Liger kernels, which need a GPU and Triton; leave --kernels out")
    config, steps = zenflow.looked_at(job, ds_config(job, "deepspeed", given))
    return {
        "model": job.model.config,
        "ds_config": config,
        "world": job.ranks,
        "rank": job.rank,
        "ranks_per_node": job.cluster.gpus_per_node,
        "seq": job.workload.seq,
        "micro_batch": strategy.micro_batch,
        "steps": steps,
        "mode": mode,
        "activations": activations,
        "attention": strategy.attention,
        "checkpointing": strategy.checkpointing,
        "zero_init": strategy.builds_partitioned,
        "parameter_groups": strategy.parameter_groups,
        "gpu_memory": room(job) if mode == "meta" else None,
    }


def room(job: Job) -> int | None:
    """Bytes of the card that are there for PyTorch; None where its memory is not known."""
    capacity = job.cluster.capacity
    return None if capacity is None else max(0, capacity - total(outside(job)))
