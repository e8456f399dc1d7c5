"""A strategy as ds_config.json for DeepSpeed 0.19.8. Same input, same bytes; integers stay integers."""

from __future__ import annotations

import json
from typing import Any

from zeroplan.deepspeed.names import canonical
from zeroplan.deepspeed.read import AUTO, autos, trainer_fills
from zeroplan.deepspeed.zenflow import section as zenflow_section
from zeroplan.errors import ContradictionError
from zeroplan.specs.checkpointing import Recomputing
from zeroplan.specs.job import Job
from zeroplan.specs.optimizer import OFFLOADABLE, OPTIMIZERS
from zeroplan.specs.strategy import Offload, Strategy

TARGETS = ("hf", "deepspeed")
LEARNING_RATE = 1e-5
"""A placeholder: the learning rate is the user's to choose."""
NVME_PATH = "/local_nvme"
TRAINER_NAMES = {
    "optimizer": {"lr": "learning_rate", "eps": "adam_epsilon", "weight_decay": "weight_decay"},
    "scheduler": {
        "warmup_max_lr": "learning_rate",
        "warmup_num_steps": "warmup_steps",
        "total_num_steps": "max_steps",
    },
}
AIO = {
    "block_size": 1048576,
    "queue_depth": 8,
    "intra_op_parallelism": 1,
    "single_submit": False,
    "overlap_events": True,
}


def ds_config(job: Job, target: str = "hf", given: dict[str, Any] | None = None) -> dict[str, Any]:
    """The config. For the Trainer ('hf') each key that it fills with this plan's value is "auto".

    What a `given` config says stays as it is, the plan fills the rest. Raises `ContradictionError` for an "auto"
    that nothing fills.
    """
    config = _planned(job, target)
    if given is None:
        return config
    config = _kept(canonical(given), config)
    if target != "hf" and (left := autos(config)):
        raise ContradictionError(
            f'{left[0]} is "auto" in the given config, which only the Trainer fills; write --for hf'
        )
    return config


def _kept(given: dict[str, Any], planned: dict[str, Any]) -> dict[str, Any]:
    """`planned`, with every value that `given` states, and its further keys."""
    kept: dict[str, Any] = {}
    for name in (*planned, *(name for name in given if name not in planned)):
        if isinstance(given.get(name), dict) and isinstance(planned.get(name), dict):
            kept[name] = _kept(given[name], planned[name])
        elif name in given and (given[name] != AUTO or name not in planned):
            kept[name] = given[name]
        else:
            kept[name] = planned[name]
    return kept


def _planned(job: Job, target: str) -> dict[str, Any]:
    strategy, for_trainer = job.strategy, target == "hf"
    total = strategy.micro_batch * strategy.grad_accum * job.ranks

    def filled(value: Any) -> Any:
        return AUTO if for_trainer else value

    config: dict[str, Any] = {
        "train_batch_size": filled(total),
        "train_micro_batch_size_per_gpu": filled(strategy.micro_batch),
        "gradient_accumulation_steps": filled(strategy.grad_accum),
        "gradient_clipping": filled(strategy.gradient_clipping),
    }
    config |= _precision(strategy.precision, for_trainer=for_trainer)
    config |= _optimizer(strategy, for_trainer=for_trainer)
    config["zero_optimization"] = _zero(job, for_trainer=for_trainer)
    if any(part and part.device == "nvme" for part in (strategy.offload_optimizer, strategy.offload_param)):
        config["aio"] = AIO
    return config


def dumps(config: dict[str, Any]) -> str:
    return json.dumps(config, indent=2) + "\n"


def checkpointing_words(recomputing: Recomputing) -> dict[str, Any]:
    """gradient_checkpointing_kwargs, where they differ from what transformers does unasked."""
    words: dict[str, Any] = {"every_n_layers": recomputing.every} if recomputing.every > 1 else {}
    return words | ({"use_reentrant": True} if recomputing.reentrant else {})


def training_arguments(job: Job, given: dict[str, Any] | None = None) -> dict[str, Any]:
    """What must stand in TrainingArguments for `"auto"` to mean this plan.

    The Trainer also stops where its own value differs from one that a `given` config states (transformers
    integrations/deepspeed.py, fill_match), so those are repeated.
    """
    strategy = job.strategy
    arguments: dict[str, Any] = {
        "per_device_train_batch_size": strategy.micro_batch,
        "gradient_accumulation_steps": strategy.grad_accum,
        "max_grad_norm": strategy.gradient_clipping,
    }
    if strategy.precision != "fp32":
        arguments["fp16" if strategy.precision == "fp16" else "bf16"] = True
    if strategy.recomputing.every:  # the Trainer has no selective checkpointing
        arguments["gradient_checkpointing"] = True
    if words := checkpointing_words(strategy.recomputing):
        arguments["gradient_checkpointing_kwargs"] = words
    if OPTIMIZERS[strategy.optimizer].config_type is None:
        arguments["optim"] = OPTIMIZERS[strategy.optimizer].trainer
    if strategy.kernels != "transformers":
        arguments["use_liger_kernel"] = True
    if strategy.kernels == "liger-loss":
        arguments["liger_kernel_config"] = dict.fromkeys(("rope", "rms_norm", "swiglu", "geglu"), False)
    return arguments | _repeated(canonical(given or {}))


def _repeated(given: dict[str, Any]) -> dict[str, Any]:
    """What a config states of the optimizer and the scheduler, as TrainingArguments names it."""
    arguments: dict[str, Any] = {}
    for section, names in TRAINER_NAMES.items():
        params = (given.get(section) or {}).get("params") or {}
        for key, name in names.items():
            if params.get(key, AUTO) != AUTO:
                arguments[name] = params[key]
    betas = ((given.get("optimizer") or {}).get("params") or {}).get("betas", AUTO)
    if betas != AUTO:
        arguments["adam_beta1"], arguments["adam_beta2"] = betas
    return arguments


def _precision(precision: str, *, for_trainer: bool) -> dict[str, Any]:
    if for_trainer:
        return {"bf16": {"enabled": AUTO}, "fp16": {"enabled": AUTO}}
    if precision == "fp32":
        return {}
    return {"fp16" if precision == "fp16" else "bf16": {"enabled": True}}


def _optimizer(strategy: Strategy, *, for_trainer: bool) -> dict[str, Any]:
    optimizer = OPTIMIZERS[strategy.optimizer]
    config: dict[str, Any] = {}
    if optimizer.config_type:
        params: dict[str, Any] = {"lr": AUTO if for_trainer else LEARNING_RATE}
        if optimizer.config_type in ("Adam", "AdamW"):
            defaults = {"betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.0}
            params |= {key: AUTO if for_trainer else value for key, value in defaults.items()}
        if strategy.optimizer == "sgd-momentum":
            params["momentum"] = 0.9
        config["optimizer"] = {"type": optimizer.config_type, "params": params}
    if strategy.offload_optimizer and strategy.optimizer not in OFFLOADABLE:
        config["zero_force_ds_cpu_optimizer"] = False
    if strategy.stage and not optimizer.tested:
        config["zero_allow_untested_optimizer"] = True
    return config


def _zero(job: Job, *, for_trainer: bool) -> dict[str, Any]:
    strategy = job.strategy
    fills = trainer_fills(job.model.shape.hidden, strategy.stage) if for_trainer else {}

    def size(key: str, value: int) -> Any:
        return AUTO if fills.get(f"zero_optimization.{key}") == value else value

    zero: dict[str, Any] = {"stage": strategy.stage}
    if strategy.stage == 0:
        return zero
    zero |= {
        "overlap_comm": strategy.overlaps,
        "contiguous_gradients": strategy.contiguous_gradients,
        "reduce_scatter": strategy.scatters,
        "reduce_bucket_size": size("reduce_bucket_size", strategy.reduce_bucket_size),
    }
    if strategy.stage < 3:
        zero["allgather_bucket_size"] = strategy.allgather_bucket_size
    else:
        zero |= {
            "stage3_prefetch_bucket_size": size("stage3_prefetch_bucket_size", strategy.prefetch_bucket_size),
            "stage3_param_persistence_threshold": size(
                "stage3_param_persistence_threshold", strategy.param_persistence_threshold
            ),
            "stage3_max_live_parameters": strategy.max_live_parameters,
            "stage3_max_reuse_distance": strategy.max_reuse_distance,
            "sub_group_size": strategy.sub_group_size,
            "stage3_gather_16bit_weights_on_model_save": True,
        }
    for name in ("offload_optimizer", "offload_param"):
        if section := getattr(strategy, name):
            zero[name] = _offload(section, name)
    if strategy.selective:
        zero["zenflow"] = zenflow_section(strategy.selective)
    return zero


def _offload(offload: Offload, name: str) -> dict[str, Any]:
    section: dict[str, Any] = {"device": offload.device, "pin_memory": offload.pin_memory}
    if offload.device == "nvme":
        section["nvme_path"] = offload.nvme_path or NVME_PATH
        section["buffer_count"] = offload.buffer_count or (5 if name == "offload_param" else 4)
        if name == "offload_param":
            section |= {"buffer_size": offload.buffer_size, "max_in_cpu": offload.max_in_cpu}
    if name == "offload_optimizer" and offload.ratio < 1:
        section["ratio"] = offload.ratio
    return section
