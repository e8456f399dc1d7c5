"""Where gradients flow in a recorded program of which all parameters train: what DeepSpeed's hooks are on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from zeroplan.architectures.recorded.program import ASKS, Backward, Call, Operator, Program

Needs = dict[int, bool]
"""Whether each tensor of a program needs a gradient."""


class CallFlow(NamedTuple):
    """Of one call of a module."""

    enters: int
    """How many of the tensors that it returns get a gradient."""
    exits: bool
    """A tensor that it is given by position gets one."""
    below: tuple[CallFlow, ...] = ()
    """The flow of each call in its program, in order."""
    idle: frozenset[int] = frozenset()
    """Places of operators in it whose results get none: the parameters that they read have no gradient of it."""
    reached: bool = True
    """Something that it makes gets a gradient."""


class _Reached(NamedTuple):
    """What backward reaches in a program."""

    tensors: frozenset[int]
    calls: tuple[CallFlow, ...]
    idle: frozenset[int]


def all_needed(step: Operator) -> Backward | None:
    """What it runs where each input that may has a gradient."""
    return max(step.backward.items(), key=lambda entry: sum(entry[0]))[1] if step.backward else None


class ProgramFlow:
    """Which tensors of a program, and of those below it, need a gradient, and which get one; identical calls once."""

    def __init__(self) -> None:
        self.needs: dict[tuple[int, tuple[bool, ...]], Needs] = {}
        self.reached: dict[tuple[int, tuple[bool, ...], frozenset[int]], _Reached] = {}

    def calls(self, program: Program) -> tuple[CallFlow, ...]:
        """The flow of each call of the outermost program, all of whose outputs get a gradient."""
        return self._backward(program, (False,) * program.inputs, frozenset(program.outputs)).calls

    def _forward(self, program: Program, given: tuple[bool, ...]) -> Needs:
        """`given`: whether each of the inputs needs one."""
        key = id(program), given
        if key not in self.needs:
            needs = self.needs[key] = dict(enumerate(given))
            for step in program.steps:
                if isinstance(step, Operator):
                    needs.update(_made(step, needs))
                elif isinstance(step, Call):
                    inner = self._forward(step.program, _given(step, needs))
                    needs.update({number: inner.get(local, False) for number, local in _outputs(step)})
        return self.needs[key]

    def _backward(self, program: Program, given: tuple[bool, ...], wanted: frozenset[int]) -> _Reached:
        """From the tensors that `wanted` are."""
        key = id(program), given, wanted
        if key not in self.reached:
            needs, gets, calls, idle = self._forward(program, given), set(wanted), [], []
            for at, step in reversed([*enumerate(program.steps)]):
                if isinstance(step, Operator):
                    if gets.isdisjoint(_gives(step)):
                        idle.append(at)
                    gets.update(_passed_on(step, needs, gets))
                elif isinstance(step, Call):
                    calls.append(self._through(step, needs, gets))
            self.reached[key] = _Reached(frozenset(gets), tuple(reversed(calls)), frozenset(idle))
        return self.reached[key]

    def _through(self, call: Call, needs: Needs, gets: set[int]) -> CallFlow:
        """The flow of one call: its inputs get a gradient where outputs that depend on them do."""
        outputs = frozenset([local for number, local in _outputs(call) if number in gets])
        inner = self._backward(call.program, _given(call, needs), outputs)
        returned = [each for each in call.returned if each in gets and needs.get(each, False)]
        given = {each for at, each in enumerate(call.inputs) if at in inner.tensors and needs.get(each, False)}
        gets.update(given)
        exits = not given.union(returned).isdisjoint(call.positional)  # one may be handed through
        return CallFlow(len(returned), exits, inner.calls, inner.idle, reached=bool(outputs))


def _given(call: Call, needs: Mapping[int, bool]) -> tuple[bool, ...]:
    return tuple([needs.get(each, False) for each in call.inputs])


def _outputs(call: Call) -> Iterator[tuple[int, int]]:
    """The tensors that it returns, by the caller's number and by its own."""
    return zip(call.outputs, call.program.outputs, strict=True)


def _made(step: Operator, needs: Mapping[int, bool]) -> Iterator[tuple[int, bool]]:
    if step.name == ASKS:
        yield from ((ref, True) for ref in step.inputs if isinstance(ref, int))
    backward = all_needed(step)
    may = max(step.backward, key=sum) if step.backward else ()
    any_needs = any(
        need and (isinstance(ref, str) or (ref is not None and needs.get(ref, False)))
        for ref, need in zip(step.inputs, may, strict=False)
    )
    for at, result in enumerate(step.results):
        number = step.base if step.base is not None else result.number
        gets = backward is not None and backward.differentiable[at] and any_needs
        yield number, gets or (result.is_input and needs.get(number, False))


def _gives(step: Operator) -> list[int]:
    """The tensors that have its node."""
    return [step.base] if step.base is not None else [result.number for result in step.results]


def _passed_on(step: Operator, needs: Mapping[int, bool], gets: set[int]) -> Iterator[int]:
    backward = all_needed(step)
    if backward is None or gets.isdisjoint(_gives(step)):
        return
    for ref, gradient in zip(step.inputs, backward.gradients, strict=False):
        if isinstance(ref, int) and gradient is not None and needs.get(ref, False):
            yield ref
