"""The order in which a training step runs a tree of modules: forward, backward, and gradients becoming ready.

A module counts here when it has parameters of its own: it enters when DeepSpeed's hook before its forward or
backward fetches them, and exits when the hook after it releases them. One that enters backward and never exits
keeps them to the end, where DeepSpeed releases what is left. A gradient is ready when the first use of its
parameter has run backward.
"""

from __future__ import annotations

from typing import NamedTuple

from zeroplan.architectures.module import Module
from zeroplan.architectures.walk import Step, Walk


class Visit(NamedTuple):
    event: str
    """`enter` or `exit`."""
    path: str
    parameters: tuple[str, ...]
    """The module's own, each under the first name it appears with."""


class Execution(NamedTuple):
    modules: tuple[str, ...]
    """Paths of the modules with parameters of their own, in the order of forward; what never runs is not here."""
    owned: tuple[tuple[int, ...], ...]
    """Of each module, its own parameters, as indices into the root's `named_parameters`."""
    forward: tuple[Step, ...]
    """Steps: whether a module enters (or else exits), and its index in `modules`."""
    backward: tuple[Step, ...]
    recomputing: tuple[Step, ...]
    """Backward with every layer checkpointed, not reentrant: a layer's forward runs again inside it."""
    gradients: tuple[int, ...]
    """Parameters as their gradients become ready, checkpointed or not; those that get none are not here."""
    gradients_stage3: tuple[int, ...]
    """The same with DeepSpeed's own linear function: weights before biases."""


def ready(uses: list[int]) -> tuple[int, ...]:
    """Parameters by their first use, the latest first."""
    return tuple(reversed(dict.fromkeys(uses)))


def execution(root: Module) -> Execution:
    walk = Walk(root)
    owned = [tuple(walk.index[id(p)] for p in module.parameters.values()) for module in walk.modules]
    return Execution(
        modules=tuple(walk.paths),
        owned=tuple(owned),
        forward=tuple(walk.steps),
        backward=tuple(walk.backward(0, len(walk.steps))),
        recomputing=tuple(walk.recomputing()),
        gradients=ready(walk.uses),
        gradients_stage3=ready(walk.uses_stage3()),
    )


def named(root: Module, steps: tuple[Step, ...], found: Execution) -> list[Visit]:
    """Steps of `found`, an execution of this tree, with paths and names."""
    names = [name for name, _parameter in root.named_parameters()]
    owned = [tuple(names[index] for index in indices) for indices in found.owned]
    return [Visit("enter" if enters else "exit", found.modules[index], owned[index]) for enters, index in steps]


def visits(root: Module) -> list[Visit]:
    """The forward pass."""
    found = execution(root)
    return named(root, found.forward, found)


def backward_visits(root: Module, *, checkpointing: bool = False) -> list[Visit]:
    """The backward pass, with or without every layer checkpointed."""
    found = execution(root)
    return named(root, found.recomputing if checkpointing else found.backward, found)


def gradient_order(root: Module, *, stage3: bool = False) -> list[str]:
    """Names of parameters in the order in which their gradients become ready."""
    names = [name for name, _parameter in root.named_parameters()]
    found = execution(root)
    return [names[index] for index in (found.gradients_stage3 if stage3 else found.gradients)]
