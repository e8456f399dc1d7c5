"""One forward pass of a model on the meta device, recorded module by module as a program of operators.

What operators save for backward is dropped as they save it, so that a storage goes when Python lets go of it: how long
it lives beyond that follows from what is saved, which `experiments` has.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils.weak import WeakTensorKeyDictionary

from zeroplan.architectures.recorded.program import (
    ASKS,
    FLASH_FUNCTION,
    FUNCTION,
    LINEAR,
    READS,
    Extent,
    Keeps,
    Operator,
    Program,
    Ref,
    Release,
    Result,
)
from zeroplan.verify.inputs import Inputs
from zeroplan.verify.recording.calls import GivenTensor, Like, Opened, Programs
from zeroplan.verify.recording.experiments import Call as OperatorCall
from zeroplan.verify.recording.experiments import Experiments
from zeroplan.verify.recording.flash_package import flash_package
from zeroplan.verify.recording.lies import Lies, emptied, is_tensor
from zeroplan.verify.recording.products import flops, is_causal
from zeroplan.verify.recording.registered import outside
from zeroplan.verify.stand_ins import PASS
from zeroplan.verify.values import INDEXING, ValuedStandIns, tensors_in

Given = tuple[torch.nn.Module, MutableMapping[Any, Any]]
"""A layer, and a mapping that it is given."""


class Recorder(TorchDispatchMode):  # type: ignore[misc, unused-ignore]
    """Operators as torch runs them, each in the call of a module that it belongs to."""

    def __init__(
        self, model: torch.nn.Module, inputs: dict[str, torch.Tensor], stand_ins: ValuedStandIns,
        experiments: Experiments, alike: Mapping[str, Like],
    ) -> None:  # fmt: skip
        """`alike`: layers that return what they are given, by the layer before them whose program they run."""
        super().__init__()
        self.model, self.stand_ins, self.cache = model, stand_ins, experiments.cache
        self.names = {
            tensor.untyped_storage()._cdata: name
            for several in (model.named_parameters(), model.named_buffers())
            for name, tensor in several
        }
        self.given = {tensor.untyped_storage()._cdata for tensor in inputs.values() if is_tensor(tensor)}
        self.numbers: Any = WeakTensorKeyDictionary()
        self.places: dict[int, dict[Lies, int]] = {}
        """Tensors by their storage, and how they lie in it."""
        self.storages: dict[int, list[int]] = {}
        """Tensors by the storage that they have."""
        self.first: dict[int, Lies] = {}
        self.gone: list[int] = []
        self.live: dict[int, Any] = {}
        """What says that a storage goes, by the storage."""
        self.count = 0
        self.calls: dict[int, tuple[OperatorCall, list[int], list[Lies]]] = {}
        """Those of operators that may have a node, by identity: they cannot run again before the pass is over."""
        self.programs = Programs(self.calls, experiments, alike)
        self.alike = alike
        self.packed: list[Ref] | None = None
        """What a function written in Python saves, while it runs."""
        self.asking: set[int] = set()
        """Tensors that the model's own code has ask for a gradient."""
        self.in_mappings: set[int] = set()
        """Tensors in mappings that layers are given."""
        self.inside = False
        """An operator runs that is recorded as a whole."""
        self.root = Opened("")
        self.open = [self.root]

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = kwargs or {}
        if not self.inside:
            self.let_go()
        made = self.stand_ins.dispatched(func, args, named)
        result = self.cache.run(func, args, named) if made is PASS else made
        if not self.inside:
            count = flops(func, args, named, result)
            self.see(func, args, named, result, flops=Extent(count), causal=is_causal(func, args, named))
        return result

    def see(self, func: Any, args: Any, named: Any, result: Any, **of_product: Any) -> None:
        """One call; what is not made on the device is left out."""
        results = tensors_in(result)
        if any(each.is_meta for each in results):
            self.record(func, (args, named), results, **of_product)

    @contextmanager
    def as_one(self) -> Iterator[None]:
        """Operators that run inside are not recorded: what calls them is, as a whole."""
        self.let_go()
        self.inside = True
        try:
            yield
        finally:
            self.inside = False

    def linear(self, otherwise: Callable[..., Any]) -> Callable[..., Any]:
        """torch.nn.functional.linear, as one operator: what runs for it is stage 3's choice."""

        def run(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> Any:
            with self.as_one():
                result = otherwise(x, weight, bias)
            args = (x, weight) if bias is None else (x, weight, bias)
            name = LINEAR if torch.is_grad_enabled() else ""  # inside a function it has no node
            self.see(otherwise, args, {}, result, flops=Extent(2 * x.numel() * weight.shape[0]), name=name)
            return result

        return run

    def flash_attention(
        self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *starts: torch.Tensor, dropout: float, softcap: bool,
        local: bool, causal: bool, contiguous: bool, longest: int = 0,
    ) -> torch.Tensor:  # fmt: skip
        """The flash-attention package's function, as one operator; `starts`: of sequences that lie in one row."""
        with self.as_one():
            result = attended(q, k, v)
            result = result.contiguous() if contiguous else result
        told = [f"dropout={dropout}"] * (dropout > 0) + ["softcap"] * softcap + ["local"] * local
        told += [f"longest={longest}"] * bool(starts)
        name = " ".join([FLASH_FUNCTION, *told])
        self.see(attended, (q, k, v, *starts), {}, result, flops=Extent(0), causal=causal, name=name)
        return result

    def function(self, otherwise: Any) -> Any:
        """`apply` of torch.autograd.Function: its operators have no nodes, and what it returns gets one of its own."""

        def run(cls: type[torch.autograd.Function], *args: Any, **named: Any) -> Any:
            apply = otherwise.__get__(None, cls)
            if not torch.is_grad_enabled() or self.packed is not None:
                return apply(*args, **named)
            self.packed = []
            try:
                result = apply(*args, **named)
            finally:
                packed, self.packed = self.packed, None
            if any(each.requires_grad for each in tensors_in(result)):
                self.attach(apply, args, named, result, packed)
            return result

        return classmethod(run)

    def attach(
        self, apply: Callable[..., Any], args: Any, named: Any, result: Any, packed: Sequence[Ref]
    ) -> None:  # fmt: skip
        """The node of a function, on tensors that are there: it saves some that its operators made in between, which
        are let go of after it.
        """
        inputs = tensors_in((args, named))
        results = tensors_in(result)
        refs, numbers = [self.ref(each) for each in inputs], [self.ref(each) for each in results]
        between = [ref for ref in dict.fromkeys(packed) if isinstance(ref, int) and ref not in (*refs, *numbers)]
        made = tuple([
            Result(number, Lies.of(each).layout, Extent(0), is_there=True)
            for number, each in zip(numbers, results, strict=True) if isinstance(number, int)
        ])  # fmt: skip
        step = Operator(FUNCTION, (*refs, *between), made, {})
        self.open[-1].steps.append(step)
        arguments = emptied((args, named))
        call = OperatorCall(apply, arguments, tuple([Lies.of(each) for each in inputs]), in_place=False)
        order: dict[Any, int] = {}
        may_need = [
            order.setdefault(ref, len(order)) if each.requires_grad else -1
            for ref, each in zip(refs, inputs, strict=True)
        ]
        self.calls[id(step)] = call, may_need, [self.first[each] for each in between]

    def pack(self, tensor: torch.Tensor) -> None:
        """What an operator saves is dropped; of a function it is noted."""
        if self.packed is not None:
            self.packed.append(self.ref(tensor))

    def record(
        self, func: Any, given: Any, results: list[torch.Tensor], *, flops: Extent, causal: bool = False, name: str = ""
    ) -> None:  # fmt: skip
        inputs = tensors_in(given)
        storages = [each.untyped_storage()._cdata for each in inputs]
        refs = tuple(map(self.ref, inputs, storages))
        self.see_asking(inputs, refs)
        written = next((at for each in results for at, tensor in enumerate(inputs) if tensor is each), -1)
        base = self.base_of(inputs[written]) if written >= 0 else None
        order: dict[Any, int] = {}
        of = [base if base is not None and at == written else ref for at, ref in enumerate(refs)]
        may_need = [-1] * len(inputs)
        for at, ref in enumerate(of):
            if inputs[at].requires_grad:
                may_need[at] = order.setdefault(ref, len(order))
        made = tuple([self.result(each, inputs, storages) for each in results])
        step = Operator(name or str(func), refs, made, {}, base, flops, causal)
        self.open[-1].steps.append(step)
        may_have = any(each.dtype.is_floating_point or each.dtype.is_complex for each in results)
        if order and may_have and torch.is_grad_enabled():
            call = OperatorCall(
                func, emptied(given), tuple(map(Lies.of, inputs)), written >= 0,
                self.first[base] if base is not None else None, written, self.values(func, inputs),
            )  # fmt: skip
            self.calls[id(step)] = call, may_need, []
        new = [each.number for each in made if not each.is_input]
        for opened in self.open:
            opened.made.update(new)

    def read(self, parameter: torch.Tensor) -> None:
        """A module takes a parameter that no module which runs has."""
        opened = self.open[-1]
        if not self.inside and not any(id(parameter) in each.gathered for each in self.open):
            opened.gathered.add(id(parameter))
            opened.steps.append(Operator(READS, (self.ref(parameter),), (), {}))

    def see_asking(self, inputs: Sequence[torch.Tensor], refs: Sequence[Ref]) -> None:
        """Those that ask for a gradient and follow from nothing, as all do inside a function written in Python."""
        for ref, each in zip(refs, inputs, strict=True) if self.packed is None else ():
            if isinstance(ref, int) and each.requires_grad and each.is_leaf and ref not in self.asking:
                self.asking.add(ref)
                self.open[-1].steps.append(Operator(ASKS, (ref,), (), {}))

    def values(self, func: Any, inputs: Sequence[torch.Tensor]) -> tuple[tuple[int, torch.Tensor], ...]:
        """Of the inputs whose values decide what an operator makes."""
        if func not in INDEXING:
            return ()
        values = ((at, self.stand_ins.value_of(each)) for at, each in enumerate(inputs))
        return tuple([(at, value) for at, value in values if value is not None])

    def result(self, tensor: torch.Tensor, inputs: list[torch.Tensor], storages: list[int]) -> Result:
        storage, lies = tensor.untyped_storage(), Lies.of(tensor)
        same = next((at for at, each in enumerate(inputs) if each is tensor), -1)
        if same >= 0:
            return Result(self.numbers.get(tensor, -1), lies.layout, Extent(0), same, is_input=True)
        of = storages.index(storage._cdata) if storage._cdata in storages else -1
        size = Extent(0 if of >= 0 else storage.nbytes())
        return Result(self.number(tensor, storage, lies), lies.layout, size, of, counted=tensor.is_meta)

    def number(self, tensor: torch.Tensor, storage: torch.UntypedStorage, lies: Lies) -> int:
        """A new one."""
        key, number = storage._cdata, self.count
        self.count += 1
        self.first[number] = lies
        self.numbers[tensor] = self.places.setdefault(key, {})[lies] = number
        self.storages.setdefault(key, []).append(number)
        if key not in self.live and key not in self.names and key not in self.given:
            self.live[key] = weakref.ref(storage, partial(_goes, self.gone, key))
        return number

    def ref(self, tensor: torch.Tensor, key: int = 0) -> Ref:
        """`key`: its storage, where that is at hand."""
        key = key or tensor.untyped_storage()._cdata
        number = self.numbers.get(tensor)
        if number is None and key in self.places:
            number = self.places[key].get(Lies.of(tensor))
        return self.names.get(key) if number is None else int(number)

    def refs(self, values: Any) -> tuple[int, ...]:
        """Tensors of the program among them."""
        refs = [self.ref(each) for each in tensors_in(values)]
        return tuple([ref for ref in refs if isinstance(ref, int)])

    def base_of(self, tensor: torch.Tensor) -> int | None:
        """What it is a view of for autograd, where that was made."""
        base = self.ref(tensor._base) if tensor._base is not None else None
        return base if isinstance(base, int) else None

    def let_go(self) -> None:
        """Storages of which Python had the last reference."""
        while self.gone:
            key = self.gone.pop(0)
            self.live.pop(key, None)
            self.open[-1].steps.append(Release(tuple(self.storages.pop(key, ()))))
            self.places.pop(key, None)

    def staying(self, loss: torch.Tensor) -> list[int]:
        """What modules keep of a pass, by one tensor of each storage: not what the graph keeps, as it asks for a
        gradient, or a checkpoint, as it is in a mapping.
        """
        others = self.live.keys() - {loss.untyped_storage()._cdata}
        kept = (self.storages[key] for key in self.storages if key in others)
        return [numbers[0] for numbers in kept if (self.asking | self.in_mappings).isdisjoint(numbers)]

    def as_given(self, result: Any, closed: Opened) -> Any:
        """What a call returns, each of its tensors by its place among those given; one that is made is the first."""
        if not all(each is None or is_tensor(each) for each in tree_leaves(result)):
            return None
        refs = closed.tensors

        def place(tensor: torch.Tensor | None) -> GivenTensor | None:
            if tensor is None:
                return None
            ref = self.ref(tensor)
            return GivenTensor(refs.index(ref) if ref in refs else 0)

        return tree_map(place, result)

    def see_mappings(self, given: Sequence[Given]) -> None:
        """What is in mappings that layers are given, once all have run."""
        paths = {module: path for path, module in self.model.named_modules()} if given else {}
        mappings = {id(mapping): mapping for _layer, mapping in given}
        for key, mapping in mappings.items():
            layers = tuple([paths[layer] for layer, each in given if id(each) == key])
            tensors = tuple(dict.fromkeys(self.refs(list(mapping.values()))))
            around = _around(self.root, layers[0])
            if tensors and around is not None:
                self.in_mappings.update(tensors)
                around.steps.append(Keeps(layers, tensors))

    @contextmanager
    def hooked(self) -> Iterator[None]:
        def enter(path: str) -> Any:
            def hook(module: Any, inputs: Any, named: Any) -> None:
                self.let_go()
                self.open.append(Opened(path))
                self.open[-1].gathered.update(map(id, module._parameters.values()))
                self.open[-1].positional = self.refs(inputs)
                tensors = self.open[-1].tensors = tuple(map(self.ref, tensors_in((inputs, named))))
                self.open[-1].given = tuple([ref for ref in tensors if isinstance(ref, int)])

            return hook

        def leave(_module: Any, _inputs: Any, result: Any) -> None:
            self.let_go()
            closed = self.open.pop()
            closed.returned = self.refs(result)
            closed.result = self.as_given(result, closed)
            self.open[-1].steps.append(closed)

        handles, linear = [], functional.linear
        apply = torch.autograd.Function.__dict__["apply"]
        functional.linear = self.linear(linear)
        torch.autograd.Function.apply = self.function(apply)
        for path, module in outside(self.model, self.alike):
            vars(module)["_parameters"] = Parameters(module._parameters, self.read)
            handles.append(module.register_forward_pre_hook(enter(path), with_kwargs=True))
            handles.append(module.register_forward_hook(leave))
            if path in self.alike:
                module.forward = partial(_as_given, self.alike[path].result)
        try:
            with flash_package(self.flash_attention):
                yield
        finally:
            functional.linear, torch.autograd.Function.apply = linear, apply
            for handle in handles:
                handle.remove()
            for path in self.alike:
                del self.model.get_submodule(path).forward
            for module in self.model.modules():
                vars(module)["_parameters"] = dict(module._parameters)


class Parameters(dict[str, Any]):
    """A module's own, each of which is seen as it is taken by name, as DeepSpeed's ZeROOrderedDict does."""

    def __init__(self, parameters: Mapping[str, Any], read: Callable[[torch.Tensor], None]) -> None:
        super().__init__(parameters)
        self.read = read

    def __getitem__(self, name: str) -> Any:
        parameter = super().__getitem__(name)
        if parameter is not None:
            self.read(parameter)
        return parameter


def _goes(gone: list[int], key: int, _dead: Any) -> None:
    """Note that a storage goes. A method of the recorder would be a cycle, which keeps the recorder after its pass."""
    gone.append(key)


def attended(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *_starts: torch.Tensor) -> torch.Tensor:
    """A tensor like the queries, which follows from all three."""
    return q + (k.sum() + v.sum())


def _as_given(result: Any, *args: Any, **named: Any) -> Any:
    """What a layer returns, with the first tensor that it is given for the one that it makes."""
    tensors = tensors_in((args, named))
    return tree_map(lambda each: tensors[each.at] if isinstance(each, GivenTensor) else each, result)


def _around(opened: Opened, path: str) -> Opened | None:
    """The call in which the module of that path is called."""
    below = [step for step in opened.steps if isinstance(step, Opened)]
    if any(step.path == path for step in below):
        return opened
    return next((found for step in below if (found := _around(step, path)) is not None), None)


@contextmanager
def uncollected() -> Iterator[None]:
    """Cycles stay until they are asked for: when the collector comes by itself follows from what ran before."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def record(
    model: torch.nn.Module, inputs: Inputs, experiments: Experiments, alike: Mapping[str, Like] | None = None,
    given: Sequence[Given] = (),
) -> Program:  # fmt: skip
    """The program of the model's forward, of which its loss is left. `alike`: as `identical_layers` gives it; `given`:
    mappings that layers have been given when the model has run.
    """
    return recorded(model, inputs, experiments, alike or {}, given)[0]


def recorded(
    model: torch.nn.Module, inputs: Inputs, experiments: Experiments, alike: Mapping[str, Like],
    given: Sequence[Given] = (),
) -> tuple[Program, Recorder]:  # fmt: skip
    stand_ins = ValuedStandIns(experiments.cache.run)
    for name, value in inputs.values.items():
        stand_ins.known(inputs.tensors[name], value)
    recorder = Recorder(model, inputs.tensors, stand_ins, experiments, alike)
    saving_nothing = torch.autograd.graph.saved_tensors_hooks(recorder.pack, lambda _dropped: None)
    with saving_nothing, recorder, recorder.hooked(), stand_ins.made_of_lists(), uncollected():
        output = model(**inputs.tensors)
        loss = output.loss
        del output
        gc.collect(0)  # the youngest objects are those of the pass, as the collector does not run meanwhile
        recorder.let_go()
        last = recorder.ref(loss)
        recorder.see_mappings(given)
        stay = recorder.staying(loss)
    assert isinstance(last, int)
    program, _given, made = recorder.programs.of(recorder.root, {last, *stay})
    outputs = [program.outputs[made.index(each)] for each in (last, *stay)]
    return program._replace(outputs=tuple(outputs)), recorder
