"""What each live storage is: found by walking the attributes of engine, optimizer and model that own it.

Names of attributes are those of DeepSpeed 0.19.8; whatever they do not reach is named by its attribute path, and
what no path reaches is left unexplained.
Only the child process imports this module (it needs torch).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import torch

from zeroplan.verify.storages import StorageTracker

NAMED = (
    ("bit16_groups_flat", "flat parameters"),
    ("bf16_groups_flat", "flat parameters"),
    ("fp16_groups_flat", "flat parameters"),
    ("single_partition_of_fp32_groups", "fp32 master"),
    ("fp32_partitioned_groups_flat", "fp32 master"),
    ("fp32_groups_flat_partition", "fp32 master"),
    ("fp32_groups_flat", "fp32 master"),
    ("fp32_groups", "fp32 master"),
    ("fp32_groups_gradients_flat", "fp32 gradients"),
    ("grad_partitions_flat_buffer", "gradient partitions"),
    ("ipg_buckets", "reduce bucket"),
    ("param_groups_fp16_flat_cpu_memory", "parameter partitions"),
    ("lp_param_contiguous_pin_buffer", "parameter partitions"),
    ("optimizer_swapper", "optimizer swap buffers"),
    ("temp_grad_buffer_for_gpu_offload", "offload scratch"),
    ("temp_grad_buffer_for_cpu_offload", "offload scratch"),
    ("param_buffer_of_bit16_for_cpu_offload_groups", "parameter staging"),
    ("accumulated_grads_in_cpu", "accumulated gradients"),
    ("grads_in_partition", "own gradients"),
    ("averaged_gradients", "own gradients"),
    ("all_grad_tensors", "own gradients"),
    ("extra_large_param_to_reduce", "gradients"),
    ("previous_reduced_grads", "gradients"),
    ("_muon_pending_momentum", "staged momentum"),
    ("_muon_allgather_buffers", "gather buffers"),
    ("norm_for_param_grads", "norm scalars"),
    ("_global_grad_norm", "norm scalars"),
    ("inf_or_nan_tracker", "overflow flag"),
    ("gpu_sum", "norm scalars"),
)
"""Attribute of DeepSpeed's optimizer -> kind, the first one that reaches a storage names it."""
COLUMNS, HOST_MOMENTS = ("selected_indices", "partition_selected_indices"), ("exp_avg_cpu_data", "exp_avg_sq_cpu_data")
"""What ZenFlow hangs on a parameter."""
OVERLAPPING = ("overlap_grad", "stale_param")
"""And on its master copy, for its other process."""
DEPTH = 8
"""Attributes and containers deep that a tensor is looked for."""


def _entries(value: Any) -> list[tuple[str, Any]]:
    """What a container or one of DeepSpeed's objects holds, with what its name adds to the path."""
    if isinstance(value, dict):
        named = [(f".{name}" if isinstance(name, str) else "", entry) for name, entry in value.items()]
        return named + [("", name) for name in value if isinstance(name, torch.Tensor)]
    if isinstance(value, (list, tuple, set, frozenset, deque)):
        return [("", entry) for entry in value]
    ours = type(value).__module__.split(".")[0] in ("deepspeed", "torch") or isinstance(value, torch.nn.Module)
    return [(f".{name}", entry) for name, entry in vars(value).items()] if ours and hasattr(value, "__dict__") else []


def inside(value: Any, path: str, depth: int = 0, seen: set[int] | None = None) -> Iterator[tuple[str, torch.Tensor]]:
    """Tensors reached from a value through containers and DeepSpeed's objects, with the path to each."""
    seen = set() if seen is None else seen
    if isinstance(value, torch.Tensor):
        yield path, value
    elif id(value) not in seen and depth <= DEPTH and not isinstance(value, type):
        seen.add(id(value))
        for name, entry in _entries(value):
            yield from inside(entry, path + name, depth + 1, seen)


def _of_parameters(model: torch.nn.Module) -> Iterator[tuple[str, torch.Tensor]]:
    for parameter in model.parameters():
        partition = getattr(parameter, "ds_tensor", None)
        if partition is not None:
            frozen = "" if parameter.requires_grad else "frozen "
            yield f"{frozen}parameter partitions", partition
            yield "persistent parameters" if parameter.ds_persist else "gathered parameters", parameter.data
            if getattr(parameter, "ds_secondary_tensor", None) is not None:
                yield "secondary partitions", parameter.ds_secondary_tensor
        else:
            yield "parameters" if parameter.requires_grad else "frozen parameters", parameter.data
        for _path, tensor in inside(getattr(parameter, "nvme_swapper", None), ""):
            yield "parameter swap buffers", tensor
        for _path, tensor in inside([getattr(parameter, name, None) for name in COLUMNS], ""):
            yield "chosen columns", tensor
        for name in HOST_MOMENTS:
            if hasattr(parameter, name):
                yield "chosen moments", getattr(parameter, name)
        for name in ("grad", "grad_accum"):
            if isinstance(getattr(parameter, name, None), torch.Tensor):
                yield "gradients", getattr(parameter, name)


def _of_optimizer(optimizer: Any) -> Iterator[tuple[str, torch.Tensor]]:
    for name, kind in NAMED:
        for _path, tensor in inside(getattr(optimizer, name, None), name):
            yield kind, tensor
            if kind == "fp32 master" and tensor.grad is not None:
                yield "fp32 gradients", tensor.grad
    yield from _of_the_other_process(optimizer)
    for basic in (*_basic(optimizer), *_chosen(optimizer)):
        for state in basic.state.values():
            for name, value in state.items():
                if isinstance(value, torch.Tensor):
                    yield f"optimizer state {name}", value
        for fused in (basic, getattr(basic, "aux_optimizer", None)):  # Muon's Adam half
            flag = getattr(fused, "_dummy_overflow_buf", None)
            if isinstance(flag, torch.Tensor):
                yield "overflow flag", flag


def _of_the_other_process(optimizer: Any) -> Iterator[tuple[str, torch.Tensor]]:
    """What ZenFlow's shares with this one, and its own."""
    for master in getattr(optimizer, "single_partition_of_fp32_groups", ()):
        for attribute in OVERLAPPING:
            for _path, tensor in inside(getattr(master, attribute, None), ""):
                yield attribute, tensor
    for tensor in getattr(getattr(optimizer, "zf_op", None), "registered", ()):
        yield "optimizer states of the other process", tensor


def _basic(optimizer: Any) -> list[Any]:
    """The optimizer that DeepSpeed drives, and the one that takes the part of it that stays on the GPU."""
    optimizers = (getattr(optimizer, "optimizer", optimizer), getattr(optimizer, "backup_optimizer", None))
    return [basic for basic in optimizers if basic is not None]


def _chosen(optimizer: Any) -> list[Any]:
    """ZenFlow's, of the columns that it updates at once."""
    return [optimizer.selective_optimizer] if hasattr(optimizer, "selective_optimizer") else []


def _claims(engine: Any, model: torch.nn.Module, given: dict[str, torch.Tensor]) -> Iterator[tuple[str, torch.Tensor]]:
    """Kinds of tensors, the most telling first: the first claim on a storage counts."""
    yield from (("inputs", tensor) for tensor in given.values())
    yield from (("model buffers", buffer) for buffer in model.buffers())
    optimizer = getattr(engine, "optimizer", None)
    if optimizer is not None:
        yield from _of_optimizer(optimizer)
    yield from _of_parameters(model)
    if any(type(module).__module__.startswith("bitsandbytes.") for module in model.modules()):
        from zeroplan.verify.quantized import states

        yield from (("quantization states", tensor) for tensor in states(model))
    for root, value in (("engine", engine), ("model", model)):
        for path, tensor in inside(value, root):
            yield path, tensor
            if tensor.is_leaf and tensor.grad is not None:
                yield f"{path}.grad", tensor.grad


def kinds(storages: StorageTracker, engine: Any, model: torch.nn.Module, given: dict[str, torch.Tensor]) -> list[int]:
    """Label every storage with its kind; return the keys that nothing reaches."""
    by_storage: dict[int, str] = {}
    for kind, tensor in _claims(engine, model, given):
        storage = tensor.untyped_storage()
        if storage._cdata not in by_storage and storage.nbytes():
            storages.see(tensor, kind)
            if storage._cdata in storages.live:
                by_storage[storage._cdata] = kind
    for key, kind in by_storage.items():
        storages.name(key, kind)
    return [key for key in storages.live if key not in by_storage]


def held(storages: StorageTracker, unexplained: list[int]) -> dict[str, Any]:
    """Live bytes by tier, kind and dtype, what is unexplained of it, and totals by tier and dtype."""
    lines: dict[tuple[str, str, str], list[int]] = {}
    totals: dict[str, dict[str, int]] = {}
    missed = set(unexplained)
    left = []
    for key, live in storages.live.items():
        if not live.bytes:
            continue
        if key in missed:
            left.append({"tier": live.tier, "dtype": live.dtype, "bytes": live.bytes, "made_by": live.label})
        line = lines.setdefault((live.tier, live.label if key not in missed else "unexplained", live.dtype), [0, 0])
        line[0] += live.bytes
        line[1] += 1
        tier = totals.setdefault(live.tier, {})
        tier[live.dtype] = tier.get(live.dtype, 0) + live.bytes
    return {
        "held": [
            {"tier": tier, "kind": kind, "dtype": dtype, "bytes": size, "tensors": count}
            for (tier, kind, dtype), (size, count) in sorted(lines.items())
        ],
        "held_total": totals,
        "unexplained": left,
    }
