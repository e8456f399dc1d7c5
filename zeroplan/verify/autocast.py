"""torch.autocast as CUDA does it, on torch's `meta` device, which has none.

What is on torch's lists for CUDA (ATen/autocast_mode.h, torch 2.13) and transformers or DeepSpeed call is cast before
it runs. Whether autocast is on, and in which dtype, is the CPU's own state: torch's checkpointing restores it,
DeepSpeed's linear function asks for it, and the CPU's autocast leaves `meta` tensors alone.
Only the child process imports this module (it needs torch).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.overrides import TorchFunctionMode

Function = Callable[..., Any]

LOWERED = {
    functional.linear, torch.matmul, torch.mm, torch.bmm, torch.addmm, torch.baddbmm, torch.einsum, Tensor.matmul,
    Tensor.__matmul__, Tensor.__rmatmul__, Tensor.mm, Tensor.bmm, Tensor.addmm, Tensor.baddbmm,
}  # fmt: skip
"""In 16 bit: lower_precision_fp."""
WIDENED = {
    functional.layer_norm, functional.nll_loss, torch.pow, torch.rsqrt, torch.exp, torch.log, torch.reciprocal,
    Tensor.pow, Tensor.__pow__, Tensor.rsqrt, Tensor.exp, Tensor.log, Tensor.reciprocal,
}  # fmt: skip
"""In fp32."""
WIDE_RESULTS = {
    functional.softmax, functional.log_softmax, torch.softmax, torch.log_softmax, torch.sum, torch.cumsum, torch.prod,
    Tensor.softmax, Tensor.log_softmax, Tensor.sum, Tensor.cumsum, Tensor.prod,
}  # fmt: skip
"""With fp32 as their dtype, unless they are given one: fp32_set_opt_dtype."""


def dtype() -> torch.dtype | None:
    """What is lower precision now; None where autocast is off."""
    return torch.get_autocast_dtype("cpu") if torch.is_autocast_enabled("cpu") else None


class OnMeta(TorchFunctionMode):  # type: ignore[misc, unused-ignore]
    """Casts what the functions above are given; a parameter's copy is made once and kept until autocast is left."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: dict[int, tuple[Tensor, Tensor]] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        low = dtype()
        if low is None:
            return func(*args, **kwargs)
        if func in LOWERED:
            return func(*self.all_to(low, args), **{name: self.to(low, value) for name, value in kwargs.items()})
        if func in WIDENED:
            return func(*self.all_to(torch.float32, args), **kwargs)
        if func in WIDE_RESULTS and kwargs.get("dtype") is None and is_eligible(args[0]):
            return func(*args, **{**kwargs, "dtype": torch.float32})
        return func(*args, **kwargs)

    def all_to(self, wanted: torch.dtype, values: Any) -> list[Any]:
        """From the last to the first, as torch's C++ does it."""
        return [self.to(wanted, value) for value in reversed(values)][::-1]

    def to(self, wanted: torch.dtype, value: Any) -> Any:
        """A tensor in the wanted dtype, cast if it has to be (cached_cast)."""
        if not (isinstance(value, Tensor) and is_eligible(value)) or value.dtype == wanted:
            return value
        leaf = value.requires_grad and value.is_leaf and not value._is_view()
        if not (leaf and value.dtype == torch.float32):
            return value.to(wanted)
        cached = self.copies.get(id(value))
        if cached is None:
            cached = self.copies[id(value)] = value, value.to(wanted)
        return cached[1]


def is_eligible(value: Any) -> bool:
    """A floating-point tensor of the device; fp64 stays as it is."""
    return bool(value.device.type == "meta" and value.is_floating_point() and value.dtype != torch.float64)


def attention(otherwise: Function) -> Function:
    """scaled_dot_product_attention is in 16 bit, its mask too."""
    casts = OnMeta()

    def run(*args: Any, **kwargs: Any) -> Any:
        low = dtype()
        if low is not None:
            args = tuple(casts.all_to(low, args))
            kwargs = {name: casts.to(low, value) for name, value in kwargs.items()}
        return otherwise(*args, **kwargs)

    return run


@contextlib.contextmanager
def as_on_cuda() -> Iterator[None]:
    """Inside, `meta` tensors are cast where autocast is on."""
    from transformers.utils import generic

    mode = OnMeta()
    cleared, maybe = torch.clear_autocast_cache, generic.maybe_autocast
    attends, runs_backward = functional.scaled_dot_product_attention, torch.autograd._engine_run_backward

    def run_backward(*args: Any, **kwargs: Any) -> Any:
        """What a mode is asked about runs without the mode: here it is Tensor.backward, which runs layers again."""
        with mode:
            return runs_backward(*args, **kwargs)

    def clear() -> None:
        mode.copies.clear()
        cleared()

    def maybe_autocast(device_type: str, dtype: Any = None, enabled: bool = True, cache_enabled: Any = None) -> Any:
        """Transformers leaves autocast alone on "meta"; elsewhere it turns it off around rotary frequencies."""
        if device_type != "meta":
            return maybe(device_type, dtype, enabled, cache_enabled)
        on = enabled or torch.is_autocast_enabled("cpu")
        return torch.autocast("cpu", dtype, enabled, cache_enabled) if on else contextlib.nullcontext()

    torch.clear_autocast_cache, generic.maybe_autocast = clear, maybe_autocast  # type: ignore[assignment, unused-ignore]
    functional.scaled_dot_product_attention, torch.autograd._engine_run_backward = attention(attends), run_backward
    try:
        with mode:
            yield
    finally:
        torch.clear_autocast_cache, generic.maybe_autocast = cleared, maybe
        functional.scaled_dot_product_attention, torch.autograd._engine_run_backward = attends, runs_backward
