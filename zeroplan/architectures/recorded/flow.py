"""Where gradients flow in a recorded program of which all parameters train: what DeepSpeed's hooks are on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from zeroplan.architectures.recorded.program import Backward, Call, Operator, Program


class CallFlow(NamedTuple):
    """Of one call of a module."""

    enters: int
    """How many of the tensors that it returns get a gradient."""
    exits: bool
    """A tensor that it is given by position gets one."""


def all_needed(step: Operator) -> Backward | None:
    """What it runs where each input that may has a gradient."""
    return max(step.backward.items(), key=lambda entry: sum(entry[0]))[1] if step.backward else None


class ProgramFlow:
    """Which tensors of a program, and of those below it, need a gradient, and which get one."""

    def __init__(self, program: Program) -> None:
        self.calls: dict[int, CallFlow] = {}
        """By the identity of the call."""
        needs = self._forward(program, {})
        self._backward(program, needs, set(program.outputs))

    def _forward(self, program: Program, needs: dict[int, bool]) -> dict[int, bool]:
        """Whether each tensor needs one; those of the inputs are known."""
        for step in program.steps:
            if isinstance(step, Operator):
                backward = all_needed(step)
                for at, result in enumerate(step.results):
                    number = step.base if step.base is not None else result.number
                    gets = backward is not None and backward.differentiable[at] and self._any(step, needs)
                    needs[number] = gets or (result.is_input and needs.get(number, False))
            elif isinstance(step, Call):
                inner = {at: needs.get(number, False) for at, number in enumerate(step.inputs)}
                self._forward(step.program, inner)
                made = zip(step.outputs, step.program.outputs, strict=True)
                needs.update({number: inner.get(local, False) for number, local in made})
        return needs

    @staticmethod
    def _any(step: Operator, needs: Mapping[int, bool]) -> bool:
        may = max(step.backward, key=sum) if step.backward else ()
        return any(
            need and (isinstance(ref, str) or (ref is not None and needs.get(ref, False)))
            for ref, need in zip(step.inputs, may, strict=False)
        )

    def _backward(self, program: Program, needs: Mapping[int, bool], gets: set[int]) -> set[int]:
        """The tensors that get one, of those that `gets` are some; calls on the way are noted."""
        for step in reversed(program.steps):
            if isinstance(step, Operator):
                gets.update(self._passed_on(step, needs, gets))
            elif isinstance(step, Call):
                made = zip(step.outputs, step.program.outputs, strict=True)
                inner = {local for number, local in made if number in gets}
                given_needs = {at: needs.get(each, False) for at, each in enumerate(step.inputs)}
                self._backward(step.program, self._forward(step.program, given_needs), inner)
                returned = [each for each in step.returned if each in gets and needs.get(each, False)]
                given = {each for at, each in enumerate(step.inputs) if at in inner and needs.get(each, False)}
                gets.update(given)
                exits = not given.union(returned).isdisjoint(step.positional)  # one may be handed through
                self.calls[id(step)] = CallFlow(len(returned), exits)
        return gets

    @staticmethod
    def _passed_on(step: Operator, needs: Mapping[int, bool], gets: set[int]) -> Iterator[int]:
        numbers = [step.base] if step.base is not None else [result.number for result in step.results]
        backward = all_needed(step)
        if backward is None or not any(number in gets for number in numbers):
            return
        for ref, gradient in zip(step.inputs, backward.gradients, strict=False):
            if isinstance(ref, int) and gradient is not None and needs.get(ref, False):
                yield ref
