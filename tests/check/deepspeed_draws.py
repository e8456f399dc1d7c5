"""Configs drawn for a comparison with DeepSpeed: sound ones, each with a few things wrong or merely unusual."""

from __future__ import annotations

import copy
import random
from typing import Any

from zeroplan.deepspeed.keys import KEYS, OPEN_SECTIONS, STRICT_SECTIONS, children
from zeroplan.deepspeed.keys.optimizer_classes import CLASS_PARAMS
from zeroplan.deepspeed.keys.removed import NOT_OPTIMIZERS, REMOVED_KEYS, REMOVED_OPTIMIZERS
from zeroplan.deepspeed.keys.scheduler import SCHEDULER_PARAMS

ODD: tuple[Any, ...] = (
    None, True, False, 0, 1, 2, 3, -1, 7, 0.5, 2.0, 1e9, 1e19, "", "x", "1", "2.0", "1e3", "auto", "true", "no", "cpu", [],
    [1], ["a"], {}, {"enabled": True},
)  # fmt: skip
ELSEWHERE = (
    "expert_parallel", "data_efficiency", "checkpoint.writer", "datastates_ckpt", "weight_quantization", "hybrid_engine",
    "compile", "autotuning", "tensor_parallel", "aio.use_gds", "comet", "wandb", "tensorboard", "csv_monitor",
    "flops_profiler", "pipeline", "data_parallel_size", "sequence_parallel_size",
    "zero_optimization.offload_optimizer.super_offload", "zero_optimization.zenflow", "disable_python_gc",
    "zero_optimization.stage3_module_granularity_threshold",
)  # fmt: skip
"""Parts that need packages, other models or several ranks to run: only a switch that stays off is drawn of them."""
TYPES = ("AdamW", "Adam", "adamw", "Lion", "Adagrad", "Lamb", "Muon", "SGD", "sgd", "RMSprop", "NAdam", "Adamax", "ASGD",
         *REMOVED_OPTIMIZERS, *NOT_OPTIMIZERS, "AdamW2", "")  # fmt: skip
PARAMS = sorted({name for params in CLASS_PARAMS.values() for name in params} | {"torch_adam", "adam_w_mode",
                 "fp32_optimizer_states", "max_grad_norm"})  # fmt: skip
SOUND: dict[str, tuple[Any, ...]] = {
    "lr": (1e-4, 0), "betas": ([0.9, 0.999],), "eps": (1e-8,), "weight_decay": (0.0, 0.1), "momentum": (0.9,),
    "torch_adam": (True, False), "adam_w_mode": (True, False), "bias_correction": (True,), "amsgrad": (False, True),
    "fp32_optimizer_states": (True, False), "set_grad_none": (True,), "foreach": (False,), "max_grad_norm": (1.0,),
    "max_coeff": (10.0,), "min_coeff": (0.01,), "alpha": (0.9,), "maximize": (False,), "differentiable": (False,),
    "capturable": (False,), "fused": (False,),
}  # fmt: skip


def draw(seed: int) -> dict[str, Any]:
    """The config of a seed: a sound one, with none to three faults or oddities."""
    rng = random.Random(seed)
    config = _sound(rng)
    for _ in range(rng.choice((0, 1, 1, 1, 2, 2, 3))):
        rng.choice((_odd_value, _odd_value, _typical_value, _typical_value, _misplaced, _misspelled, _removed, _missing,
                    _optimizer, _scheduler, _batch, _combination, _combination))(rng, config)  # fmt: skip
    return config


TOGETHER: dict[str, tuple[Any, ...]] = {
    "zero_optimization.compute_grad_norm": (False,), "gradient_clipping": (0, 0.0, 1.0), "prescale_gradients": (True,),
    "gradient_predivide_factor": (2.0, 1), "gradient_allreduce_op": ("sum", "Mean"),
    "zero_optimization.reduce_scatter": (False,), "zero_optimization.overlap_comm": (True, False),
    "zero_optimization.zero_quantized_gradients": (True,), "zero_optimization.legacy_stage1": (True,),
    "zero_optimization.allgather_bucket_size": (3, 4), "managed_gradient_accumulation": (False,),
    "zero_optimization.offload_optimizer.ratio": (0.5, 1.0), "zero_optimization.offload_optimizer.device": ("nvme", "cpu"),
    "zero_optimization.offload_optimizer.nvme_path": ("nvme", None), "zero_optimization.offload_param.nvme_path": ("nvme",),
    "zero_optimization.offload_param.device": ("nvme", "cpu"), "zero_optimization.cpu_offload": (True, False, None),
    "zero_optimization.cpu_offload_param": (True, False), "zero_optimization": (True, False, {}),
    "zero_optimization.param_persistence_threshold": (5,), "zero_optimization.stage3_param_persistence_threshold": (6,),
    "zero_optimization.stage3_gather_fp16_weights_on_model_save": (True,), "fp16.enabled": (True, False),
    "zero_optimization.gather_16bit_weights_on_model_save": (True,), "bf16.enabled": (True, False), "bfloat16.enabled": (True,),
    "fp16.fp16_master_weights_and_grads": (True,), "bf16.bf16_master_weights_and_grads": (True,),
    "bf16.bf16_optimizer_states": (True,), "fp16.loss_scale": (128, 0, True), "fp16.min_loss_scale": (0, 1),
    "fp16.loss_scale_window": (0, 1), "data_types.grad_accum_dtype": ("fp32", "bf16", "fp16"),
    "data_types.param_dtype": ("fp32", "bf16", "fp16"), "torch_autocast.enabled": (True,),
    "torch_autocast.dtype": ("bfloat16", "fp16"), "zero_allow_untested_optimizer": (True,),
    "optimizer.legacy_fusion": (True,), "optimizer.type": ("Muon", "Lamb", "Adam", "SGD", "Adagrad", "Lion"),
    "zero_optimization.stage": (0, 1, 2, 3),
}  # fmt: skip
"""Settings that DeepSpeed takes alone, and some of them not beside others."""


def _sound(rng: random.Random) -> dict[str, Any]:
    config: dict[str, Any] = {"train_micro_batch_size_per_gpu": rng.choice((1, 2, 4))}
    precision = rng.choice(("bf16", "bf16", "fp16", ""))
    if precision:
        config[precision] = {"enabled": True}
    stage = rng.choice((0, 1, 2, 2, 3, 3))
    config["zero_optimization"] = zero = {"stage": stage}
    if stage and rng.random() < 0.3:
        zero["offload_optimizer"] = {"device": rng.choice(("cpu", "cpu", "none"))}
    if rng.random() < 0.15:
        zero["offload_param"] = {"device": rng.choice(("cpu", "none"))}
    if rng.random() < 0.7:
        config["optimizer"] = {"type": rng.choice(("AdamW", "AdamW", "Adam")), "params": {"lr": 1e-4}}
    if rng.random() < 0.3 and "optimizer" in config:
        config["scheduler"] = {"type": "WarmupLR", "params": {"warmup_num_steps": 10}}
    return config


def _put(config: dict[str, Any], path: str, value: Any) -> None:
    section = config
    *inside, name = path.split(".")
    for part in inside:
        if not isinstance(section.get(part), dict):
            section[part] = {}
        section = section[part]
    section[name] = copy.deepcopy(value)


def _known(rng: random.Random, *, strict_more: bool = True) -> str:
    paths = [path for path in KEYS if not path.startswith(ELSEWHERE) and not path.startswith("optimizer.params.")
             and not path.startswith("scheduler.params.")]  # fmt: skip
    if strict_more and rng.random() < 0.6:
        paths = [path for path in paths if KEYS[path].section in STRICT_SECTIONS]
    return rng.choice(paths)


def _odd_value(rng: random.Random, config: dict[str, Any]) -> None:
    path = _known(rng)
    known = KEYS[path]
    name = rng.choice((known.name, known.name, *known.aliases))
    value = rng.choice(ODD)
    _put(config, ".".join(filter(None, (known.section, name))), value)


def _typical_value(rng: random.Random, config: dict[str, Any]) -> None:
    """A value that the table takes, or one at the edge of what it takes."""
    path = _known(rng)
    known = KEYS[path]
    kinds = known.kind.split("|")
    choices: list[Any] = [known.default, *known.choices]
    if "boolean" in kinds:
        choices += [True, False]
    if kinds[0] in ("integer", "number"):
        bounds = (known.minimum, known.exclusive_minimum, known.maximum, known.exclusive_maximum)
        choices += [bound + step for bound in bounds if bound is not None for step in (-1, 0, 1)] + [1, 2, 1000, 500_000_001]
    value = rng.choice(choices)
    if isinstance(value, float) and value.is_integer() and kinds[0] == "integer":
        value = int(value)
    if known.path.endswith("nvme_path"):
        value = "nvme"
    _put(config, path, value)


def _misplaced(rng: random.Random, config: dict[str, Any]) -> None:
    known = KEYS[_known(rng)]
    section = rng.choice(("", "zero_optimization", "fp16", "bf16", "zero_optimization.offload_optimizer",
                          "zero_optimization.offload_param", "aio", "activation_checkpointing"))  # fmt: skip
    path = f"{section}.{known.name}" if section else known.name
    if not path.startswith(ELSEWHERE):
        _put(config, path, known.default if known.default is not None else rng.choice(ODD))


def _misspelled(rng: random.Random, config: dict[str, Any]) -> None:
    known = KEYS[_known(rng)]
    name = known.name
    cut = rng.randrange(len(name))
    name = rng.choice((name[:cut] + name[cut + 1 :], name + "s", f"_{name}", name.upper(), name.replace("_", "-")))
    path = f"{known.section}.{name}" if known.section else name
    if name and known.section not in OPEN_SECTIONS:
        _put(config, path, rng.choice((known.default, True, 1, "auto")))


def _removed(rng: random.Random, config: dict[str, Any]) -> None:
    if rng.random() < 0.3:
        _put(config, rng.choice(tuple(REMOVED_KEYS)), rng.choice((False, None, {}, "auto", {"enabled": True})))


def _combination(rng: random.Random, config: dict[str, Any]) -> None:
    for path in rng.sample(tuple(TOGETHER), rng.randrange(2, 5)):
        _put(config, path, rng.choice(TOGETHER[path]))


def _missing(rng: random.Random, config: dict[str, Any]) -> None:
    config.pop(rng.choice(tuple(config)))


def _optimizer(rng: random.Random, config: dict[str, Any]) -> None:
    section: dict[str, Any] = {"type": rng.choice(TYPES)}
    params = {"lr": 1e-4}
    for name in rng.sample(PARAMS, rng.randrange(3)):
        params[name] = rng.choice(SOUND[name]) if name in SOUND and rng.random() < 0.8 else rng.choice(ODD)
    if rng.random() < 0.95:
        section["params"] = params
    if rng.random() < 0.3:
        config["zero_allow_untested_optimizer"] = True
    config["optimizer"] = section


def _scheduler(rng: random.Random, config: dict[str, Any]) -> None:
    kind = rng.choice((*SCHEDULER_PARAMS, "cosine", "warmuplr", "StepLR"))
    names = SCHEDULER_PARAMS.get(kind, ("step_size",))
    params: dict[str, Any] = {"total_num_steps": 100} if "total_num_steps" in names and rng.random() < 0.8 else {}
    if kind == "OneCycle" and rng.random() < 0.8:
        params |= {"cycle_min_lr": 1e-5, "cycle_max_lr": 1e-4}
    for name in rng.sample(names, min(len(names), rng.randrange(3))):
        known = KEYS.get(f"scheduler.params.{name}")
        params[name] = known.default if known and known.default is not None and rng.random() < 0.5 else rng.choice(ODD)
    if rng.random() < 0.15:
        params[rng.choice([known.name for known in children("scheduler.params")])] = 1
    config["scheduler"] = {"type": kind, "params": params}
    config.setdefault("optimizer", {"type": "AdamW", "params": {"lr": 1e-4}})


def _batch(rng: random.Random, config: dict[str, Any]) -> None:
    for name in ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps"):
        if rng.random() < 0.5:
            config[name] = rng.choice((1, 2, 4, 8, 7, 2, 4, 8, 0, -1, None, "auto", "4", 2.0, 1.5, True))
