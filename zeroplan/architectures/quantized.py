"""Linear layers whose weights bitsandbytes holds in 4 or 8 bit: what stands in their place, and what its forward runs.

bitsandbytes 0.50.2 (nn/modules.py, autograd/_functions.py, backends/), as transformers 5.24 puts them in
(integrations/bitsandbytes.py:replace_with_bnb_linear, quantizers/base.py:get_keys_to_not_convert). Packed weights are
parameters that do not train; their scales are plain tensors, which DeepSpeed neither knows nor partitions.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from zeroplan.architectures.model import of_tree
from zeroplan.architectures.module import Conv1D, Linear, Module, Parameter, Unary, replace_module
from zeroplan.architectures.profile import TreeProfile
from zeroplan.architectures.registry import OUTPUTS
from zeroplan.arithmetic import ceil_div
from zeroplan.autograd.quantized import dequantized_scales, matmul_4bit, matmul_8bit, matmul_8bit_on_cpu
from zeroplan.autograd.tensor import empty
from zeroplan.errors import ContradictionError
from zeroplan.specs.model import Model
from zeroplan.specs.quantization import BLOCK, INT8, Quantization

if TYPE_CHECKING:
    from zeroplan.architectures.forward_run import ForwardRun
    from zeroplan.autograd.tensor import Tensor


class PackedWeight(Parameter):
    """A weight [out, in] in fewer bits."""

    __slots__ = ("dtype", "packed")

    def __init__(self, outputs: int, inputs: int, quantization: Quantization) -> None:
        packed = outputs, inputs
        size = ceil_div(ceil_div(outputs * inputs, 2), quantization.storage_bytes), 1
        super().__init__(*(packed if quantization.kind == INT8 else size))
        self.packed, self.dtype = packed, quantization.stored_dtype


class WideBias(Parameter):
    """A bias that the first forward casts to the dtype of the product, for good; at stage 3 until it is released."""

    __slots__ = ()

    dtype = "float32"


class QuantizedLinear(Unary):
    """y = W·x + b, W made anew of its packed bits for as long as a product runs."""

    def __init__(self, base: Linear | Conv1D, quantization: Quantization) -> None:
        super().__init__()
        self.inputs, self.outputs, self.quantization = base.inputs, base.outputs, quantization
        self.weight = PackedWeight(base.outputs, base.inputs, quantization)
        if bias := base.parameters.get("bias"):
            self.bias = WideBias(*bias.shape) if quantization.compute == "fp32" else bias
        vars(self)["transformers_class"] = LINEAR_8BIT if quantization.kind == INT8 else LINEAR_4BIT

    def whole_weight(self, run: ForwardRun) -> Tensor:
        """W of its bits, as others read it (bitsandbytes functional.py:dequantize_4bit)."""
        wide = dequantized_scales(run, self.scales, adds=False) if self.scales else None
        weight = empty(run, (self.outputs, self.inputs), run.loaded)
        del wide
        return weight

    @property
    def scales(self) -> int:
        """How many scales are quantized again."""
        return ceil_div(self.outputs * self.inputs, BLOCK) if self.quantization.double else 0

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        stated = self.parameters.get("bias")
        bias = run.parameter(stated) if stated else None
        shape = (self.outputs, self.inputs)
        if self.quantization.kind == INT8:
            return matmul_8bit_on_cpu(x, shape, bias) if run.on_cpu else matmul_8bit(x, shape, bias, fp16=run.half)
        compute = WIDTHS.get(self.quantization.compute, run.width)
        return matmul_4bit(x, shape, bias, compute=compute, loaded=run.loaded, scales=self.scales)


LINEAR_4BIT, LINEAR_8BIT = "bitsandbytes.nn.modules.Linear4bit", "bitsandbytes.nn.modules.Linear8bitLt"
WIDTHS = {"fp32": 4, "bf16": 2, "fp16": 2}


def with_quantization(model: Model, quantization: Quantization) -> Model:
    """The model with the linear layers quantized that transformers quantizes. Raises `ContradictionError`."""
    profile = model.profile
    assert isinstance(profile, TreeProfile)

    def packed(root: Module) -> Module:
        modules = dict(root.named_modules())
        for path in list(_quantized(root, modules, quantization)):
            module = modules[path]
            assert isinstance(module, Linear | Conv1D)
            replace_module(modules, path, QuantizedLinear(module, quantization))
        _check_borrowed(root, model)
        return root

    changed = profile.changed(packed)
    if not any(isinstance(module, QuantizedLinear) for _path, module in changed.root.named_modules()):
        raise ContradictionError(f"{model.name}: no layer of {model.family} is quantized; leave --quantize out")
    return model._replace(**of_tree(changed), quantization=quantization)


def _check_borrowed(root: Module, model: Model) -> None:
    """Raises `ContradictionError` where a module reads a weight of another that is packed: for its dtype, say."""
    there = {id(parameter) for _name, parameter in root.named_parameters()}
    for path, module in root.named_modules():
        if any(id(parameter) not in there for parameter in module.borrowed):
            raise ContradictionError(
                f"--quantize: found {model.name}, whose {path} reads the weights of a layer that would be packed, "
                "expected a model of which each layer reads its own: this is not planned; leave --quantize out"
            )


def _quantized(root: Module, modules: dict[str, Module], quantization: Quantization) -> Iterator[str]:
    """Paths of nn.Linear itself and of Conv1D, less those that stay: the output's, tied ones, the last parameter's."""
    named = list(root.named_parameters())
    uses: dict[int, int] = {}
    for module in modules.values():
        for parameter in module.parameters.values():
            uses[id(parameter)] = uses.get(id(parameter), 0) + 1
    tied = [
        f"{path}.{name}"
        for path, module in modules.items()
        for name, parameter in module.parameters.items()
        if uses[id(parameter)] > 1
    ]
    kept = [name.removesuffix(".weight") for name in (*tied, named[-1][0])]
    skipped = quantization.skipped or (*kept, *(path for path in OUTPUTS if path in modules))
    for path, module in modules.items():
        plain = module.transformers_class in (Linear.transformers_class, Conv1D.transformers_class)
        if isinstance(module, Linear | Conv1D) and plain and not any(_matches(path, each) for each in skipped):
            yield path


def _matches(path: str, name: str) -> bool:
    """As quantizers_utils.should_convert_module does: a whole beginning, or an end."""
    return path.endswith(name) or re.match(rf"{re.escape(name)}(\.|$)", path) is not None
