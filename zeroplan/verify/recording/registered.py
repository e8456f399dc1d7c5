"""A model's modules as torch has them registered."""

from __future__ import annotations

import torch
from transformers.modeling_layers import GradientCheckpointingLayer

from zeroplan.architectures.recorded.modules import ModuleRecord, RecordedParameter


def registered(model: torch.nn.Module) -> ModuleRecord:
    """The tree, with parameters numbered; tied ones have one number."""
    numbers: dict[int, int] = {}

    def record(module: torch.nn.Module) -> ModuleRecord:
        parameters = ((name, each) for name, each in module._parameters.items() if each is not None)
        buffers = ((name, each) for name, each in module._buffers.items() if each is not None)
        children = ((name, each) for name, each in module._modules.items() if each is not None)
        return ModuleRecord(
            f"{type(module).__module__}.{type(module).__qualname__}",
            tuple([
                RecordedParameter(name, tuple(each.shape), numbers.setdefault(id(each), len(numbers)))
                for name, each in parameters
            ]),
            tuple([(name, tuple(each.shape), str(each.dtype).removeprefix("torch.")) for name, each in buffers]),
            tuple([(name, record(each)) for name, each in children]),
            isinstance(module, GradientCheckpointingLayer),
            module.p if isinstance(module, torch.nn.Dropout) else 0.0,
        )  # fmt: skip

    return record(model)
