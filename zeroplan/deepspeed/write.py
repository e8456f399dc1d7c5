"""A strategy as ds_config.json for DeepSpeed 0.19.8. Same input, same bytes; integers stay integers.

All that a ds_config.json can say of a strategy is written: what differs from DeepSpeed's own default, and the keys
that people look for.
"""

from __future__ import annotations

import json
from typing import Any

from zeroplan.deepspeed.defaults import BF16_FIELDS, TOP_FIELDS, strategy_defaults
from zeroplan.deepspeed.names import canonical
from zeroplan.deepspeed.parallelism import data_parallel_size
from zeroplan.deepspeed.read import AUTO, autos
from zeroplan.deepspeed.write_zero import aio, zero_section
from zeroplan.errors import ContradictionError
from zeroplan.specs.checkpointing import ActivationCheckpointing
from zeroplan.specs.job import Job
from zeroplan.specs.optimizer import OFFLOADABLE, OPTIMIZERS
from zeroplan.specs.strategy import Strategy

LEARNING_RATE = 1e-5
"""A placeholder: the learning rate is the user's to choose."""
BY_ACCELERATE = (
    "optimizer.params.lr", "optimizer.params.weight_decay", "scheduler.params.warmup_min_lr",
    "scheduler.params.warmup_max_lr", "scheduler.params.warmup_num_steps", "scheduler.params.total_num_steps",
)  # fmt: skip
"""What Accelerate fills from DummyOptim and DummyScheduler (accelerate 1.15 accelerator.py:_prepare_deepspeed)."""


def ds_config(job: Job, target: str = "hf", given: dict[str, Any] | None = None) -> dict[str, Any]:
    """The config. For the Trainer ('hf') each key that it fills with this plan's value is "auto".

    For Accelerate two keys of the optimizer are, which it fills from the script; for Lightning there is no
    gradient_accumulation_steps, which it refuses and makes itself. What a `given` config says stays as it is, the
    plan fills the rest. Raises `ContradictionError` for an "auto" that nothing fills.
    """
    sharing = job.ranks if given is None else data_parallel_size(given, job.ranks, "the given config")
    config = _planned(job, target, sharing)
    if given is not None:
        config = _kept(canonical(given), config)
        _check_autos(config, target)
    if target == "lightning":
        del config["gradient_accumulation_steps"]
    return config


def dumps(config: dict[str, Any]) -> str:
    return json.dumps(config, indent=2) + "\n"


def _check_autos(config: dict[str, Any], target: str) -> None:
    filled = BY_ACCELERATE if target == "accelerate" else ()
    left = [path for path in autos(config) if path not in filled]
    if target != "hf" and left:
        raise ContradictionError(
            f'{left[0]} is "auto" in the given config, which only the Trainer fills; write --for hf'
        )


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


def _planned(job: Job, target: str, sharing: int) -> dict[str, Any]:
    """`sharing`: ranks that share a batch."""
    strategy, for_trainer = job.strategy, target == "hf"
    total = strategy.micro_batch * strategy.grad_accum * sharing

    def filled(value: Any) -> Any:
        return AUTO if for_trainer else value

    config: dict[str, Any] = {
        "train_batch_size": filled(total),
        "train_micro_batch_size_per_gpu": filled(strategy.micro_batch),
        "gradient_accumulation_steps": filled(strategy.grad_accum),
        "gradient_clipping": filled(strategy.gradient_clipping),
    }
    usual = strategy_defaults(job.engine.version)
    changed = {key: field for key, field in TOP_FIELDS.items() if getattr(strategy, field) != usual[field]}
    config |= {key: getattr(strategy, field) for key, field in changed.items() if key not in config}
    config |= _precision(strategy, target, usual)
    config |= _dtypes(strategy)
    config |= _optimizer(strategy, target)
    config["zero_optimization"] = zero_section(job, for_trainer=for_trainer)
    for name, section in (
        ("aio", aio(strategy)),
        ("activation_checkpointing", _activation_checkpointing(strategy.activation_checkpointing)),
    ):
        if section:
            config[name] = section
    return config


def _precision(strategy: Strategy, target: str, usual: dict[str, Any]) -> dict[str, Any]:
    """The Trainer fills both switches; under autocast it finds them off, or nobody could tell that weights are fp32.

    For DeepSpeed alone bf16 is off in so many words: a config that says nothing may have meant 16 bit.
    """
    name = "fp16" if strategy.precision == "fp16" else "bf16"
    sections: dict[str, dict[str, Any]] = {name: {"enabled": strategy.precision != "fp32"}}
    if target == "hf":
        sections = {part: {"enabled": False if strategy.autocast else AUTO} for part in ("bf16", "fp16")}
    elif target != "deepspeed" and strategy.precision == "fp32":
        sections = {}
    if strategy.precision == "fp32":
        return sections
    if strategy.master_dtype == name:
        sections[name][f"{name}_master_weights_and_grads"] = True
    if name == "bf16":
        changed = [field for field in BF16_FIELDS if getattr(strategy, field) != usual[field]]
        sections[name] |= {field: getattr(strategy, field) for field in changed}
        if _states_by_switch(strategy):
            sections[name]["bf16_optimizer_states"] = True
    return sections


def _states_by_switch(strategy: Strategy) -> bool:
    """bf16_optimizer_states makes the states 16-bit, or else the optimizer's own fp32_optimizer_states."""
    return strategy.states_as_master and strategy.master_dtype == "bf16"


def _dtypes(strategy: Strategy) -> dict[str, Any]:
    stated = {"grad_accum_dtype": strategy.grad_accum_dtype, "buffer_dtype": strategy.buffer_dtype}
    types = {name: dtype for name, dtype in stated.items() if dtype}
    autocast = {"enabled": True, "dtype": {"bf16": "bfloat16", "fp16": "float16"}.get(strategy.autocast or "")}
    return ({"data_types": types} if types else {}) | ({"torch_autocast": autocast} if strategy.autocast else {})


def _optimizer(strategy: Strategy, target: str) -> dict[str, Any]:
    optimizer = OPTIMIZERS[strategy.optimizer]
    config: dict[str, Any] = {}
    if strategy.has_optimizer_section:
        config["optimizer"] = {"type": optimizer.config_type, "params": _optimizer_params(strategy, target)}
    if strategy.offload_optimizer and strategy.optimizer not in OFFLOADABLE:
        config["zero_force_ds_cpu_optimizer"] = False
    if strategy.stage and not optimizer.tested:
        config["zero_allow_untested_optimizer"] = True
    return config


def _optimizer_params(strategy: Strategy, target: str) -> dict[str, Any]:
    by_script, for_trainer = target in ("hf", "accelerate"), target == "hf"
    params: dict[str, Any] = {"lr": AUTO if by_script else LEARNING_RATE}
    if OPTIMIZERS[strategy.optimizer].config_type in ("Adam", "AdamW"):
        betas: dict[str, Any] = {"betas": [0.9, 0.999], "eps": 1e-8}
        params |= dict.fromkeys(betas, AUTO) if for_trainer else betas
        params["weight_decay"] = AUTO if by_script else 0.0
    if strategy.weight_decay:
        params["weight_decay"] = strategy.weight_decay
    if strategy.optimizer == "sgd-momentum":
        params["momentum"] = 0.9
    if strategy.optimizer == "muon" and strategy.ns_method != "gram":
        params["ns_method"] = strategy.ns_method
    if strategy.optimizer == "adam" and not strategy.decoupled_decay:
        params["adam_w_mode"] = False
    params |= {name: True for name in ("torch_adam", "amsgrad") if getattr(strategy, name)}
    if strategy.torch_adam or strategy.optimizer in ("sgd", "sgd-momentum"):
        params |= {"fused": {"fused": True}, "single-tensor": {"foreach": False}}.get(strategy.update, {})
    if strategy.states_as_master and not _states_by_switch(strategy):
        params["fp32_optimizer_states"] = False
    return params


def _activation_checkpointing(stated: ActivationCheckpointing) -> dict[str, Any]:
    """The section that deepspeed.checkpointing.configure reads."""
    switches = {
        "partition_activations": stated.partitions,
        "cpu_checkpointing": stated.on_host,
        "contiguous_memory_optimization": stated.contiguous,
    }
    section: dict[str, Any] = {name: True for name, on in switches.items() if on}
    return section | ({"number_checkpoints": stated.number} if stated.number is not None else {})
