"""A program run on tensors without numbers: the graph that it leaves is the one that torch would have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol

from zeroplan.architectures.forward_run import MULTIPROCESSORS
from zeroplan.architectures.recorded.program import (
    ASKS,
    FLASH_FUNCTION,
    INPUT,
    LINEAR,
    READS,
    RESULT,
    Allocated,
    Backward,
    Call,
    Extent,
    GradientOf,
    Keeps,
    Layout,
    Operator,
    Program,
    Ref,
    Release,
    Result,
    Saved,
)
from zeroplan.autograd.flash import FlashPackage, flash_attention, flash_attention_of_several
from zeroplan.autograd.graph import operator, product, requires_grad, results, save_for_backward
from zeroplan.autograd.memory import Memory
from zeroplan.autograd.products import linear
from zeroplan.autograd.strides import contiguous_strides
from zeroplan.autograd.tensor import Node, Storage, Tensor
from zeroplan.autograd.tensor import given as tensor_given
from zeroplan.autograd.views import reshape_plain

WHOLE_NUMBER = 8
"""Bytes of an int64."""
NamedTensors = Callable[[str], Tensor]
"""Parameters and buffers of a run."""


class Caller(Protocol):
    """What runs a module that is called."""

    def __call__(self, call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]: ...


class Sizes:
    """Polynomials at one batch and sequence."""

    def __init__(self, memory: Memory, batch: int, seq: int) -> None:
        self.memory, self.batch, self.seq = memory, batch, seq
        self.extents: dict[Extent, int] = {}
        self.layouts: dict[int, tuple[tuple[int, ...], tuple[int, ...]]] = {}
        """Shapes and strides by the identity of a layout, which a program keeps."""
        self.numbers: dict[int, tuple[Backward, Sizes]] = {}
        """What a node has for its backward, by that."""

    def of(self, extent: Extent) -> int:
        known = self.extents.get(extent)
        if known is None:
            known = self.extents[extent] = extent.at(self.batch, self.seq)
        return known

    def with_backward(self, backward: Backward) -> tuple[Backward, Sizes]:
        """What the nodes of operators that go backward alike have beside tensors."""
        if (known := self.numbers.get(id(backward))) is None:
            known = self.numbers[id(backward)] = backward, self
        return known

    def tensor(self, layout: Layout, storage: Storage | None) -> Tensor:
        known = self.layouts.get(id(layout))
        if known is None:
            shape, strides = (tuple([self.of(each) for each in sizes]) for sizes in (layout.shape, layout.strides))
            known = self.layouts[id(layout)] = shape, strides
        return Tensor(storage, known[0], known[1], layout.width, self.memory)


Keeper = Callable[[Keeps, Sequence[Tensor]], None]
"""Has the checkpoints of layers keep tensors."""
NOTHING_MAPPED: Mapping[int, Callable[[Tensor], None]] = MappingProxyType({})


def replay(
    program: Program, inputs: Sequence[Tensor], sizes: Sizes, named: NamedTensors, call: Caller,
    keep: Keeper = lambda _step, _tensors: None, mapped: Mapping[int, Callable[[Tensor], None]] = NOTHING_MAPPED,
) -> tuple[Tensor, ...]:  # fmt: skip
    """What the program gives. `mapped`: puts a tensor, by its number, into a mapping as soon as it is made."""
    tensors: dict[int, Tensor] = dict(enumerate(inputs))
    ahead = set(mapped)
    for step in program.steps:
        if isinstance(step, Operator):
            run_operator(step, tensors, sizes, named)
        elif isinstance(step, Release):
            for number in step.tensors:
                tensors.pop(number, None)
        elif isinstance(step, Keeps):
            keep(step, [tensors[each] for each in step.tensors])
        else:
            tensors.update(zip(step.outputs, call(step, [tensors[each] for each in step.inputs]), strict=True))
        for number in ahead & tensors.keys() if ahead else ():
            ahead.remove(number)
            mapped[number](tensors[number])
    return tuple([tensors[number] for number in program.outputs])


def run_operator(step: Operator, tensors: dict[int, Tensor], sizes: Sizes, named: NamedTensors) -> None:
    """Make its results, and its node where an input needs a gradient."""
    if step.name == READS:
        return
    given = [_given(ref, tensors, sizes, named) for ref in step.inputs]
    if step.base is not None:
        written = next(each.of for each in step.results if each.is_input)
        given[written] = tensors[step.base]
    if step.name == ASKS:
        if sizes.memory.grad_enabled:
            requires_grad(given[0])
        return
    if step.name == LINEAR:
        tensors[step.results[0].number] = _linear(step, given, sizes)
        return
    if step.name.startswith(FLASH_FUNCTION):
        q, k, v, *starts = given
        how = flash_package_of(step, sizes.memory)
        tensors[step.results[0].number] = (
            flash_attention_of_several(q, k, v, starts[0], starts[1], how) if starts else flash_attention(q, k, v, how)
        )
        return
    needs = tuple([each.node is not None for each in given])
    backward = step.backward.get(needs) if any(needs) else None
    node = operator(backward.name, _backward, tuple(given), (), sizes.with_backward(backward)) if backward else None
    before = _save_inputs(node, backward, given) if backward else 0
    made = _run(step if node or step.name != EFFICIENT else _without_sums(step), given, sizes, tensors)
    if backward is not None:
        save_for_backward(node, *[_saved(each, given, made, sizes) for each in backward.saved[before:]])
        if step.base is not None:  # torch's CopySlices: the base has the node
            made = [given[written].detach()]
        results(node, tuple([each for each, gets in zip(made, backward.differentiable, strict=True) if gets]))
    if step.base is not None:
        tensors[step.base] = made[0] if backward is not None else given[written]
        return
    tensors.update(zip([each.number for each in step.results], made, strict=True))


EFFICIENT = "aten._scaled_dot_product_efficient_attention.default"


def _without_sums(step: Operator) -> Operator:
    """Attention whose kernel makes no log-sum-exp where no gradient will ask for it (compute_log_sumexp)."""
    out, sums, *rest = step.results
    return step._replace(results=(out, sums._replace(size=Extent(0)), *rest))


def flash_package_of(step: Operator, run: Any) -> FlashPackage:
    """How the package is called; its third version has no dropout."""
    _name, *told = step.name.split()
    numbers = dict(each.split("=") for each in told if "=" in each)
    dropout = float(numbers.get("dropout", 0.0)) if run.flash == 2 else 0.0
    longest = int(numbers.get("longest", 0))
    return FlashPackage(run.flash, MULTIPROCESSORS, dropout, "softcap" in told, "local" in told, step.causal, longest)


def _run(step: Operator, given: Sequence[Tensor], sizes: Sizes, there: dict[int, Tensor]) -> Sequence[Tensor]:
    """What it makes."""
    compute = partial(_results, step, given, sizes, there)
    if multiplications := sizes.of(step.flops) // 2:
        return product(sizes.memory, multiplications, compute, causal=step.causal)
    return compute()


def _results(step: Operator, given: Sequence[Tensor], sizes: Sizes, there: dict[int, Tensor]) -> tuple[Tensor, ...]:
    return tuple([
        there[each.number].detach() if each.is_there else _made(each, given, sizes) for each in step.results
    ])


def _given(ref: Ref, tensors: dict[int, Tensor], sizes: Sizes, named: NamedTensors) -> Tensor:
    if isinstance(ref, int):
        return tensors[ref]
    return named(ref) if ref is not None else Tensor(None, (), (), 1, sizes.memory)


def _linear(step: Operator, given: list[Tensor], sizes: Sizes) -> Tensor:
    x, weight, *bias = given
    return linear(x if step.inputs[0] is not None else input_of_model(step, sizes, weight.shape[1]), weight, *bias)


def input_of_model(step: Operator, sizes: Sizes, *columns: int) -> Tensor:
    """What a linear function (of `columns`) or an embedding is given that no program has: pixels, or whole numbers."""
    result = sizes.tensor(step.results[0].layout, None)
    return tensor_given(sizes.memory, (*result.shape[:-1], *columns), result.width if columns else WHOLE_NUMBER)


def _made(result: Result, given: Sequence[Tensor], sizes: Sizes) -> Tensor:
    if result.is_input:
        return given[result.of].detach()
    if result.of >= 0:
        return sizes.tensor(result.layout, given[result.of].storage)
    size = sizes.of(result.size)
    return sizes.tensor(result.layout, Storage(sizes.memory, size) if result.counted else None)


def _save_inputs(node: Node | None, backward: Backward, given: Sequence[Tensor]) -> int:
    """Save what an operator saves before it runs, its inputs; how many these are."""
    for at, each in enumerate(backward.saved):
        if each.kind != INPUT:
            return at
        save_for_backward(node, given[each.at])
    return len(backward.saved)


def _saved(saved: Saved, given: Sequence[Tensor], made: Sequence[Tensor], sizes: Sizes) -> Tensor:
    if saved.kind == INPUT:
        return given[saved.at]
    if saved.kind == RESULT:
        return made[saved.at]
    return sizes.tensor(saved.layout, Storage(sizes.memory, sizes.of(saved.size)))


def _backward(gradient: Any, *kept: Any) -> tuple[Tensor | None, ...]:
    """The storages that it makes, one after the other, and of them the gradients."""
    *_saved_tensors, backward, sizes, _needs = kept
    gradients = gradient if isinstance(gradient, list) else [gradient]
    there = next(each for each in gradients if each is not None)
    return run_backward(backward, sizes, [each or there for each in gradients])


VIEWS = ("ViewBackward", "UnsafeViewBackward")
"""Backward of a view of other dimensions: torch copies a gradient whose strides do not allow it."""


def handed_on(name: str, gradient: Tensor, recorded: Tensor) -> Tensor:
    """What a result's gradient is to an input, where it has its bytes; `recorded`: that of a contiguous one."""
    if gradient.is_contiguous:
        return recorded
    if name in VIEWS:
        return reshape_plain(gradient, recorded.shape)
    lies = contiguous_strides(gradient.shape)
    places = {(stride, size): at for at, (stride, size) in enumerate(zip(lies, gradient.shape, strict=True))}
    by_stride = {stride: at for at, stride in enumerate(lies)}

    def stride(of: int, size: int) -> int:
        at = places.get((of, size), by_stride.get(of, -1))
        return gradient.strides[at] if of and at >= 0 else of

    strides = tuple([stride(of, size) for of, size in zip(recorded.strides, recorded.shape, strict=True)])
    return gradient.as_strided(recorded.shape, strides)


def run_backward(backward: Backward, sizes: Sizes, gradients: Sequence[Tensor]) -> tuple[Tensor | None, ...]:
    """`gradients`: of all results that have one."""
    sizes.memory.add_flops(sizes.of(backward.flops) // 2, causal=backward.causal)
    stays = {each.at for each in backward.gradients if each is not None and each.made}
    made: dict[int, Storage] = {}
    for step in backward.steps:
        if isinstance(step, Allocated):
            made[step.number] = Storage(sizes.memory, sizes.of(step.size))
        elif step.number not in stays:
            made.pop(step.number, None)

    def gradient(of: GradientOf | None) -> Tensor | None:
        if of is None:
            return None
        whole = sizes.tensor(of.layout, made[of.at] if of.made else gradients[of.at].storage)
        return whole if of.made else handed_on(backward.name, gradients[of.at], whole)

    return tuple([gradient(each) for each in backward.gradients])
