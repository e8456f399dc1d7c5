"""DeepSpeed's accelerator on torch's `meta` device: a GPU whose tensors have sizes and no bytes.

It answers as a CUDA device with streams would, so that DeepSpeed takes the paths that it takes on CUDA. Compiled
optimizers are replaced by kernels that do nothing: they allocate nothing beyond what their Python side does.
Only the child process imports this module (it needs torch and deepspeed).
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from functools import partial
from typing import Any

import torch
from deepspeed.accelerator import get_accelerator
from deepspeed.accelerator.cpu_accelerator import CPU_Accelerator

from zeroplan.verify.disk import Disk, Handle
from zeroplan.verify.stand_ins import MetaStandIns
from zeroplan.verify.storages import GPU

NO_LIMIT = 1 << 50
"""Bytes of memory that a device says it has of which nobody knows: nothing is moved to the host for want of room."""


class FinishedStream:
    """A stream that has always finished."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None: ...

    def wait_stream(self, _other: Any) -> None: ...

    def wait_event(self, _event: Any) -> None: ...

    def synchronize(self) -> None: ...

    def record_event(self, _event: Any = None) -> FinishedEvent:
        return FinishedEvent()


class FinishedEvent:
    """An event that has always happened."""

    def __init__(self, *_args: Any, **_kwargs: Any) -> None: ...

    def record(self, _stream: Any = None) -> None: ...

    def wait(self, _stream: Any = None) -> None: ...

    def synchronize(self) -> None: ...

    def query(self) -> bool:
        return True

    def elapsed_time(self, _other: Any) -> float:
        return 0.0


class Kernels:
    """A compiled operator's module: `aio_handle` counts bytes, ZeRO++'s give sizes, ZenFlow's keep what they are given,
    any other does nothing.
    """

    def __init__(self, accelerator: Any) -> None:
        self.accelerator = accelerator

    def aio_handle(self, *_given: Any, **settings: Any) -> Handle:
        device = self.accelerator
        return Handle(device.disk, device._torch_empty_pinned, device._torch_is_pinned, **settings)

    def quantize(self, tensor: torch.Tensor, groups: int, *_given: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return tensor.new_zeros(tensor.numel(), dtype=torch.int8), tensor.new_zeros(groups, dtype=torch.float32)

    def dequantize(self, codes: torch.Tensor, _scales: Any, _groups: int, bits: int, *_given: Any) -> torch.Tensor:
        shape = codes.shape if bits == 8 else (codes.numel() * 8 // bits,)
        return codes.new_zeros(shape, dtype=torch.float16)

    def swizzle_quant(self, tensor: torch.Tensor, groups: int, *_given: Any) -> tuple[torch.Tensor, torch.Tensor]:
        return tensor.new_zeros(tensor.numel() // 2, dtype=torch.int8), tensor.new_zeros(groups, dtype=torch.float32)

    def quantized_reduction(
        self, codes: torch.Tensor, scales: torch.Tensor, _groups: int, left: int, _bits: int, _kind: Any, ranks: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        return codes.new_zeros(codes.numel() // ranks), scales.new_zeros(left)

    def zenflow_adam_ctrl_size(self) -> int:
        return 21_592  # sizeof(ZenControl), csrc/adam/cpu_adam_impl.cpp

    def zenflow_adam_register_group(self, _handle: Any, *tensors: torch.Tensor) -> None:
        self.registered.extend(tensors)

    def zenflow_adam_wait(self, *_given: Any) -> bool:
        return True

    @property
    def registered(self) -> list[torch.Tensor]:
        """What ZenFlow's other process keeps."""
        return self.accelerator.registered  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_args, **_kwargs: 0


class Builder:
    """An operator builder that compiles nothing."""

    NAME = name = "stand_in"

    def load(self, verbose: bool = True) -> Kernels:  # noqa: ARG002
        return Kernels(get_accelerator())

    def is_compatible(self, verbose: bool = False) -> bool:  # noqa: ARG002
        return True

    def absolute_name(self) -> str:
        return self.NAME


COMPILED = ("FusedAdam", "CPUAdam", "FusedLion", "CPULion", "CPUAdagrad", "FusedLamb", "AsyncIO", "Quantizer")


def replace_builders() -> None:
    """Put the stand-in where DeepSpeed's modules have already taken a compiled operator's builder."""
    importlib.import_module("deepspeed.runtime.swap_tensor.partitioned_optimizer_swapper")
    importlib.import_module("deepspeed.runtime.swap_tensor.partitioned_param_swapper")
    for module in [m for name, m in sys.modules.items() if name.startswith("deepspeed.") and m is not None]:
        for operator in COMPILED:
            if f"{operator}Builder" in vars(module):
                setattr(module, f"{operator}Builder", Builder)


STREAM = FinishedStream()


def _made(dtype: torch.dtype, *given: Any) -> torch.Tensor:
    if len(given) == 1 and not isinstance(given[0], int):
        return torch.empty(len(given[0]), dtype=dtype, device="meta")
    return torch.empty(given, dtype=dtype, device="meta")


class MetaAccelerator(CPU_Accelerator):  # type: ignore[misc, unused-ignore]
    """CUDA's behaviour, meta's device name. Pinned host memory is recorded with the size asked for."""

    _torch_pins_host_memory = True

    def __init__(self, stand_ins: MetaStandIns, storages: Any, memory: int | None = None) -> None:
        super().__init__()
        self.memory = NO_LIMIT if memory is None else memory
        self.stand_ins, self.storages, self.disk = stand_ins, storages, Disk()
        self.device_type = self._name = "meta"
        self.registered: list[torch.Tensor] = []

    def is_synchronized_device(self) -> bool:
        return False

    def use_host_timers(self) -> bool:
        return True

    def device_name(self, device_index: Any = None) -> str:  # noqa: ARG002
        return self.device_type

    def current_device_name(self) -> str:
        return self.device_type

    def on_accelerator(self, tensor: torch.Tensor) -> bool:
        return bool(tensor.device.type == self.device_type)

    @property
    def Stream(self) -> type[FinishedStream]:  # noqa: N802
        return FinishedStream

    @property
    def Event(self) -> type[FinishedEvent]:  # noqa: N802
        return FinishedEvent

    def stream(self, _stream: Any) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def current_stream(self, device_index: Any = None) -> FinishedStream:  # noqa: ARG002
        return STREAM

    def default_stream(self, device_index: Any = None) -> FinishedStream:  # noqa: ARG002
        return STREAM

    def total_memory(self, device_index: Any = None) -> int:  # noqa: ARG002
        return self.memory

    def available_memory(self, device_index: Any = None) -> int:  # noqa: ARG002
        return max(0, self.memory - int(self.storages.totals[GPU]))

    def memory_allocated(self, device_index: Any = None) -> int:  # noqa: ARG002
        return 0

    max_memory_allocated = memory_cached = max_memory_cached = memory_allocated
    memory_reserved = max_memory_reserved = memory_allocated

    def is_fp16_supported(self) -> bool:
        return True

    def supported_dtypes(self) -> list[torch.dtype]:
        return [torch.float, torch.half, torch.bfloat16]

    BFloat16Tensor = property(lambda _self: partial(_made, torch.bfloat16))
    ByteTensor = property(lambda _self: partial(_made, torch.uint8))
    DoubleTensor = property(lambda _self: partial(_made, torch.float64))
    FloatTensor = property(lambda _self: partial(_made, torch.float32))
    HalfTensor = property(lambda _self: partial(_made, torch.float16))
    IntTensor = property(lambda _self: partial(_made, torch.int32))
    LongTensor = property(lambda _self: partial(_made, torch.int64))

    def pin_memory(self, tensor: torch.Tensor, make_copy: bool = True, match_shape: bool = True) -> torch.Tensor:
        if tensor.device.type != "cpu":
            return tensor
        if make_copy and tensor.untyped_storage()._cdata in self.stand_ins.pinned:
            return tensor
        return self._torch_empty_pinned(tensor, tensor.shape if match_shape else (tensor.numel(),))

    def _torch_pin_memory(self, tensor: torch.Tensor) -> torch.Tensor:
        return self.pin_memory(tensor)

    def _torch_empty_pinned(self, tensor: torch.Tensor, shape: Any) -> torch.Tensor:
        made = torch.empty(shape, dtype=tensor.dtype, device="cpu")
        self.stand_ins.pin(made)
        self.storages.move(made, "host_pinned")
        return made

    def _torch_is_pinned(self, tensor: torch.Tensor) -> bool:
        return tensor.untyped_storage()._cdata in self.stand_ins.pinned
