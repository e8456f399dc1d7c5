"""Configs that other libraries build of the arguments of a call: Lightning's DeepSpeedStrategy, Accelerate's plugin."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any, TypeVar

from zeroplan.check.accelerate_config import DEFAULT_STAGE, NAMES
from zeroplan.deepspeed.values import AUTO

STRATEGY, PLUGIN = "DeepSpeedStrategy", "DeepSpeedPlugin"
OF_LIGHTNING = ("Trainer", "Fabric")
OFFLOADED = {"stage": 3, "offload_optimizer": True, "offload_parameters": True}
REGISTERED: dict[str, dict[str, Any]] = {
    "deepspeed": {}, "deepspeed_stage_1": {"stage": 1}, "deepspeed_stage_2": {"stage": 2},
    "deepspeed_stage_1_offload": {"stage": 1, "offload_optimizer": True},
    "deepspeed_stage_2_offload": {"stage": 2, "offload_optimizer": True}, "deepspeed_stage_3": {"stage": 3},
    "deepspeed_stage_3_offload": OFFLOADED,
    "deepspeed_stage_3_offload_nvme": {
        **OFFLOADED, "offload_params_device": "nvme", "offload_optimizer_device": "nvme",
    },
}  # fmt: skip
"""Names of strategies that Lightning has, as in Trainer(strategy="deepspeed_stage_3"), and the arguments that each is
(2.6 pytorch/strategies/deepspeed.py:register_strategies, and Fabric's, which alone has stage 1 with offload).
"""
PAIR = re.compile(r'"(\w+)": ([\w.]+|"[^"{}]*")')
Stated = Mapping[str, ast.expr]
Node = TypeVar("Node", bound=ast.expr)

STAGE_3 = 3
IDLE_AT_3, IDLE_BELOW = ("allgather_partitions", "reduce_scatter", "allgather_bucket_size"), ("sub_group_size",)
"""Defaults of Lightning's that do nothing at stage 3, and below it."""
LIGHTNING_ZERO: dict[str, Any] = {
    "stage": 2, "contiguous_gradients": True, "overlap_comm": True, "allgather_partitions": True,
    "reduce_scatter": True, "allgather_bucket_size": 200_000_000, "reduce_bucket_size": 200_000_000,
    "sub_group_size": 1_000_000_000_000,
}  # fmt: skip
OPTIMIZER = {
    "device": ("offload_optimizer_device", "cpu"), "nvme_path": ("nvme_path", "/local_nvme"),
    "buffer_count": ("optimizer_buffer_count", 4), "pin_memory": ("pin_memory", False),
}  # fmt: skip
PARAMETERS = {
    "device": ("offload_params_device", "cpu"), "nvme_path": ("nvme_path", "/local_nvme"),
    "buffer_count": ("params_buffer_count", 5), "buffer_size": ("params_buffer_size", 100_000_000),
    "max_in_cpu": ("max_in_cpu", 1_000_000_000), "pin_memory": ("pin_memory", False),
}  # fmt: skip
"""Keys of the two sections, by argument and its default."""
CHECKPOINTING = (
    "partition_activations", "cpu_checkpointing", "contiguous_memory_optimization", "synchronize_checkpoint_boundary",
)  # fmt: skip
OF_PLUGIN = ("zero_stage", "offload_optimizer_device", "offload_param_device", "gradient_accumulation_steps",
             "gradient_clipping", "zero3_save_16bit_model")  # fmt: skip
AIO = ("block_size", "queue_depth", "single_submit", "overlap_events", "thread_count")

ZERO = "zero_optimization"
SPELLED: dict[str, dict[str, str]] = {
    PLUGIN: NAMES,
    STRATEGY: {
        **{f"{ZERO}.{name}": name for name in LIGHTNING_ZERO},
        **{f"{ZERO}.offload_optimizer.{key}": argument for key, (argument, _usual) in OPTIMIZER.items()},
        **{f"{ZERO}.offload_param.{key}": argument for key, (argument, _usual) in PARAMETERS.items()},
        **{f"activation_checkpointing.{name}": name for name in CHECKPOINTING},
        **{f"aio.{name}": name for name in AIO},
        "train_micro_batch_size_per_gpu": "logging_batch_size_per_gpu",
        "zero_allow_untested_optimizer": "zero_allow_untested_optimizer",
    },
}  # fmt: skip
"""The arguments of a call, by the keys that they become."""


def built_config(call: ast.Call, name: str) -> ast.Dict | None:
    """The dict that a call's library makes of its arguments; None for a call that is given a config, or says nothing
    of one. Each value stands where its argument does, and a default where the call is.
    """
    arguments = {one.arg: one.value for one in call.keywords if one.arg is not None}
    stated = arguments.get("strategy")
    if name in OF_LIGHTNING and isinstance(stated, ast.Constant) and isinstance(stated.value, str):
        registered = REGISTERED.get(stated.value)
        usual = {argument: _constant(call, value) for argument, value in (registered or {}).items()}
        return None if registered is None else _of_strategy(call, usual)
    if call.args or len(arguments) != len(call.keywords):
        return None
    if name == STRATEGY and "config" not in arguments:
        return _of_strategy(call, arguments)
    if name == PLUGIN and "hf_ds_config" not in arguments and any(one in arguments for one in OF_PLUGIN):
        return _of_plugin(call, arguments)
    return None


def _of_strategy(call: ast.Call, arguments: Stated) -> ast.Dict:
    """The config of Lightning 2.6 (pytorch/strategies/deepspeed.py:_create_default_config), and of Fabric."""
    config: dict[str, Any] = {
        "activation_checkpointing": {name: arguments[name] for name in CHECKPOINTING if name in arguments},
        "aio": {name: arguments[name] for name in AIO if name in arguments},
    }
    if _is_on(arguments, "zero_optimization", usual=True):
        config["zero_allow_untested_optimizer"] = arguments.get("zero_allow_untested_optimizer", True)
        config["zero_optimization"] = {
            **{name: arguments.get(name, usual) for name, usual in _usual(arguments).items()},
            **_offload(arguments, "offload_optimizer", "offload_optimizer", OPTIMIZER),
            **_offload(arguments, "offload_param", "offload_parameters", PARAMETERS),
        }
    batch = arguments.get("logging_batch_size_per_gpu")
    if batch is not None and not (isinstance(batch, ast.Constant) and batch.value == AUTO):
        config["train_micro_batch_size_per_gpu"] = batch
    return _dict(call, {name: value for name, value in config.items() if value != {}})


def _usual(arguments: Stated) -> dict[str, Any]:
    """Keys of zero_optimization, and their defaults: what nobody stated and does nothing is left out."""
    stage = arguments.get("stage")
    idle = IDLE_AT_3 if isinstance(stage, ast.Constant) and stage.value == STAGE_3 else IDLE_BELOW
    return {name: usual for name, usual in LIGHTNING_ZERO.items() if name in arguments or name not in idle}


def as_argument(write: str, path: str, call: str, between: str = "=") -> str:
    """A line to write, as the call takes it; what it takes no argument for is for a config of one's own. `between`: a
    name and its value.
    """
    pair, argument = PAIR.match(write), SPELLED[call].get(path)
    if pair is None:
        return write
    if argument is None or pair[1] != path.rpartition(".")[2]:
        return f"{write}, in a config of your own"
    return f"{argument}{between}{pair[2]}{write[pair.end() :]}"


def _offload(
    arguments: Stated, section: str, switch: str, keys: Mapping[str, tuple[str, Any]]
) -> dict[str, Any]:  # fmt: skip
    """A section where its switch is on; what else the switch is, where other code decides it."""
    if not _is_on(arguments, switch, usual=False):
        return {}
    if not isinstance(arguments[switch], ast.Constant):
        return {section: arguments[switch]}
    return {section: {key: arguments.get(name, usual) for key, (name, usual) in keys.items()}}


def _is_on(arguments: Stated, name: str, *, usual: bool) -> bool:
    value = arguments.get(name)
    if value is None:
        return usual
    return bool(value.value) if isinstance(value, ast.Constant) else True


def _of_plugin(call: ast.Call, arguments: Stated) -> ast.Dict:
    """The config of accelerate 1.15 (utils/dataclasses.py:DeepSpeedPlugin.__post_init__)."""
    zero: dict[str, Any] = {
        "stage": arguments.get("zero_stage", DEFAULT_STAGE),
        "stage3_gather_16bit_weights_on_model_save": arguments.get("zero3_save_16bit_model", False),
    }
    for section in ("offload_optimizer", "offload_param"):
        if f"{section}_device" in arguments:
            device, path = arguments[f"{section}_device"], arguments.get(f"{section}_nvme_path")
            is_nvme = isinstance(device, ast.Constant) and device.value == "nvme"
            more = {"nvme_path": path or "none"} if is_nvme or path is not None else {}
            zero[section] = {"device": device, **more}
    config = {
        "train_batch_size": AUTO, "train_micro_batch_size_per_gpu": AUTO,
        "gradient_accumulation_steps": arguments.get("gradient_accumulation_steps", AUTO),
        "zero_optimization": zero, "gradient_clipping": arguments.get("gradient_clipping", AUTO),
    }  # fmt: skip
    return _dict(call, config)


def _dict(call: ast.Call, content: Mapping[str, Any]) -> ast.Dict:
    """A dict of the tree, in the place of the call."""
    values = [_dict(call, value) if isinstance(value, dict) else _constant(call, value) for value in content.values()]
    keys = [_at(ast.Constant(name), value) for name, value in zip(content, values, strict=True)]
    return _at(ast.Dict(keys=list(keys), values=values), call)


def _constant(call: ast.Call, value: Any) -> ast.expr:
    return value if isinstance(value, ast.expr) else _at(ast.Constant(value), call)


def _at(node: Node, place: ast.expr) -> Node:
    return ast.copy_location(node, place)
