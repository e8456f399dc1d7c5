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
        module.parameters[name] = parameters.setdefault(number, own)
        vars(module)[name] = module.parameters[name]
    for name, size, dtype in record.buffers:
        module.buffers[name] = Buffer(size, dtype)
    for name, child in record.children:
        module.children[name] = _module(child, parameters, within=within or record.checkpoints)
    return module


class _OfProgram(NamedTuple):
    """What follows from a program, whichever of identical modules runs it."""

    takes: tuple[str, ...]
    """Names of parameters elsewhere that it takes and no operator reads."""
    calls_linear: bool
    saves_views: bool


def _of_program(program: Program, known: dict[int, _OfProgram]) -> _OfProgram:
    """`known`: by the identity of programs."""
    if id(program) not in known:
        calls_linear = any(map(_is_linear_with_bias, program.steps))
        known[id(program)] = _OfProgram(tuple(_taken(program)), calls_linear, _saves_views(program))
    return known[id(program)]


def _describe(module: Module, call: Call, flow: CallFlow, known: dict[int, _OfProgram]) -> None:
    """What a walk reads of a module, by its call; `known`: of programs by their identity."""
    of_program = _of_program(call.program, known)
    order = list(_order(module, call.program, flow.idle))
    distant = [name for name in dict.fromkeys(order) if "." in name or name.startswith("/")]
    read = {name: parameter for name in distant if (parameter := named_parameter(module, name)) is not None}
    parameters = {SAVES, *module.parameters, *read}
    taken = [named_parameter(module, name) for name in of_program.takes]
    borrowed = [each for each in dict.fromkeys((*taken, *read.values())) if each is not None]
    modules = [at for at, name in enumerate(order) if name not in parameters]
    last = max(modules, default=-1)
    unreached = not flow.reached and (module.unreached or not module.called)
    doubled = (at > last or order[at - 1 : at] == [SAVES] for at in range(len(order)))
    kept = [name for name, more in zip(order, doubled, strict=True) if not (name == SAVES and more)]
    vars(module).update(
        called=True, unreached=unreached, takes_gradient=flow.exits, backward_fetches=flow.enters,
        saves_last=SAVES in order[last + 1 :], forward_order=tuple(kept),
        calls_linear=of_program.calls_linear, saves_views=of_program.saves_views, reads=read,
        borrowed=tuple([each for each in borrowed if each not in module.parameters.values()]),
        elsewhere={name: descendant(module, name) for name in distant if name not in read},
    )  # fmt: skip
    below = [step for step in call.program.steps if isinstance(step, Call)]
    for step, of_step in zip(below, flow.below, strict=True):
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


def _order(module: Module, program: Program, idle: frozenset[int]) -> Iterator[str]:
    """Own parameters, modules and saved tensors; `idle`: places of operators that give parameters no gradient."""
    seen: set[str] = set()
    for at, step in enumerate(program.steps):
        if isinstance(step, Operator):
            for ref in () if at in idle else step.inputs if step.name == LINEAR_FUNCTION else reversed(step.inputs):
                if isinstance(ref, str) and ref not in seen and named_parameter(module, ref) is not None:
                    seen.add(ref)
                    yield ref
            if (backward := all_needed(step)) is not None and backward.saved:
                yield SAVES
        elif isinstance(step, Call):
            yield step.module
