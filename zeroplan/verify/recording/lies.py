"""How tensors lie in their storage, and what is given to an operator or comes of it with places for them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, NamedTuple

import torch

from zeroplan.architectures.recorded.program import Extent, Layout


class Lies(NamedTuple):
    """How a tensor lies in its storage, which has others of the call's tensors too."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype
    offset: int
    device: str

    @classmethod
    def of(cls, tensor: torch.Tensor) -> Lies:
        device = "meta" if tensor.is_meta else tensor.device.type
        return cls(tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.storage_offset(), device)

    @property
    def layout(self) -> Layout:
        return _layout(self.shape, self.strides, self.dtype.itemsize)

    def empty(self) -> torch.Tensor:
        """A tensor that lies so."""
        if not self.offset:
            return torch.empty_strided(self.shape, self.strides, dtype=self.dtype, device=self.device)
        reach = [(size - 1) * stride for size, stride in zip(self.shape, self.strides, strict=True)]
        elements = self.offset + (sum(reach) + 1 if all(self.shape) else 0)
        flat = torch.empty(elements, dtype=self.dtype, device=self.device)
        return flat.as_strided(self.shape, self.strides, self.offset)


@lru_cache(maxsize=65536)
def _layout(shape: tuple[int, ...], strides: tuple[int, ...], width: int) -> Layout:
    return Layout(tuple(map(Extent, shape)), tuple(map(Extent, strides)), width)


class Place:
    """Stands in a call's arguments, or in what it gives, for a tensor."""

    def __repr__(self) -> str:
        return "tensor"


def is_tensor(value: Any) -> bool:
    return isinstance(value, torch.Tensor)


def emptied(value: Any) -> Any:
    """Arguments or results with a place for each tensor."""
    if isinstance(value, torch.Tensor):
        return Place()
    if isinstance(value, list | tuple):
        return type(value)([emptied(each) for each in value])
    if isinstance(value, dict):
        return {name: emptied(each) for name, each in value.items()}
    return value


def filled(arguments: Any, tensors: Iterator[torch.Tensor]) -> Any:
    """The same with tensors in their places."""
    if isinstance(arguments, Place):
        return next(tensors)
    if isinstance(arguments, list | tuple):
        return type(arguments)([filled(each, tensors) for each in arguments])
    if isinstance(arguments, dict):
        return {name: filled(each, tensors) for name, each in arguments.items()}
    return arguments
