"""A model's modules as torch has them registered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import torch
from transformers.modeling_layers import GradientCheckpointingLayer

from zeroplan.architectures.recorded.modules import ModuleRecord, RecordedBuffer, RecordedParameter


def registered(model: torch.nn.Module, dtypes: Mapping[str, str] | None = None) -> ModuleRecord:
    """The tree; parameters that are tied have one number. `dtypes`: of buffers, where not torch's own."""
    numbers: dict[int, int] = {}
    uses = Counter(id(each) for _name, each in model.named_parameters(remove_duplicate=False))

    def record(module: torch.nn.Module, path: str) -> ModuleRecord:
        parameters = ((name, each) for name, each in module._parameters.items() if each is not None)
        buffers = ((name, each) for name, each in module._buffers.items() if each is not None)
        children = ((name, each) for name, each in module._modules.items() if each is not None)
        return ModuleRecord(
            f"{type(module).__module__}.{type(module).__qualname__}",
            tuple([
                RecordedParameter(
                    name, tuple(each.shape),
                    numbers.setdefault(id(each), len(numbers)) if uses[id(each)] > 1 else None, each.requires_grad,
                )
                for name, each in parameters
            ]),
            tuple([
                RecordedBuffer(name, tuple(each.shape), (dtypes or {}).get(path + name) or _dtype(each))
                for name, each in buffers
            ]),
            tuple([(name, record(each, f"{path}{name}.")) for name, each in children]),
            isinstance(module, GradientCheckpointingLayer),
            module.p if isinstance(module, torch.nn.Dropout) else 0.0,
        )  # fmt: skip

    return record(model, "")


def outside(model: torch.nn.Module, paths: Iterable[str]) -> Iterator[tuple[str, torch.nn.Module]]:
    """Modules by their path, but those that are within the modules of these paths alone."""
    still = {model.get_submodule(path) for path in paths}
    reached: set[torch.nn.Module] = set()
    ahead = [model]
    while ahead:
        module = ahead.pop()
        if module not in reached and module not in still:
            ahead.extend(module.children())
        reached.add(module)
    return ((path, each) for path, each in model.named_modules() if each in reached)


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")
