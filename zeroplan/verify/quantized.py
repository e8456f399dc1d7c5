"""Models whose linear layers bitsandbytes quantizes, as transformers puts them in: with bytes, or on "meta" without.

A "meta" weight has no bits to pack, so what packing would make is made by its shapes. What bitsandbytes' product does
inside of one operator of torch's runs here as its own Python has it, so that each tensor is seen.
Only the child process imports this module (it needs torch, transformers and bitsandbytes).
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from zeroplan.arithmetic import ceil_div
from zeroplan.specs.quantization import BLOCK, INT8, OUTER_BLOCK, Quantization
from zeroplan.verify.dtypes import DTYPES


def quantize(
    model: torch.nn.Module, quantization: Quantization, dtype: torch.dtype, loaded: torch.dtype
) -> torch.nn.Module:  # fmt: skip
    """The model with the linear layers replaced that transformers replaces, the others as they were; `dtype` of their
    products, `loaded` that of the weights that are packed.
    """
    import bitsandbytes
    from transformers import BitsAndBytesConfig
    from transformers.integrations.bitsandbytes import replace_with_bnb_linear
    from transformers.quantizers.base import get_keys_to_not_convert

    before = dict(model.named_modules())
    device = next(model.parameters()).device
    if device.type != "cuda":  # which has the kernels themselves
        _see_inside()
    stays = list(quantization.skipped) or get_keys_to_not_convert(model)
    replace_with_bnb_linear(model, stays, BitsAndBytesConfig(**settings(quantization, dtype)))
    packed = bitsandbytes.nn.Linear4bit, bitsandbytes.nn.Linear8bitLt
    for name, module in model.named_modules():
        if not isinstance(module, packed):
            continue
        was = before[name]
        if was.bias is not None:
            module.bias = torch.nn.Parameter(was.bias.data)
        weight = was.weight.data if isinstance(was, torch.nn.Linear) else was.weight.data.t().contiguous()
        weight = weight.to(loaded)
        if device.type == "meta":
            _without_bits(module, weight, quantization)
        elif quantization.kind == INT8:
            module.weight = bitsandbytes.nn.Int8Params(weight, requires_grad=False, has_fp16_weights=False).to(device)
        else:
            module.weight = bitsandbytes.nn.Params4bit(
                weight, requires_grad=False, quant_type=quantization.kind, compress_statistics=quantization.double,
                quant_storage=module.weight.quant_storage, module=module,
            ).to(device)  # fmt: skip
    return model


def settings(quantization: Quantization, dtype: torch.dtype) -> dict[str, Any]:
    """Fields of BitsAndBytesConfig."""
    if quantization.kind == INT8:
        return {"load_in_8bit": True}
    storage = torch.uint8 if quantization.storage == "uint8" else DTYPES.get(quantization.storage, dtype)
    return {
        "load_in_4bit": True, "bnb_4bit_quant_type": quantization.kind,
        "bnb_4bit_use_double_quant": quantization.double, "bnb_4bit_quant_storage": storage,
        "bnb_4bit_compute_dtype": DTYPES.get(quantization.compute, dtype),
    }  # fmt: skip


def states(model: torch.nn.Module) -> list[torch.Tensor]:
    """What bitsandbytes keeps beside packed weights; 8-bit codes go from the weight to the module as it first runs."""
    found: list[torch.Tensor] = []
    for module in model.modules():
        state = getattr(module, "quant_state", None)
        if state is not None and not isinstance(state, torch.Tensor):
            outer = [state.state2.absmax, state.state2.code, state.offset] if state.state2 is not None else []
            found += [state.absmax, state.code, *outer]
        owners = getattr(module, "weight", None), getattr(module, "state", None)
        kept = (getattr(owner, name, None) for owner in owners for name in ("SCB", "CB"))
        found += [each for each in kept if isinstance(each, torch.Tensor)]
    return found


def _without_bits(module: Any, weight: torch.Tensor, quantization: Quantization) -> None:
    """Tensors of the sizes that packing this weight gives."""
    import bitsandbytes
    from bitsandbytes.functional import QuantState

    def made(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    if quantization.kind == INT8:
        codes = made(*weight.shape, dtype=torch.int8)
        module.weight = bitsandbytes.nn.Int8Params(
            codes, requires_grad=False, has_fp16_weights=False, CB=codes, SCB=made(weight.shape[0])
        )
        return
    blocks = ceil_div(weight.numel(), BLOCK)
    outer = None
    if quantization.double:
        scales = made(ceil_div(blocks, OUTER_BLOCK))
        outer = QuantState(absmax=scales, code=made(256), blocksize=OUTER_BLOCK, dtype=torch.float32)
    state = QuantState(
        absmax=made(blocks, dtype=torch.uint8 if outer else torch.float32), shape=weight.shape, code=made(16),
        blocksize=BLOCK, quant_type=quantization.kind, dtype=weight.dtype, offset=made() if outer else None,
        state2=outer,
    )  # fmt: skip
    storage = module.weight.quant_storage
    packed = made(ceil_div(ceil_div(weight.numel(), 2), storage.itemsize), 1, dtype=storage)
    module.weight = bitsandbytes.nn.Params4bit(
        packed, requires_grad=False, quant_state=state, quant_type=quantization.kind, quant_storage=storage,
        compress_statistics=quantization.double, bnb_quantized=True, module=module,
    )  # fmt: skip
    module.quant_state = state


class _Instead:
    """A module or namespace, with other functions in the place of some."""

    def __init__(self, of: Any, **functions: Any) -> None:
        vars(self).update(of=of, **functions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.of, name)


def _see_inside() -> None:
    """Put Python in the place of the operators that products with packed weights are."""
    from bitsandbytes.autograd import _functions
    from bitsandbytes.backends.default.ops import _gemm_4bit_default_impl

    operators = _Instead(
        torch.ops.bitsandbytes, gemm_4bit=SimpleNamespace(default=_gemm_4bit_default_impl),
        int8_mixed_scaled_mm=_product_of_codes,
    )  # fmt: skip
    _functions.torch = _Instead(torch, ops=_Instead(torch.ops, bitsandbytes=operators))
    _functions.F = _Instead(_functions.F, int8_vectorwise_quant=_codes_of_rows)


def _codes_of_rows(half: torch.Tensor, threshold: float = 0.0) -> Any:
    """What the wrapper of CUDA's kernel makes, where no number is over the threshold (backends/cuda/ops.py)."""
    if half.device.type != "meta":
        return torch.ops.bitsandbytes.int8_vectorwise_quant.default(half, threshold)
    stats = torch.empty(half.numel() // half.shape[-1], dtype=torch.float32, device=half.device)
    codes = torch.empty(half.shape, dtype=torch.int8, device=half.device)
    outliers = half.abs() >= threshold
    del outliers
    return codes, stats, torch.empty(0, dtype=torch.int64, device=half.device)


def _product_of_codes(
    x: torch.Tensor, codes: torch.Tensor, weight: torch.Tensor, stats: Any, scales: Any, outliers: Any, bias: Any
) -> Any:
    """The same of the product (int8_mixed_scaled_mm, int8_scaled_mm, int8_linear_matmul, int8_mm_dequant)."""
    if x.device.type != "meta":
        return torch.ops.bitsandbytes.int8_mixed_scaled_mm(x, codes, weight, stats, scales, outliers, bias)
    none = torch.empty(0, dtype=x.dtype, device=x.device)
    sums = torch.empty((*codes.shape[:-1], weight.shape[0]), dtype=torch.int32, device=x.device)
    if codes.shape[-1] % 4:
        wide = torch.matmul(codes.float(), weight.float().t()).to(torch.int32)
        sums.copy_(wide)
        del wide
    result = torch.empty_like(sums, dtype=torch.float16)
    return result.to(x.dtype), none
