"""Calls of modules as they are recorded, with tensors numbered throughout; and the programs that they are, each with
tensors numbered within it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from zeroplan.architectures.recorded.program import (
    INPUT,
    OTHER,
    READS,
    Backward,
    Call,
    Keeps,
    Layout,
    Operator,
    Program,
    Ref,
    Release,
    Result,
    Saved,
)
from zeroplan.verify.recording.experiments import Call as OperatorCall
from zeroplan.verify.recording.experiments import Experiments
from zeroplan.verify.recording.lies import Lies

TAKEN = Layout((), (), 0)


class Opened:
    """A call of a module that is being recorded: operators, calls and releases, with tensors numbered throughout."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.steps: list[Any] = []
        self.made: set[int] = set()
        """Tensors that were made in it, or below it."""
        self.gathered: set[int] = set()
        """Parameters, by identity, that stage 3 would gather as long as it runs."""
        self.positional: tuple[int, ...] = ()
        self.tensors: tuple[Ref, ...] = ()
        """All that is given, by position and by name, each at its place."""
        self.given: tuple[int, ...] = ()
        """Tensors of the program among them, whether they are used or not: a checkpoint keeps them."""
        self.returned: tuple[int, ...] = ()
        self.result: Any = None
        """What it returns, with a `GivenTensor` for each; None where there is more in it than tensors."""

    @cached_property
    def used(self) -> tuple[int, ...]:
        """Tensors from outside that it is given or reads, in order, once it has been recorded."""
        read = (number for step in self.steps for number in (*_used(step), *_held(step)) if number not in self.made)
        return tuple(dict.fromkeys((*self.given, *read)))


class GivenTensor:
    """Stands in what a layer returns for a tensor that it is given, or for the one that it makes of the first."""

    def __init__(self, at: int) -> None:
        self.at = at


class Like(NamedTuple):
    """The layer before one that runs the same program, and what that returns."""

    path: str
    result: Any


class Programs:
    """Makes the programs of modules, which `made` has by the modules' paths."""

    def __init__(
        self, calls: Mapping[int, tuple[OperatorCall, list[int], list[Lies]]], experiments: Experiments,
        alike: Mapping[str, Like],
    ) -> None:  # fmt: skip
        """`calls`: of operators that may have a node, by the identity of their step. `alike`: as a recorder has it."""
        self.calls, self.experiments, self.alike = calls, experiments, alike
        self.made: dict[str, Program] = {}

    def of(self, opened: Opened, wanted: set[int]) -> tuple[Program, tuple[int, ...], tuple[int, ...]]:
        """The call with tensors numbered within it, and what its inputs and outputs are outside.

        `wanted`: what is used later.
        """
        if opened.path in self.alike:
            given = tuple(dict.fromkeys(opened.given))
            return self.made[self.alike[opened.path].path], given, opened.returned[:1]
        inner: dict[int, tuple[Program, tuple[int, ...], tuple[int, ...]]] = {}
        for step, later in _with_later(opened, wanted):
            inner[id(step)] = self.of(step, later)
        read = (number for step in opened.steps for number in _used(step) if number not in opened.made)
        inputs = tuple(dict.fromkeys((*opened.given, *read)))
        numbers = {number: at for at, number in enumerate(inputs)}

        def local(number: int) -> int:
            return numbers.setdefault(number, len(numbers))

        prefix = f"{opened.path}." if opened.path else ""
        in_operators = {ref for step in opened.steps if id(step) in self.calls for ref in step.inputs}
        steps: list[Operator | Call | Release | Keeps] = []
        for step in opened.steps:
            if isinstance(step, Opened):
                program, given, outputs = inner[id(step)]
                path = _local_path(step.path, prefix)
                inside = tuple(map(local, given)), tuple(map(local, outputs))
                of_hooks = (tuple([local(each) for each in several if each in numbers])
                            for several in (step.positional, step.returned))  # fmt: skip
                steps.append(Call(path, program, *inside, *of_hooks))
            elif isinstance(step, Keeps):
                paths = tuple([_local_path(each, prefix) for each in step.modules])
                steps.append(Keeps(paths, tuple(map(local, step.tensors))))
            elif isinstance(step, Release):
                if there := tuple([numbers[each] for each in step.tensors if each in numbers]):
                    steps.append(Release(there))
            elif step.name != READS or step.inputs[0] not in in_operators:
                steps.append(self.operator(step, local, prefix))
        outputs = tuple(sorted(opened.made & wanted))
        program = self.made[opened.path] = Program(len(inputs), tuple(steps), tuple(map(local, outputs)))
        return program, inputs, outputs

    def operator(self, step: Operator, local: Callable[[int], int], prefix: str) -> Operator:
        """With its tensors numbered within a call, and what its backward runs."""
        refs = tuple([_local_ref(ref, local, prefix) for ref in step.inputs])
        results = tuple([Result(local(each.number), *each[1:]) for each in step.results])
        base = None if step.base is None else local(step.base)
        call = self.calls.get(id(step))
        backward = self.backward(*call) if call else {}
        if step.causal:
            backward = {needs: each._replace(causal=True) for needs, each in backward.items()}
        return Operator(step.name, refs, results, backward, base, step.flops, step.causal)

    def backward(
        self, call: OperatorCall, may_need: list[int], between: list[Lies]
    ) -> Mapping[tuple[bool, ...], Backward]:  # fmt: skip
        """By which inputs need a gradient; what a function saves of its own is among the inputs, behind those given."""
        backward = self.experiments.backward(call, may_need)
        if not between:
            return backward

        def of_inputs(several: Sequence[Saved]) -> Iterator[Saved]:
            """Each in the place of the first of its layout that is not taken yet."""
            free = [each.layout for each in between]
            for saved in several:
                at = free.index(saved.layout) if saved.kind == OTHER and saved.layout in free else -1
                if at >= 0:
                    free[at] = TAKEN
                yield saved if at < 0 else Saved(INPUT, len(may_need) + at, saved.layout)

        more, none = (False,) * len(between), (None,) * len(between)
        return {
            (*needs, *more): each._replace(saved=tuple(of_inputs(each.saved)), gradients=(*each.gradients, *none))
            for needs, each in backward.items()
        }


def _local_ref(ref: Ref, local: Any, prefix: str) -> Ref:
    if isinstance(ref, int):
        return int(local(ref))
    if ref is None:
        return None
    return _local_path(ref, prefix)


def _local_path(path: str, prefix: str) -> str:
    return path.removeprefix(prefix) if path.startswith(prefix) else f"/{path}"


def _used(step: Any) -> tuple[int, ...]:
    """Tensors that a step is given or reads, in order."""
    if isinstance(step, Operator):
        refs = tuple([ref for ref in step.inputs if isinstance(ref, int)])
        return refs if step.base is None else (*refs, step.base)
    if isinstance(step, Opened):
        return step.used
    return step.tensors if isinstance(step, Keeps) else ()


def _held(step: Any) -> tuple[int, ...]:
    """Of a release one of the tensors that have the storage, which Python holds until then."""
    return step.tensors[:1] if isinstance(step, Release) else ()


def _with_later(opened: Opened, wanted: set[int]) -> Iterator[tuple[Opened, set[int]]]:
    """The calls in one, and what of the tensors that each makes is used after it. `wanted`: what is used later."""
    later, result = set(wanted), []
    for step in reversed(opened.steps):
        if isinstance(step, Opened):
            result.append((step, step.made & later))
        later.update(_used(step), _held(step))
    return reversed(result)
