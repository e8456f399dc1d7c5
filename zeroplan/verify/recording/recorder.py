"""One forward pass of a model on the meta device, recorded module by module as a program of operators.

What operators save for backward is dropped as they save it, so that a storage goes when Python lets go of it: how long
it lives beyond that follows from what is saved, which `experiments` has.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from zeroplan.architectures.recorded.program import Call, Extent, Operator, Program, Ref, Release, Result
from zeroplan.verify.recording.experiments import Call as OperatorCall
from zeroplan.verify.recording.experiments import Experiments, Lies, Place, is_tensor
from zeroplan.verify.stand_ins import PASS, MetaStandIns


class Opened:
    """A call of a module that is being recorded: operators, calls and releases, with tensors numbered throughout."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.steps: list[Any] = []
        self.made: set[int] = set()
        """Tensors that were made in it, or below it."""
        self.positional: tuple[int, ...] = ()
        self.given: tuple[int, ...] = ()
        """By position and by name, whether they are used or not: a checkpoint keeps them."""
        self.returned: tuple[int, ...] = ()


class Recorder(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    """Operators as torch runs them, each in the call of a module that it belongs to."""

    def __init__(self, model: torch.nn.Module, inputs: dict[str, torch.Tensor], stand_ins: MetaStandIns) -> None:
        super().__init__()
        self.model, self.stand_ins = model, stand_ins
        self.experiments = Experiments(stand_ins)
        self.names = {
            tensor.untyped_storage()._cdata: name
            for several in (model.named_parameters(), model.named_buffers())
            for name, tensor in several
        }
        self.given = {tensor.untyped_storage()._cdata for tensor in inputs.values() if is_tensor(tensor)}
        self.numbers: Any = WeakTensorKeyDictionary()
        self.places: dict[Any, int] = {}
        self.storages: dict[int, list[int]] = {}
        """Tensors by the storage that they have."""
        self.first: dict[int, Lies] = {}
        self.gone: list[int] = []
        self.live: set[int] = set()
        self.count = 0
        self.calls: dict[int, tuple[OperatorCall, list[int]]] = {}
        """Those of operators that may have a node, by identity: they cannot run again before the pass is over."""
        self.root = Opened("")
        self.open = [self.root]

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.let_go()
        named = kwargs or {}
        made = self.stand_ins.dispatched(func, args, named)
        result = func(*args, **named) if made is PASS else made
        results = [each for each in tree_flatten(result)[0] if is_tensor(each)]
        inputs = [each for each in tree_flatten((args, named))[0] if is_tensor(each)]
        if any(each.device.type == "meta" for each in results):
            arguments = tree_map(lambda each: Place() if is_tensor(each) else each, (args, named))
            self.record(func, arguments, inputs, results)
        return result

    def record(self, func: Any, arguments: Any, inputs: list[torch.Tensor], results: list[torch.Tensor]) -> None:
        storages = [each.untyped_storage()._cdata for each in inputs]
        refs = tuple([self.ref(each) for each in inputs])
        written = next((at for each in results for at, tensor in enumerate(inputs) if tensor is each), -1)
        base = self.base_of(inputs[written]) if written >= 0 else None
        call = OperatorCall(
            func, arguments, tuple([Lies.of(each) for each in inputs]), written >= 0,
            self.first[base] if base is not None else None, written,
        )  # fmt: skip
        order: dict[Any, int] = {}
        of = [base if base is not None and at == written else ref for at, ref in enumerate(refs)]
        may_need = [-1] * len(inputs)
        for at, ref in enumerate(of):
            if inputs[at].requires_grad:
                may_need[at] = order.setdefault(ref, len(order))
        made = tuple([self.result(each, inputs, storages) for each in results])
        self.open[-1].steps.append(Operator(str(func), refs, made, {}, base))
        may_have = any(each.dtype.is_floating_point or each.dtype.is_complex for each in results)
        if order and may_have and torch.is_grad_enabled():
            self.calls[id(self.open[-1].steps[-1])] = call, may_need
        for opened in self.open:
            opened.made.update(each.number for each in made if not each.is_input)

    def result(self, tensor: torch.Tensor, inputs: list[torch.Tensor], storages: list[int]) -> Result:
        storage, layout = tensor.untyped_storage(), Lies.of(tensor).layout
        same = next((at for at, each in enumerate(inputs) if each is tensor), -1)
        if same >= 0:
            return Result(self.numbers.get(tensor, -1), layout, Extent(0), same, is_input=True)
        of = storages.index(storage._cdata) if storage._cdata in storages else -1
        size = Extent(0 if of >= 0 else storage.nbytes())
        return Result(self.number(tensor), layout, size, of, counted=tensor.device.type == "meta")

    def number(self, tensor: torch.Tensor) -> int:
        """A new one."""
        storage = tensor.untyped_storage()
        key, number = storage._cdata, self.count
        self.count += 1
        self.numbers[tensor] = self.places[key, Lies.of(tensor)] = number
        self.storages.setdefault(key, []).append(number)
        self.first[number] = Lies.of(tensor)
        if key not in self.live and key not in self.names and key not in self.given:
            self.live.add(key)
            weakref.finalize(storage, self.gone.append, key)
        return number

    def ref(self, tensor: torch.Tensor) -> Ref:
        key = tensor.untyped_storage()._cdata
        if tensor in self.numbers:
            return int(self.numbers[tensor])
        if (number := self.places.get((key, Lies.of(tensor)))) is not None:
            return number
        return self.names.get(key)

    def refs(self, values: Any) -> tuple[int, ...]:
        """Tensors of the program among them."""
        refs = [self.ref(each) for each in tree_flatten(values)[0] if is_tensor(each)]
        return tuple([ref for ref in refs if isinstance(ref, int)])

    def base_of(self, tensor: torch.Tensor) -> int | None:
        """What it is a view of for autograd, where that was made."""
        base = self.ref(tensor._base) if tensor._base is not None else None
        return base if isinstance(base, int) else None

    def let_go(self) -> None:
        """Storages of which Python had the last reference."""
        while self.gone:
            key = self.gone.pop(0)
            self.live.discard(key)
            self.open[-1].steps.append(Release(tuple(self.storages.pop(key, ()))))
            self.places = {place: number for place, number in self.places.items() if place[0] != key}

    @contextmanager
    def hooked(self) -> Iterator[None]:
        def enter(path: str) -> Any:
            def hook(_module: Any, inputs: Any, named: Any) -> None:
                self.let_go()
                self.open.append(Opened(path))
                self.open[-1].positional, self.open[-1].given = self.refs(inputs), self.refs((inputs, named))

            return hook

        def leave(_module: Any, _inputs: Any, result: Any) -> None:
            self.let_go()
            closed = self.open.pop()
            closed.returned = self.refs(result)
            self.open[-1].steps.append(closed)

        handles = []
        for path, module in self.model.named_modules():
            handles.append(module.register_forward_pre_hook(enter(path), with_kwargs=True))
            handles.append(module.register_forward_hook(leave))
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()


def record(model: torch.nn.Module, inputs: dict[str, torch.Tensor]) -> Program:
    """The program of the model's forward, of which its loss is left."""
    recorder = Recorder(model, inputs, MetaStandIns())
    dropped = object()
    saving_nothing = torch.autograd.graph.saved_tensors_hooks(lambda _tensor: dropped, lambda _dropped: None)
    with saving_nothing, recorder, recorder.hooked():
        output = model(**inputs)
        loss = output.loss
        del output
        gc.collect()
        recorder.let_go()
        last = recorder.ref(loss)
    assert isinstance(last, int)
    return localized(recorder.root, recorder, {last})[0]


def localized(opened: Opened, recorder: Recorder, wanted: set[int]) -> tuple[Program, tuple[int, ...], tuple[int, ...]]:
    """The call with tensors numbered within it, and what its inputs and outputs are outside.

    `wanted`: what is used later.
    """
    later = [wanted]
    for step in reversed(opened.steps):
        later.append(later[-1] | _used(step))
    later.reverse()
    inner: list[Any] = []
    for step, after in zip(opened.steps, later[1:], strict=True):
        inner.append(localized(step, recorder, after) if isinstance(step, Opened) else step)
    used = (number for step in opened.steps for number in _in_order(step) if number not in opened.made)
    inputs = tuple(dict.fromkeys((*opened.given, *used)))
    numbers = {number: at for at, number in enumerate(inputs)}

    def local(number: int) -> int:
        return numbers.setdefault(number, len(numbers))

    prefix = f"{opened.path}." if opened.path else ""
    steps: list[Operator | Call | Release] = []
    for step, made in zip(opened.steps, inner, strict=True):
        if isinstance(step, Opened):
            program, given, outputs = made
            path = step.path.removeprefix(prefix)
            inside = tuple(map(local, given)), tuple(map(local, outputs))
            of_hooks = (tuple([local(each) for each in several if each in numbers])
                        for several in (step.positional, step.returned))  # fmt: skip
            steps.append(Call(path, program, *inside, *of_hooks))
        elif isinstance(step, Release):
            if there := tuple([numbers[each] for each in step.tensors if each in numbers]):
                steps.append(Release(there))
        else:
            refs = tuple([_local_ref(ref, local, prefix) for ref in step.inputs])
            results = tuple([each._replace(number=local(each.number)) for each in step.results])
            base = None if step.base is None else local(step.base)
            call = recorder.calls.get(id(step))
            backward = recorder.experiments.backward(*call) if call else {}
            steps.append(Operator(step.name, refs, results, backward, base))
    outputs = tuple(sorted(opened.made & wanted))
    return Program(len(inputs), tuple(steps), tuple(map(local, outputs))), inputs, outputs


def _local_ref(ref: Ref, local: Any, prefix: str) -> Ref:
    if isinstance(ref, int):
        return int(local(ref))
    if ref is None:
        return None
    return ref.removeprefix(prefix) if ref.startswith(prefix) else f"/{ref}"


def _in_order(step: Any) -> Iterator[int]:
    if isinstance(step, Opened):
        yield from step.given
        for each in step.steps:
            yield from (number for number in _in_order(each) if number not in step.made)
            if isinstance(each, Release):
                yield from (number for number in each.tensors[:1] if number not in step.made)
    elif isinstance(step, Operator):
        yield from (ref for ref in step.inputs if isinstance(ref, int))
        if step.base is not None:
            yield step.base


def _used(step: Any) -> set[int]:
    """And what Python holds until then, by one of the tensors that have its storage."""
    return set(step.tensors[:1]) if isinstance(step, Release) else set(_in_order(step))
