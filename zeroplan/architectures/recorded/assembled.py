"""A tree of modules made of a recording, which runs, and is walked, as a described family's is.

Torch's own linear layers, embeddings and dropouts are the described ones: DeepSpeed, peft and bitsandbytes put others
in their place. All else replays what was recorded of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from zeroplan.architectures.module import SAVES, Buffer, Dropout, Embedding, Linear, Module, Parameter
from zeroplan.architectures.recorded.flow import CallFlow, ProgramFlow, all_needed
from zeroplan.architectures.recorded.layers import number_layers
from zeroplan.architectures.recorded.modules import (
    ModuleRecord,
    Recorded,
    RecordedLayer,
    RecordedModel,
    StillParameter,
    descendant,
    named_parameter,
)
from zeroplan.architectures.recorded.program import INPUT, READS, Call, Operator, Program
from zeroplan.architectures.recorded.program import LINEAR as LINEAR_FUNCTION

WEIGHT_AND_BIAS = ("weight", "bias")
LINEAR, EMBEDDING, DROPOUT = (
    "torch.nn.modules.linear.Linear", "torch.nn.modules.sparse.Embedding", "torch.nn.modules.dropout.Dropout",
)  # fmt: skip


def assemble(record: ModuleRecord, program: Program, input_embeddings: tuple[str, ...] = ()) -> Module:
    """The tree, with `program` as the outermost module's."""
    root = _module(record, {}, outermost=True)
    vars(root)["input_embeddings"] = input_embeddings
    places = [at for at, step in enumerate(program.steps) if isinstance(step, Call)]
    inner = next(call for call in (program.steps[at] for at in places) if isinstance(call, Call) and not call.module)
    of_inner = next(at for at, place in enumerate(places) if program.steps[place] is inner)
    flow = ProgramFlow().calls(program)[of_inner]
    for _path, module in root.named_modules():
        vars(module).update(called=False, root=root)
    _describe(root, inner, flow, {})
    loss, *kept = (inner.outputs.index(number) for number in program.outputs)
    vars(root).update(program=inner.program, takes_gradient=False, loss=loss, kept=tuple(kept))
    number_layers(root, inner.program)
    return root


def _module(
    record: ModuleRecord, parameters: dict[int, Parameter], *, outermost: bool = False, within: bool = False
) -> Module:
    """`within`: a layer is around it."""
    shapes = {each.name: each.shape for each in record.parameters}
    if record.module_class == LINEAR:
        outputs, inputs = shapes["weight"]
        module: Module = Linear(inputs, outputs, bias="bias" in shapes)
    elif record.module_class == EMBEDDING:
        module = Embedding(*shapes["weight"])
    elif record.module_class == DROPOUT:
        module = Dropout(record.number)
    else:
        module = RecordedModel() if outermost else RecordedLayer() if record.checkpoints else Recorded()
        vars(module).update(transformers_class=record.module_class, is_within=within)
    for name, shape, number, trains in record.parameters:
        own = module.parameters.get(name) or Parameter(*shape) if trains else StillParameter(*shape)
        module.parameters[name] = own if number is None else parameters.setdefault(number, own)
        vars(module)[name] = module.parameters[name]
    for name, size, dtype in record.buffers:
        module.buffers[name] = Buffer(size, dtype)
    for name, child in record.children:
        module.children[name] = _module(child, parameters, within=within or record.checkpoints)
    return module


class _OfCall(NamedTuple):
    """What follows from a program and the flow through one call, whichever of identical modules runs it."""

    order: tuple[str, ...]
    """Parameters and buffers that it reads, modules, and tensors saved."""
    modules: frozenset[str]
    distant: tuple[str, ...]
    """Names of what is registered elsewhere."""
    takes: tuple[str, ...]
    """Names of parameters elsewhere that it takes and no operator reads."""
    below: tuple[Call, ...]
    calls_linear: bool
    saves_views: bool


Known = dict[tuple[int, frozenset[int]], _OfCall]
"""By the identity of a program, and places of its operators that give parameters no gradient."""


def _of_call(program: Program, idle: frozenset[int], known: Known) -> _OfCall:
    if (key := (id(program), idle)) not in known:
        order, below = tuple(_order(program, idle)), tuple([step for step in program.steps if isinstance(step, Call)])
        distant = [name for name in dict.fromkeys(order) if "." in name or name.startswith("/")]
        known[key] = _OfCall(
            order, frozenset([call.module for call in below]), tuple(distant), tuple(_taken(program)), below,
            any(map(_is_linear_with_bias, program.steps)), _saves_views(program),
        )  # fmt: skip
    return known[key]


def _describe(module: Module, call: Call, flow: CallFlow, known: Known) -> None:
    """What a walk reads of a module, by its call."""
    of_call = _of_call(call.program, flow.idle, known)
    read = {name: it for name in of_call.distant if (it := named_parameter(module, name)) is not None}
    taken = [named_parameter(module, name) for name in of_call.takes]
    borrowed = [each for each in dict.fromkeys((*taken, *read.values())) if each is not None]
    there = {SAVES, *of_call.modules, *module.parameters, *read}  # buffers are not
    order = [name for name in of_call.order if name in there]
    last = max([at for at, name in enumerate(order) if name in of_call.modules], default=-1)
    doubled = (at > last or order[at - 1 : at] == [SAVES] for at in range(len(order)))
    kept = [name for name, more in zip(order, doubled, strict=True) if not (name == SAVES and more)]
    unreached = not flow.reached and (module.unreached or not module.called)
    vars(module).update(
        called=True, unreached=unreached, takes_gradient=flow.exits, backward_fetches=flow.enters,
        saves_last=SAVES in order[last + 1 :], forward_order=tuple(kept),
        calls_linear=of_call.calls_linear, saves_views=of_call.saves_views, reads=read,
        borrowed=tuple([each for each in borrowed if each not in module.parameters.values()]),
        elsewhere={name: descendant(module, name) for name in of_call.distant if name in of_call.modules},
    )  # fmt: skip
    for step, of_step in zip(of_call.below, flow.below, strict=True):
        _describe(descendant(module, step.module), step, of_step, known)


def _taken(program: Program) -> Iterator[str]:
    """Names of parameters elsewhere that it takes and no operator reads."""
    for step in program.steps:
        if isinstance(step, Operator) and step.name == READS:
            yield str(step.inputs[0])


def _is_linear_with_bias(step: Any) -> bool:
    """Whether it is the linear function of a module's own weight and bias."""
    named = [ref for ref in step.inputs if isinstance(ref, str)] if isinstance(step, Operator) else []
    return len(named) == len(WEIGHT_AND_BIAS) and step.name == LINEAR_FUNCTION


def _saves_views(program: Program) -> bool:
    """Whether an operator saves a view of a parameter; stage 3's own linear function saves parameters themselves."""
    views: set[int] = set()
    for step in program.steps:
        if not isinstance(step, Operator) or step.name == LINEAR_FUNCTION:
            continue
        own = [isinstance(ref, str) or ref in views for ref in step.inputs]
        backward = all_needed(step)
        saved = [each.at for each in backward.saved if each.kind == INPUT] if backward else []
        if any(isinstance(step.inputs[at], int) and own[at] for at in saved):
            return True
        views.update(each.number for each in step.results if each.of >= 0 and own[each.of] and not each.is_input)
    return False


def _order(program: Program, idle: frozenset[int]) -> Iterator[str]:
    """What is read of parameters and buffers, modules and saved tensors; `idle`: as `Known` has it."""
    seen: set[str] = set()
    for at, step in enumerate(program.steps):
        if isinstance(step, Operator):
            for ref in () if at in idle else step.inputs if step.name == LINEAR_FUNCTION else reversed(step.inputs):
                if isinstance(ref, str) and ref not in seen:
                    seen.add(ref)
                    yield ref
            if (backward := all_needed(step)) is not None and backward.saved:
                yield SAVES
        elif isinstance(step, Call):
            yield step.module
