"""What a recording holds of a module as it is registered, and modules that replay what was recorded of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple
from weakref import ref

from zeroplan.architectures.module import GradientCheckpointingLayer, Module, Parameter
from zeroplan.architectures.recorded.program import LINEAR, Call, Keeps, Operator, Program
from zeroplan.architectures.recorded.replay import Sizes, input_of_model, replay
from zeroplan.autograd.checkpoint import checkpoint
from zeroplan.autograd.graph import requires_grad
from zeroplan.autograd.log import RECOMPUTING
from zeroplan.autograd.reentrant import Input, checkpoint_reentrant
from zeroplan.autograd.tensor import Tensor
from zeroplan.errors import SpecError


class RecordedParameter(NamedTuple):
    name: str
    shape: tuple[int, ...]
    number: int | None
    """Tied ones have the same; None where it is registered once, so that records of identical layers are equal."""
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
    """What a described module is given that no program has, by what its own program makes of it."""
    operator = next(step for step in program.steps if isinstance(step, Operator) and step.results)
    if operator.name != LINEAR:
        return input_of_model(operator, sizes)
    linear: Any = module.children.get("base_layer", module)  # which adapters are around
    return input_of_model(operator, sizes, linear.inputs)


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
