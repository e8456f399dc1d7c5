"""Which layers of a recorded tree follow each other, and which are identical: by the programs that they run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from zeroplan.architectures.identical_layers import checkpointing_layers
from zeroplan.architectures.module import Module, tree
from zeroplan.architectures.recorded.modules import Recorded, RecordedLayer, descendant
from zeroplan.architectures.recorded.program import Call, Operator, Program

NO_PROGRAM = Program(0, (), ())


def number_layers(root: Module, program: Program) -> None:
    """Number the layers by the program that each runs and what all are given; and which of them follow each other."""
    steps = list(_steps(root, program))
    of_layers = [step for step in steps if step.layer is not None]
    in_order = [id(step.layer) for step in of_layers] == [id(layer) for layer in checkpointing_layers(root)]
    chains = list(_chains(steps)) if in_order else []
    followed = [len(chain) > 1 for chain in chains for _call in chain] or [False] * len(of_layers)
    numbers: dict[Any, int] = {}
    paths, programs = {id(module): path for path, module in tree(root)}, list[tuple[Program, str]]()
    for step, is_followed in zip(of_layers, followed, strict=True):
        key: Any = id(step.layer)
        if is_followed and step.layer:
            kind = _kind(step.call.program, paths[key], programs)
            key = step.caller, step.call.inputs[1:], kind, step.layer.unreached
        vars(step.layer)["program_number"] = numbers.setdefault(key, len(numbers) + 1)
    vars(root).update(chains=tuple(map(len, chains)), hands_through=any(_through(step.call) for step in of_layers))


def _kind(program: Program, path: str, known: list[tuple[Program, str]]) -> int:
    """The number of a layer's program among those that differ in more than the layer's own path."""
    alike = (at for at, (other, of) in enumerate(known) if _are_alike(other, program, (of, path)))
    number = next(alike, len(known))
    if number == len(known):
        known.append((program, path))
    return number


def _are_alike(one: Program, other: Program, paths: tuple[str, str]) -> bool:
    """Whether programs are the same but for names that begin with the path of the layer, one of `paths` each."""
    if one is other:
        return True
    if (one.inputs, one.outputs, len(one.steps)) != (other.inputs, other.outputs, len(other.steps)):
        return False
    return all(_steps_are_alike(*steps, paths) for steps in zip(one.steps, other.steps, strict=True))


def _steps_are_alike(one: Any, other: Any, paths: tuple[str, str]) -> bool:
    if one is other or type(one) is not type(other):
        return one is other
    if isinstance(one, Operator):
        names_alike = len(one.inputs) == len(other.inputs) and all(
            _is_named_alike(*refs, paths) for refs in zip(one.inputs, other.inputs, strict=True)
        )
        return names_alike and one._replace(inputs=()) == other._replace(inputs=())
    if isinstance(one, Call):
        same = one._replace(module="", program=NO_PROGRAM) == other._replace(module="", program=NO_PROGRAM)
        is_named_alike = _is_named_alike(one.module, other.module, paths)
        return same and is_named_alike and _are_alike(one.program, other.program, paths)
    return bool(one == other)


def _is_named_alike(one: Any, other: Any, paths: tuple[str, str]) -> bool:
    if one == other or not (isinstance(one, str) and isinstance(other, str)):
        return bool(one == other)
    within = [name.removeprefix(f"/{path}.") for name, path in zip((one, other), paths, strict=True)]
    return within[0] == within[1] != other


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
