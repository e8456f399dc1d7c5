"""A tree of modules made of a recording, which runs, and is walked, as a described family's is.

Torch's own linear layers, embeddings and dropouts are the described ones: DeepSpeed, peft and bitsandbytes put others
in their place. All else replays what was recorded of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple
from weakref import ref

from zeroplan.architectures.identical_layers import checkpointing_layers
from zeroplan.architectures.module import (
    SAVES,
    Buffer,
    Dropout,
    Embedding,
    GradientCheckpointingLayer,
    Linear,
    Module,
    Parameter,
)
from zeroplan.architectures.recorded.flow import CallFlow, ProgramFlow, all_needed
from zeroplan.architectures.recorded.program import INPUT, READS, Call, Keeps, Operator, Program
from zeroplan.architectures.recorded.program import LINEAR as LINEAR_FUNCTION
from zeroplan.architectures.recorded.replay import Sizes, input_of_model, replay
from zeroplan.autograd.checkpoint import checkpoint
from zeroplan.autograd.graph import requires_grad
from zeroplan.autograd.log import RECOMPUTING
from zeroplan.autograd.reentrant import Input, checkpoint_reentrant
from zeroplan.autograd.tensor import Tensor
from zeroplan.errors import SpecError

WEIGHT_AND_BIAS = ("weight", "bias")
LINEAR, EMBEDDING, DROPOUT = (
    "torch.nn.modules.linear.Linear", "torch.nn.modules.sparse.Embedding", "torch.nn.modules.dropout.Dropout",
)  # fmt: skip


class RecordedParameter(NamedTuple):
    name: str
    shape: tuple[int, ...]
    number: int
    """Of the parameter: tied ones have the same."""
    trains: bool = True


class RecordedBuffer(NamedTuple):
    name: str
    shape: tuple[int, ...]
    dtype: str
    """As in `Model.buffers`."""


class ModuleRecord(NamedTuple):
    """A module as it is registered."""

    module_class: str
    """In full."""
    parameters: tuple[RecordedParameter, ...] = ()
    buffers: tuple[RecordedBuffer, ...] = ()
    children: tuple[tuple[str, ModuleRecord], ...] = ()
    checkpoints: bool = False
    """It is a layer that transformers' checkpointing knows."""
    number: float = 0.0
    """What its class is made with: a dropout's probability."""


class StillParameter(Parameter):
    """A parameter that the model's own class does not train."""

    trains = False


class Recorded(Module):
    """A module that replays the call of it that runs now."""

    program: Program | None = None
    sizes: Sizes | None = None
    root: Module

    def __call__(self, run: Any, *inputs: Any) -> Any:
        """An input embedding's results ask for a gradient where layers are checkpointed, as in `Unary`."""
        made = super().__call__(run, *inputs)
        if id(self) in run.opens:
            return tuple([requires_grad(each) if each.node is None else each for each in made])
        return made

    def forward(self, run: Any, *inputs: Any) -> tuple[Tensor, ...]:
        return replay_module(self, run, inputs)


class RecordedLayer(GradientCheckpointingLayer):
    """One of the layers that checkpointing knows."""

    program: Program | None = None
    sizes: Sizes | None = None
    root: Module
    returned: tuple[int, ...] | None = None
    """Which of what is used later it returns: a view may be, and what it is one of used no more than that."""
    by_position = 1
    """How many of its inputs, the first, are given by position: a reentrant checkpoint hands their gradients on."""

    def __call__(self, run: Any, *inputs: Any) -> tuple[Tensor, ...]:
        out = super().__call__(run, *inputs)
        return (out,) if isinstance(out, Tensor) else out

    def forward(self, run: Any, *inputs: Any) -> Any:
        made = replay_module(self, run, inputs)
        return made[0] if len(made) == 1 else made

    def checkpointed(self, run: Any, x: Tensor, *rest: Any) -> Any:
        kept = KeptTensors()
        run.keeps[id(self)] = ref(kept)
        forward = partial(_keeping, kept, self.forward, run)
        if not run.recomputing.reentrant:
            keeps_products = run.recomputing.keeps_products
            return checkpoint(run, forward, x, *rest, keeps_products=keeps_products, positional=self.by_position)
        positional, named = rest[: self.by_position - 1], rest[self.by_position - 1 :]
        if any(each.node is not None for each in named):
            name = self.transformers_class.rpartition(".")[2]
            found = f"reentrant of {name}, which is given tensors with a gradient by keyword"
            raise SpecError("checkpointing", found, "a checkpoint without reentrance", "full")
        return checkpoint_reentrant(
            run, forward, x, *named, positional=positional, input_offload=run.input_offload, returned=self.returned
        )


class KeptTensors(list[tuple[Tensor, ...]]):
    """What a layer's checkpoint keeps alive beside the layer's inputs: tensors of a mapping that it is given, each with
    the inputs to which its graph leads.
    """


def _keeping(_kept: KeptTensors, forward: Any, *inputs: Any) -> Any:
    return forward(*inputs)


class RecordedModel(Recorded):
    """The outermost: it gives the loss."""

    loss = 0
    """The place of the loss among the program's outputs."""
    kept: tuple[int, ...] = ()
    """Places of outputs that modules keep in attributes."""

    def forward(self, run: Any, *_inputs: Any) -> Any:
        vars(self)["sizes"] = Sizes(run, run.batch, run.seq)
        made = replay_module(self, run, ())
        run.until_loss.extend([made[at] for at in self.kept])
        return made[self.loss]


def replay_module(module: Any, run: Any, inputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
    def named(ref: str) -> Tensor:
        parameter = named_parameter(module, ref)
        return run.parameter(parameter) if parameter else Tensor(None, (), (), 1, run)

    def call(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        below = descendant(module, call.module)
        if isinstance(below, Recorded | RecordedLayer):
            vars(below).update(
                program=call.program, sizes=module.sizes, by_position=len({*call.positional}),
                returned=tuple([at for at, number in enumerate(call.outputs) if number in call.returned]),
            )  # fmt: skip
            result: Sequence[Tensor] = below(run, *inputs)
            return result
        made = below(run, *(inputs or (_input_of_model(below, call.program, module.sizes),)))
        return [made] * len(call.outputs)

    def keep(step: Keeps, tensors: Sequence[Tensor]) -> None:
        """By the first of the layers that is checkpointed: backward comes to it last. A layer that runs again puts its
        own into the same place, with all that they were made of.
        """
        holders = (run.keeps.get(id(descendant(module, path)), lambda: None)() for path in step.modules)
        first = next((holder for holder in holders if holder is not None), None)
        if first is None:
            return
        calls = [each for each in module.program.steps if isinstance(each, Call)]
        for number, tensor in zip(step.tensors, tensors, strict=True):
            for each in calls:
                if number in each.outputs:
                    layer = run.mapped.setdefault(id(descendant(module, each.module)), {})
                    layer[each.outputs.index(number)] = partial(_put, ref(first), len(first))
            first.append((tensor.detach(),))

    assert module.program is not None
    assert module.sizes is not None
    puts = run.mapped.get(id(module), {}) if run.phase == RECOMPUTING else {}
    mapped = {module.program.outputs[at]: partial(put, inputs) for at, put in puts.items()}
    return replay(module.program, inputs, module.sizes, named, call, keep, mapped)


def _input_of_model(module: Module, program: Program, sizes: Sizes) -> Tensor:
    operator = next(step for step in program.steps if isinstance(step, Operator) and step.results)
    columns = module.parameters["weight"].shape[1:] if isinstance(module, Linear) else ()
    return input_of_model(operator, sizes, *columns)


def _put(holder: Callable[[], KeptTensors | None], place: int, inputs: Sequence[Tensor], tensor: Tensor) -> None:
    """Replace what the layer put there in forward; a reentrant checkpoint's graph leads to the layer's inputs."""
    if (kept := holder()) is not None:
        kept[place] = tensor, *[each for each in inputs if isinstance(each.node, Input)]


def named_parameter(module: Any, ref: str) -> Parameter | None:
    """The parameter that a program names; None where it is a buffer."""
    path, _dot, last = ref.rpartition(".")
    holder = descendant(module, path or ("/" if ref.startswith("/") else ""))
    return holder.parameters.get(last.removeprefix("/"))


def descendant(module: Any, path: str) -> Module:
    """The module of a path below this one, or with "/" before it of the model."""
    below: Module = module.root if path.startswith("/") else module
    path = path.removeprefix("/")
    for part in path.split(".") if path else ():
        below = below.children[part]
    return below


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


def number_layers(root: Module, program: Program) -> None:
    """Number the layers by the program that each runs and what all are given; and which of them follow each other."""
    steps = list(_steps(root, program))
    of_layers = [step for step in steps if step.layer is not None]
    in_order = [id(step.layer) for step in of_layers] == [id(layer) for layer in checkpointing_layers(root)]
    chains = list(_chains(steps)) if in_order else []
    followed = [len(chain) > 1 for chain in chains for _call in chain] or [False] * len(of_layers)
    numbers: dict[Any, int] = {}
    for step, is_followed in zip(of_layers, followed, strict=True):
        given = step.caller, step.call.inputs[1:]
        key = (*given, id(step.call.program), step.layer.unreached) if is_followed and step.layer else id(step.layer)
        vars(step.layer)["program_number"] = numbers.setdefault(key, len(numbers) + 1)
    vars(root).update(chains=tuple(map(len, chains)), hands_through=any(_through(step.call) for step in of_layers))


def _through(call: Call) -> set[int]:
    """Tensors that a layer is given and returns unchanged."""
    return {*call.returned}.difference(call.outputs).intersection(call.inputs)


class _Step(NamedTuple):
    """A call of a layer, or of nothing: what runs outside of all and has a gradient."""

    layer: Module | None
    call: Any
    caller: int = 0
    """The program that calls it, by identity: tensors have numbers within it."""


def _steps(module: Module, program: Program) -> Iterator[_Step]:
    for step in program.steps:
        if isinstance(step, Operator):
            if step.backward:
                yield _Step(None, step)
        elif isinstance(step, Call):
            below = descendant(module, step.module)
            if isinstance(below, RecordedLayer):
                yield _Step(below, step, id(program))
            elif isinstance(below, Recorded):
                yield from _steps(below, step.program)
            else:
                yield _Step(None, step)


def _chains(steps: Sequence[_Step]) -> Iterator[list[Call]]:
    """Calls of layers each of which gives one tensor, the first that the next one takes, with nothing between."""
    chain: list[Call] = []
    caller = made = 0
    for place, step in enumerate(steps):
        if step.layer is None:
            continue
        follows = bool(chain) and place == made + 1 and step.caller == caller and _follows(chain, step.call)
        if not follows and chain:
            yield chain
            chain = []
        chain.append(step.call)
        caller, made = step.caller, place
    if chain:
        yield chain


def _follows(chain: Sequence[Call], call: Call) -> bool:
    """Whether it takes what the last of the chain gives, and nothing else that the chain has made."""
    made = {number for each in chain for number in each.outputs if number != each.inputs[0]}
    alone = all(len(each.outputs) == 1 for each in (chain[-1], call))
    return alone and chain[-1].outputs == call.inputs[:1] and made.isdisjoint(call.inputs[1:])


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
