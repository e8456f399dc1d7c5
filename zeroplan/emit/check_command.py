"""The `zeroplan check` that a plan's own files pass: it says what no ds_config.json can."""

from __future__ import annotations

import shlex

from zeroplan.catalog.other_files import ADAPTER_FILE
from zeroplan.specs.job import Job
from zeroplan.specs.optimizer import OPTIMIZERS
from zeroplan.specs.quantization import INT8, Quantization
from zeroplan.specs.target import HF, is_told


def checked(job: Job, target: str) -> str:
    """Typed in the folder of the plan, as one line."""
    cluster = job.cluster
    words = ["zeroplan", "check", "ds_config.json", "--for", target]
    words += ["--params", job.model.name] if job.model.inferred else ["--model", "config.json"]
    words += job.model.sizes.options.split()
    words += [word for name in ("freeze", "train") for each in getattr(job.model, name) for word in (f"--{name}", each)]
    words += _adapter(job) if job.model.adapter else []
    words += _quantization(job.model.quantization) if job.model.quantization else []
    words += ["--gpus", f"{cluster.nodes}x{cluster.gpus_per_node}", "--seq", str(job.workload.seq)]
    if cluster.gpu:
        words += ["--gpu", cluster.gpu.name]
    if cluster.capacity is not None and (cluster.gpu is None or cluster.capacity != int(cluster.gpu.memory.value)):
        words += ["--gpu-mem", f"{cluster.capacity}B"]
    words += ["--host-mem", f"{cluster.host_memory}B"] if cluster.host_memory else []
    words += ["--nvme", f"{cluster.nvme}B"] if cluster.nvme else []
    words += ["--trainer-args", "training_arguments.json"] if target == HF else []
    return shlex.join(words + _outside(job, target))


def _adapter(job: Job) -> list[str]:
    """Adapters: as the file beside says, or of a model that no file is written of."""
    adapter = job.model.adapter
    assert adapter is not None
    dtype = ["--adapter-dtype", "fp32"] if adapter.autocast_adapter_dtype else []
    if job.model.config:
        return ["--adapter", ADAPTER_FILE, *dtype]
    named = adapter.target_modules
    targets = ["--lora-targets", ",".join(named)] if not isinstance(named, str) else []
    return ["--lora", str(adapter.r), *targets, *dtype]


def _quantization(quantization: Quantization) -> list[str]:
    words = ["--quantize", quantization.kind]
    if quantization.kind == INT8:
        return words
    words += ["--double-quant", "yes"] if quantization.double else []
    return [*words, *(["--quant-storage", quantization.storage] if quantization.storage else [])]


def _outside(job: Job, target: str) -> list[str]:
    """Options for what stands in no file that `check` reads."""
    strategy = job.strategy
    words = []
    if strategy.checkpointing != "none" and not (target == HF and is_told(HF, strategy.checkpointing)):
        words += ["--checkpointing", strategy.checkpointing]
    if strategy.attention != "sdpa":
        words += ["--attention", strategy.attention]
    if strategy.kernels != "transformers":
        words += ["--kernels", strategy.kernels]
    if target != "deepspeed" and strategy.precision == "fp32" and not strategy.autocast:
        words += ["--precision", "fp32"]
    if OPTIMIZERS[strategy.optimizer].config_type is None:
        words += ["--client-optimizer", "yes", "--optimizer", strategy.optimizer]
    return words
