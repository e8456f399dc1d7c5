"""Values of whole numbers on the meta device: a model of images reads sizes and places from tensors.

Of each tensor whose values are known there is one on the CPU beside it, on which the same operators run; of floats
where they follow from whole numbers alone, as weights of a pooling by places do.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils._pytree import tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from zeroplan.verify.stand_ins import PASS, MetaStandIns

aten = torch.ops.aten
LARGEST, LARGEST_FLOATS = 400_000_000, 50_000_000
"""Elements up to which values are kept: a mask has one for each pair of tokens, or for each width of each word."""
LISTED = 1_000_000
"""Places up to which those of a mask are listed: more are of each width of each word, and nothing reads them."""
BY_VALUE = frozenset({
    aten.nonzero.default, aten.unique_dim.default, aten._unique2.default, aten.unique_consecutive.default,
    aten.repeat_interleave.Tensor, aten.masked_select.default, aten.bincount.default,
})  # fmt: skip
"""Operators whose results have as many elements as the values say."""
INDEXING = frozenset({aten.index.Tensor, aten.index_put.default, aten.index_put_.default})


def tensors_in(value: Any) -> list[torch.Tensor]:
    """Those in arguments or results, in order."""
    tensors: list[torch.Tensor] = []
    _gather(value, tensors)
    return tensors


def _gather(value: Any, tensors: list[torch.Tensor]) -> None:
    if isinstance(value, torch.Tensor):
        tensors.append(value)
    elif isinstance(value, (list, tuple)):
        for each in value:
            _gather(each, tensors)
    elif isinstance(value, dict):
        for each in value.values():
            _gather(each, tensors)


def is_whole(tensor: torch.Tensor) -> bool:
    return not (tensor.dtype.is_floating_point or tensor.dtype.is_complex)


def _layout(tensor: torch.Tensor) -> tuple[Any, ...]:
    return tensor.dtype, tensor.storage_offset(), tuple(tensor.shape), tuple(tensor.stride())


def _is_cpu(device: Any) -> bool:
    return device is not None and torch.device(device).type == "cpu"


Run = Callable[[Any, tuple[Any, ...], Mapping[str, Any]], Any]


def _run(function: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> Any:
    return function(*args, **named)


class ValuedStandIns(MetaStandIns):
    """And values where they are known."""

    def __init__(self, run: Run = _run) -> None:
        """`run`: gives what an operator makes on the meta device."""
        super().__init__()
        self.run = run
        self.values: Any = WeakTensorKeyDictionary()
        self.places: dict[int, dict[Any, torch.Tensor]] = {}
        """The same by storage and layout: what an operator has saved comes back as another tensor."""
        self.reads = False
        """A value was given: of a model of text alone none is read."""

    def known(self, tensor: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
        """The tensor, of which the values are known from now on."""
        self.values[tensor], self.reads = values, True
        storage = tensor.untyped_storage()
        if storage._cdata not in self.places:
            self.places[storage._cdata] = {}
            weakref.finalize(storage, self.places.pop, storage._cdata, None)
        self.places[storage._cdata][_layout(tensor)] = values
        return tensor

    def value_of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """None where it is not known."""
        of_storage = self.places.get(tensor.untyped_storage()._cdata)
        if of_storage is None:
            return None
        value = self.values.get(tensor)
        return of_storage.get(_layout(tensor)) if value is None and tensor.is_meta else value

    def dispatched(self, func: Any, args: Any, kwargs: Any) -> Any:
        if not self.reads:
            return super().dispatched(func, args, kwargs)
        tensors = tensors_in((args, kwargs))
        if tensors and all(each.is_meta and self.value_of(each) is None for each in tensors):
            return super().dispatched(func, args, kwargs)
        made = self._by_value(func, args, kwargs, tensors)
        made = super().dispatched(func, args, kwargs) if made is PASS else made
        if made is not PASS or not all(self._has_value(each) for each in tensors):
            return made
        return self._beside(func, args, kwargs, tensors)

    def _by_value(self, func: Any, args: Any, kwargs: Any, tensors: list[torch.Tensor]) -> Any:
        """What an operator makes of values, or PASS."""
        made: Any = PASS
        first = self.value_of(args[0]) if args and isinstance(args[0], torch.Tensor) else None
        if func is aten._local_scalar_dense.default and first is not None:
            made = first.item()
        elif func is aten._to_copy.default and first is not None and _is_cpu(kwargs.get("device")):
            made = func(first, **kwargs)
        elif func in BY_VALUE and all(self._has_value(each) for each in tensors):
            made = self._on_meta(func, args, kwargs)
        elif func in INDEXING and any(each is not None and self.value_of(each) is not None for each in args[1]):
            made = func(args[0], self._places(args[1]), *args[2:], **kwargs)
        return made

    def _has_value(self, tensor: torch.Tensor) -> bool:
        return tensor.is_cpu or self.value_of(tensor) is not None

    def _value(self, value: Any) -> Any:
        """Of arguments, on the CPU."""
        if isinstance(value, torch.Tensor):
            known = self.value_of(value)
            return value if known is None else known
        if isinstance(value, (list, tuple)):
            return type(value)([self._value(each) for each in value])
        if isinstance(value, dict):
            return {name: self._value(each) for name, each in value.items()}
        return torch.device("cpu") if isinstance(value, torch.device) else value

    def _number(self, value: Any) -> Any:
        return self._value(value).item() if isinstance(value, torch.Tensor) else value

    def _beside(self, func: Any, args: Any, kwargs: Any, tensors: list[torch.Tensor]) -> Any:
        """The result, with its values where it is whole numbers on the meta device."""
        made = self.run(func, args, kwargs)
        results = tensors_in(made)
        wanted = [each for each in results if each.is_meta]
        small = all(each.numel() <= (LARGEST if is_whole(each) else LARGEST_FLOATS) for each in wanted)
        if len(wanted) != len(results) or not wanted or not small or func is aten.empty.memory_format:
            return made
        values = func(*self._value(args), **self._value(kwargs))
        for each, value in zip(results, tensors_in(values), strict=True):
            if not any(each is other for other in tensors):
                self.known(each, value)
        return made

    def _on_meta(self, func: Any, args: Any, kwargs: Any) -> Any:
        """What an operator makes of values, by their size."""
        values = func(*self._value(args), **self._value(kwargs))

        def on_meta(value: Any) -> Any:
            return self.known(value.to("meta"), value) if isinstance(value, torch.Tensor) else value

        return tree_map(on_meta, values)

    def _places(self, indices: Any) -> list[Any]:
        """Indices in which a mask is the places where it is true."""
        result: list[Any] = []
        for each in indices:
            mask = self.value_of(each) if each is not None and each.dtype == torch.bool else None
            if mask is None:
                result.append(each)
                continue
            number, dimensions = int(mask.count_nonzero()), mask.dim()
            if number > LISTED:
                result.extend(torch.empty(number, dtype=torch.int64, device="meta") for _ in range(dimensions))
                continue
            places = mask.nonzero().unbind(1)
            result.extend(self.known(place.contiguous().to("meta"), place) for place in places)
        return result

    @contextmanager
    def made_of_lists(self) -> Iterator[None]:
        """Inside, torch.tensor on the meta device has the values that it is made of."""
        make = torch.tensor

        def tensor(data: Any, *args: Any, **named: Any) -> torch.Tensor:
            made = make(data, *args, **named)
            if made.device.type == "meta":
                made = torch.empty_like(made)  # as an operator, so that modes see it
            parts = tensors_in(data)
            if made.device.type == "meta" and is_whole(made) and all(self._has_value(each) for each in parts):
                with _disable_current_modes():  # values are nobody's memory
                    value = make(tree_map(self._number, data), dtype=made.dtype, device="cpu")
                self.known(made, value)
            return made

        torch.tensor = tensor
        try:
            yield
        finally:
            torch.tensor = make
