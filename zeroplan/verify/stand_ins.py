"""What stands in for a GPU's answers: operators that read a `meta` tensor, and host work on sizes alone.

In "meta" mode a GPU tensor has a size and no bytes, so nothing can be read back from it, and what a large host tensor
would hold is of no interest: its operators are answered by size, so that its pages are never touched.
Only the child process imports this module (it needs torch).
"""

from __future__ import annotations

import linecache
import math
import sys
import weakref
from types import FrameType
from typing import Any

import torch
from torch.utils._pytree import tree_map

PASS = object()
HOST_COMPUTED = 65_536
"""Elements up to which host tensors are really computed in "meta" mode."""
aten = torch.ops.aten
MASKS = "/transformers/masking_utils.py:"
"""It asks whether the tokens are one sequence without padding: they are. Others ask for an overflow: there is none."""
SCALER = "/torch/amp/grad_scaler.py:<genexpr>"
"""It asks a number for an overflow, and would skip the step."""
FILLED = (aten.zeros.default, aten.ones.default, aten.full.default)


class StandIns:
    """Nothing stands in: real tensors on the CPU accelerator, which cannot tell GPU from host ("gpu" holds all)."""

    meta = False

    def __init__(self) -> None:
        self.pinned: dict[int, Any] = {}
        self.pins: list[int] = []

    def tier(self, _storage: torch.UntypedStorage) -> str:
        return "gpu"

    def is_bookkeeping(self, storage: torch.UntypedStorage, _phase: str) -> bool:
        """DeepSpeed keeps the shapes of its tensors as `meta` tensors, which hold nothing."""
        return bool(storage.device.type == "meta")

    def born(self, storage: torch.UntypedStorage) -> None:
        """A storage has just got its bytes."""

    def dispatched(self, _func: Any, _args: Any, _kwargs: Any) -> Any:
        """The result of an operator that cannot run or should not, or PASS."""
        return PASS


class MetaStandIns(StandIns):
    """The accelerator's tensors are on `meta`, the host's on `cpu`."""

    meta = True

    def tier(self, storage: torch.UntypedStorage) -> str:
        if storage.device.type == "meta":
            return "gpu"
        return "host_pinned" if storage._cdata in self.pinned else "host"

    def is_bookkeeping(self, storage: torch.UntypedStorage, phase: str) -> bool:
        """Here only the line of DeepSpeedZeroOptimizer that asks for them tells them from the accelerator's."""
        frame: FrameType | None = sys._getframe(1) if phase == "init" and storage.device.type == "meta" else None
        for _ in range(24):
            if frame is None:
                return False
            if frame.f_code.co_filename.endswith("runtime/zero/stage_1_and_2.py"):
                return frame.f_code.co_name == "__init__" and "zeros_like" in _line(frame)
            frame = frame.f_back
        return False

    def dispatched(self, func: Any, args: Any, kwargs: Any) -> Any:
        if args and isinstance(args[0], torch.Tensor):
            made = self._of_tensor(func, args, kwargs)
            if made is not PASS:
                return made
        elif func in FILLED and _host_elements(args[0], kwargs) > HOST_COMPUTED:
            return torch.empty(args[0], dtype=kwargs.get("dtype"))
        if kwargs.get("pin_memory"):
            made = func(*args, **{**kwargs, "pin_memory": False})
            self.pin(made)
            return made
        return self._by_size(func, args, kwargs)

    def _of_tensor(self, func: Any, args: Any, kwargs: Any) -> Any:
        first: torch.Tensor = args[0]
        made: Any = PASS
        if func is aten.is_pinned.default:
            made = first.untyped_storage()._cdata in self.pinned
        elif first.is_cpu:
            if func is aten.copy_.default and args[1].device.type == "meta":
                made = first
        elif func is aten._local_scalar_dense.default:
            made = _read(first.dtype)
        elif func is aten.equal.default:
            made = True
        elif func is aten._grouped_mm.default and first.dtype != torch.bfloat16:
            made = _as_bfloat16(func, args, kwargs)
        elif func is aten._to_copy.default and _on_cpu(kwargs.get("device")):
            made = _on_host(first, kwargs.get("dtype"))
        return made

    def pin(self, tensor: torch.Tensor) -> None:
        """From now on this storage is page-locked; keep the size that was asked for."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        self.pinned[key] = weakref.ref(storage, lambda _dead: self.pinned.pop(key, None))
        self.pins.append(storage.nbytes())

    def _by_size(self, func: Any, args: Any, kwargs: Any) -> Any:
        """An operator on large host tensors, answered with uninitialised results of the right size."""
        device = kwargs.get("device")
        if not _large_on_host(args, kwargs) or (device is not None and torch.device(device).type == "meta"):
            return PASS
        returns = func._schema.returns
        aliases = [value.alias_info for value in returns]
        if any(alias is not None and alias.is_write for alias in aliases):
            return PASS if func in (aten.set_.source_Storage, aten.resize_.default) else args[0]
        if any(alias is not None for alias in aliases):
            return PASS
        if not returns:
            return None
        made = func(*tree_map(_shadow, args), **tree_map(_shadow, dict(kwargs)))
        return tree_map(_on_host, made)


def _as_bfloat16(func: Any, args: Any, kwargs: Any) -> torch.Tensor:
    """Grouped products have a size rule in torch for bf16 only; the sizes are the same in every dtype."""
    dtype = args[0].dtype
    given = (a.to(torch.bfloat16) if isinstance(a, torch.Tensor) and a.dtype == dtype else a for a in args)
    made = func(*given, **kwargs)
    return torch.empty_strided(made.size(), made.stride(), dtype=dtype, device="meta")


def _read(dtype: torch.dtype) -> float:
    """What a scalar read from the device says."""
    if dtype == torch.bool:
        return MASKS in _asks(MASKS, "/deepspeed/")
    return 1.0 if dtype.is_floating_point and SCALER not in _asks(SCALER, "/torch/optim/", "/deepspeed/") else 0


def _asks(*files: str) -> str:
    """The file and the function that ask, of these the first; empty when none does."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = f"{frame.f_code.co_filename}:{frame.f_code.co_name}"
        if any(part in name for part in files):
            return name
        frame = frame.f_back
    return ""


def _line(frame: FrameType) -> str:
    return linecache.getline(frame.f_code.co_filename, frame.f_lineno)


def _on_cpu(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cpu"


def _large_on_host(args: Any, kwargs: Any) -> bool:
    for value in (*args, *kwargs.values()):
        for entry in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(entry, torch.Tensor) and entry.is_cpu and entry.numel() > HOST_COMPUTED:
                return True
    return False


def _shadow(value: Any) -> Any:
    if isinstance(value, torch.Tensor) and value.device.type == "cpu":
        return torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="meta")
    return torch.device("meta") if isinstance(value, torch.device) and value.type == "cpu" else value


def _host_elements(shape: Any, kwargs: Any) -> int:
    device = kwargs.get("device")
    return math.prod(shape) if device is None or _on_cpu(device) else 0


def _on_host(value: Any, dtype: torch.dtype | None = None) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    make = torch.empty if value.numel() > HOST_COMPUTED else torch.zeros
    return make(value.shape, dtype=dtype or value.dtype, device="cpu")
