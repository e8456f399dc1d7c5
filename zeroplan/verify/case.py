"""A job as a case to measure: the model's config.json, the ds_config.json to run, and the rank to be."""

from __future__ import annotations

from typing import Any

from zeroplan.architectures.adapters import with_adapter
from zeroplan.architectures.heads import PADS
from zeroplan.architectures.model import model_of
from zeroplan.architectures.quantized import with_quantization
from zeroplan.architectures.read import read_config
from zeroplan.architectures.recorded.recording import OWN_CODE
from zeroplan.catalog.adapters import settings
from zeroplan.costs.outside import outside
from zeroplan.deepspeed.write import ds_config
from zeroplan.errors import ContradictionError
from zeroplan.ledger import total
from zeroplan.specs.job import Job
from zeroplan.specs.model import Model, with_frozen
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
    if OWN_CODE in job.model.assumed:
        raise ContradictionError(f"verify runs transformers' own classes; of {job.model.name} {OWN_CODE}")
    if job.model.unplanned:
        what = "; ".join(part.what for part in job.model.unplanned)
        raise ContradictionError(f"verify runs whole steps: {what}; {job.model.unplanned[0].instead}")
    if job.model.inferred:
        config = job.model.config
        model = model_of(
            *read_config(config, job.model.name), name=job.model.name, source=job.model.source, content=config
        )
        job = job._replace(model=trained_as(job.model, model))
    if real:
        job = job.at(backend="cpu")
    return job if job.rank is not None else job._replace(rank=0)


def trained_as(one: Model, other: Model) -> Model:
    """The other model, of which the same trains as of the one."""
    if one.quantization:
        other = with_quantization(other, one.quantization)
    if one.adapter:
        return with_adapter(other, one.adapter)
    return with_frozen(other, one.freeze, one.train) if one.frozen else other


def case_of(job: Job, given: dict[str, Any] | None, *, mode: str, activations: bool = False) -> dict[str, Any]:
    """The case of a job from `as_measured`; `given` is its ds_config.json where there is one.

    `mode` is that of `zeroplan.verify.measure`. With `activations` the model also runs without
    DeepSpeed, which takes as long again.
    """
    strategy = job.strategy
    theirs = not (strategy.has_optimizer_section or strategy.optimizer in CLASSES)
    if strategy.optimizer not in RUNNABLE or theirs:
        kind = OPTIMIZERS[strategy.optimizer].config_type or "the training script's own"
        raise ContradictionError(f"verify cannot run the optimizer {kind}; write --optimizer adamw")
    if mode == "real" and (strategy.offload_optimizer or strategy.offload_param):
        raise ContradictionError("--real cannot tell GPU memory from the host's; leave it out to verify an offload")
    swaps = any(part and part.device == "nvme" for part in (strategy.offload_optimizer, strategy.offload_param))
    if mode == "cuda" and swaps:
        raise ContradictionError("--cuda runs no offload to NVMe; leave it out to verify that by sizes alone")
    if strategy.flash:
        raise ContradictionError("verify runs --attention eager or sdpa")
    if strategy.kernels != "transformers" and mode != "cuda":
        raise ContradictionError("Liger's kernels need a GPU: verify runs them with --cuda alone; leave --kernels out")
    if strategy.is_cast and strategy.built_on == "host":
        raise ContradictionError("verify builds the model on the GPU, where it has no bytes; write --built-on gpu")
    by_deepspeed = job.at(client_optimizer=False) if strategy.offload_optimizer else job
    config, steps = zenflow.looked_at(by_deepspeed, ds_config(by_deepspeed, "deepspeed", given))
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
        "images": job.model.images,
        **({"target": job.model.target} if job.model.target else {}),
        "pads": PADS in job.model.assumed and (job.model.is_recorded or strategy.micro_batch > 1),
        "checkpointing": strategy.checkpointing,
        "zero_init": strategy.builds_partitioned,
        "parameter_groups": strategy.parameter_groups,
        "optimizer": client(job),
        "built_in": strategy.built_in,
        **({"kernels": strategy.kernels} if strategy.kernels != "transformers" else {}),
        "gpu_memory": room(job) if mode == "meta" else None,
        **frozen(job),
    }


def frozen(job: Job) -> dict[str, Any]:
    """What does not train: beside adapters, or by its names; nothing where all does."""
    if adapter := job.model.adapter:
        quantization = job.model.quantization
        return {
            "adapter": settings(adapter), **({"quantization": quantization._asdict()} if quantization else {}),
            **({"autocast_adapter_dtype": True} if adapter.autocast_adapter_dtype else {}),
        }
    names = [job.model.tensors[index].name for index in sorted(job.model.frozen)]
    return {"freeze": names} if names else {}


CLASSES = {"adamw": "AdamW", "sgd": "SGD", "sgd-momentum": "SGD", "adagrad": "Adagrad"}
"""The Trainer's optimizers that are torch's."""
UPDATES = {"fused": {"fused": True}, "single-tensor": {"foreach": False}, "foreach": {}}


def client(job: Job) -> dict[str, Any] | None:
    """The optimizer that the Trainer makes, or none where DeepSpeed does; one that is offloaded becomes DeepSpeed's."""
    strategy = job.strategy
    if strategy.has_optimizer_section or strategy.offload_optimizer:
        return None
    momentum = {"momentum": 0.9} if strategy.optimizer == "sgd-momentum" else {}
    return {"type": CLASSES[strategy.optimizer], **momentum, **UPDATES[strategy.update]}


def room(job: Job) -> int | None:
    """Bytes of the card that are there for PyTorch; None where its memory is not known."""
    capacity = job.cluster.capacity
    return None if capacity is None else max(0, capacity - total(outside(job)))
