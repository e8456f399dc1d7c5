"""A tree of modules made of a recording, which runs, and is walked, as a described family's is.

Torch's own linear layers, embeddings and dropouts are the described ones: DeepSpeed, peft and bitsandbytes put others
in their place. All else replays what was recorded of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

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
from zeroplan.architectures.recorded.flow import ProgramFlow, all_needed
from zeroplan.architectures.recorded.program import Call, Operator, Program
from zeroplan.architectures.recorded.replay import Sizes, replay
from zeroplan.autograd.tensor import Tensor

LINEAR, EMBEDDING, DROPOUT = (
    "torch.nn.modules.linear.Linear", "torch.nn.modules.sparse.Embedding", "torch.nn.modules.dropout.Dropout",
)  # fmt: skip


class RecordedParameter(NamedTuple):
    name: str
    shape: tuple[int, ...]
    number: int
    """Of the parameter: tied ones have the same."""


class ModuleRecord(NamedTuple):
    """A module as it is registered."""

    module_class: str
    """In full."""
    parameters: tuple[RecordedParameter, ...] = ()
    buffers: tuple[tuple[str, tuple[int, ...], str], ...] = ()
    """Name, shape and dtype."""
    children: tuple[tuple[str, ModuleRecord], ...] = ()
    checkpoints: bool = False
    """It is a layer that transformers' checkpointing knows."""
    number: float = 0.0
    """What its class is made with: a dropout's probability."""


class Recorded(Module):
    """A module that replays the call of it that runs now."""

    program: Program | None = None
    root: Module

    def forward(self, run: Any, *inputs: Any) -> list[Tensor]:
        return replay_module(self, run, inputs)


class RecordedLayer(GradientCheckpointingLayer):
    """One of the layers that checkpointing knows."""

    program: Program | None = None
    root: Module

    def __call__(self, run: Any, *inputs: Any) -> list[Tensor]:
        out = super().__call__(run, *inputs)
        return [out] if isinstance(out, Tensor) else list(out)

    def forward(self, run: Any, *inputs: Any) -> Any:
        made = replay_module(self, run, inputs)
        return made[0] if len(made) == 1 else tuple(made)


class RecordedModel(Recorded):
    """The outermost: it gives the loss."""

    loss = 0
    """Which of what it makes."""

    def forward(self, run: Any, *_inputs: Any) -> Any:
        return replay_module(self, run, ())[self.loss]


def replay_module(module: Any, run: Any, inputs: Sequence[Tensor]) -> list[Tensor]:
    def named(ref: str) -> Tensor:
        holder, name = (module.root, ref[1:]) if ref.startswith("/") else (module, ref)
        path, _dot, last = name.rpartition(".")
        for part in path.split(".") if path else ():
            holder = holder.children[part]
        parameter = holder.parameters.get(last)
        return run.parameter(parameter) if parameter else Tensor(None, (), (), 1, run)

    def call(call: Call, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        below = descendant(module, call.module)
        if isinstance(below, Recorded | RecordedLayer):
            vars(below)["program"] = call.program
            result: Sequence[Tensor] = below(run, *inputs)
            return result
        made = below(run, *(inputs or (run.ids(),)))
        return [made] * len(call.outputs)

    assert module.program is not None
    return replay(module.program, inputs, Sizes(run, run.batch, run.seq), named, call)


def descendant(module: Module, path: str) -> Module:
    for part in path.split(".") if path else ():
        module = module.children[part]
    return module


def assemble(record: ModuleRecord, program: Program) -> Module:
    """The tree, with `program` as the outermost module's."""
    parameters: dict[int, Parameter] = {}
    outer = program.steps
    inner = next(step for step in outer if isinstance(step, Call) and not step.module)
    root = _module(record, parameters, outermost=True)
    flow = ProgramFlow(program)
    for _path, module in root.named_modules():
        vars(module).update(called=False, root=root)
    _describe(root, inner, flow)
    vars(root).update(program=inner.program, takes_gradient=False, loss=inner.outputs.index(program.outputs[0]))
    return root


def _module(record: ModuleRecord, parameters: dict[int, Parameter], *, outermost: bool = False) -> Module:
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
        vars(module)["transformers_class"] = record.module_class
    for name, shape, number in record.parameters:
        module.parameters[name] = parameters.setdefault(number, module.parameters.get(name) or Parameter(*shape))
        vars(module)[name] = module.parameters[name]
    for name, size, dtype in record.buffers:
        module.buffers[name] = Buffer(size, dtype)
    for name, child in record.children:
        module.children[name] = _module(child, parameters)
    return module


def _describe(module: Module, call: Call, flow: ProgramFlow) -> None:
    """What a walk reads of a module, by its call."""
    order = list(_order(module, call.program))
    modules = [at for at, name in enumerate(order) if name != SAVES and name not in module.parameters]
    last = max(modules, default=-1)
    of_hooks = flow.calls.get(id(call))
    doubled = (at > last or order[at - 1 : at] == [SAVES] for at in range(len(order)))
    kept = [name for name, more in zip(order, doubled, strict=True) if not (name == SAVES and more)]
    vars(module).update(
        called=True, takes_gradient=bool(of_hooks and of_hooks.exits),
        backward_fetches=of_hooks.enters if of_hooks else 1,
        saves_last=SAVES in order[last + 1 :], forward_order=tuple(kept),
        elsewhere={name: descendant(module, name) for name in kept if "." in name},
    )  # fmt: skip
    for step in call.program.steps:
        if isinstance(step, Call):
            _describe(descendant(module, step.module), step, flow)


def _order(module: Module, program: Program) -> Iterator[str]:
    seen: set[str] = set()
    for step in program.steps:
        if isinstance(step, Operator):
            for ref in reversed(step.inputs):
                if isinstance(ref, str) and ref in module.parameters and ref not in seen:
                    seen.add(ref)
                    yield ref
            if (backward := all_needed(step)) is not None and backward.saved:
                yield SAVES
        elif isinstance(step, Call):
            yield step.module
