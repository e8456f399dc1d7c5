"""One forward pass over a tree of modules, and the backward passes that follow from it.

Autograd runs operators in the reverse order of forward, so backward visits modules in reverse.
"""

from __future__ import annotations

from typing import NamedTuple

from zeroplan.architectures.alike import layers_of
from zeroplan.architectures.module import GradientCheckpointingLayer, Module
from zeroplan.specs.checkpointing import Recomputing
from zeroplan.specs.model import Visit

Moment = tuple[int, int]
"""How far forward has come: the lengths of `Walk.steps` and `Walk.undo`."""


class Layer(NamedTuple):
    """A layer that checkpointing knows: its own forward, and when it has saved its last tensor."""

    start: Moment
    saved: Moment
    end: Moment
    number: int


class Walk:
    """Modules as forward enters and leaves them, and the uses of parameters.

    Below a module whose path is in `leaves` nothing has hooks.
    """

    def __init__(self, root: Module, leaves: frozenset[str], *, eager: bool, flash: bool, kernels: str) -> None:
        self.leaves, self.eager, self.flash = leaves, eager, flash
        self.liger, self.fuses_loss = kernels == "liger", kernels != "transformers"
        self.index: dict[int, int] = {}  # of parameters, by identity
        self.places: dict[str, int] = {}  # of the modules visited, by path
        self.steps: list[Visit] = []
        self.undo: list[Visit] = []  # what backward does in return, the last first
        self.layers: list[Layer] = []
        self.layer_places: dict[int, int] = {}  # of those that are visited, by identity
        self.numbers = {id(layer): number for number, layer in enumerate(layers_of(root))}
        self.saved = self.now()  # the last tensor, so far
        self.uses: list[int] = []
        self.biased: list[int] = []  # where in `uses` a weight and its bias meet the linear function
        self.number(root)
        self.run("", root, True)

    def number(self, module: Module) -> None:
        """Parameters in the order of `named_parameters`."""
        for parameter in module.parameters.values():
            self.index.setdefault(id(parameter), len(self.index))
        for child in module.children.values():
            self.number(child)

    def now(self) -> Moment:
        return len(self.steps), len(self.undo)

    def run(self, path: str, module: Module, hooked: bool) -> None:
        """One call of the module, with DeepSpeed's hooks around its forward."""
        leaf = path in self.leaves
        if not (hooked and module.called):
            self.forward(path, module, hooked and not leaf)
            return
        place = self.places.setdefault(path, len(self.places))
        if isinstance(module, GradientCheckpointingLayer):
            self.layer_places[id(module)] = place
        tensors = self.below(module) if leaf else self.own(module)
        self.steps.append(Visit(True, place, tensors, False))
        if module.takes_gradient:
            self.undo.append(Visit(False, place, tensors, True))
        self.forward(path, module, not leaf)
        self.steps.append(Visit(False, place, tensors, False))
        fetches = self.fetches_as_leaf(module) if leaf else module.backward_fetches
        self.undo += [Visit(True, place, tensors, True)] * fetches

    def fetches_as_leaf(self, module: Module) -> int:
        """Stage 3 has a full backward hook on each leaf, with which all tensors of a tuple get a gradient."""
        return max(module.backward_fetches, module.returns + self.eager * module.eager_returns)

    def forward(self, path: str, module: Module, hooked: bool) -> None:
        parameters, children = module.parameters, module.children
        start = self.now() if isinstance(module, GradientCheckpointingLayer) else None
        if module.calls_linear and len(parameters) == 2:
            self.biased.append(len(self.uses))
        order = self.order(module)
        for name in order:
            if name in parameters:
                self.uses.append(self.index[id(parameters[name])])
            elif self.fuses_loss and name == module.fuses:
                self.uses += self.own(children[name])
            elif name in children:
                self.run(f"{path}.{name}" if path else name, children[name], hooked)
        if module.saves_last:
            self.saved = self.now()
        if start:
            self.layers.append(Layer(start, self.saved, self.now(), self.numbers[id(module)]))

    def order(self, module: Module) -> tuple[str, ...]:
        asked = ((self.liger, module.liger_order), (self.eager, module.eager_order), (self.flash, module.flash_order))
        found = next((order for runs, order in asked if runs and order), module.forward_order)
        return found or (*module.parameters, *module.children)

    def own(self, module: Module) -> tuple[int, ...]:
        """And what its forward reads of another module: DeepSpeed registers that with it (external parameters)."""
        if self.fuses_loss and module.fuses:
            return self.own(module.children[module.fuses])
        return tuple([self.index[id(p)] for p in module.parameters.values()]) if module.parameters else ()

    def below(self, module: Module) -> tuple[int, ...]:
        """Its own parameters and those of the whole tree under it."""
        return tuple([self.index[id(parameter)] for _name, parameter in module.named_parameters()])

    def backward(self) -> list[Visit]:
        return self.undone(0, len(self.undo))

    def recomputing(self, which: Recomputing) -> list[Visit]:
        """Backward; where a layer's first saved tensor is asked for, its forward runs again, up to the last one.

        A reentrant layer runs again as a whole before any of its own backward.
        """
        visits: list[Visit] = []
        end = len(self.undo)
        for layer in reversed(self.layers):
            if not which.has(layer.number):
                continue
            start, undo_start = layer.start
            to, undo_to = layer.end if which.reentrant else layer.saved
            visits += self.undone(undo_to, end)
            visits += self.steps[start:to]
            visits += self.undone(undo_start, undo_to)
            end = undo_start
        return visits + self.undone(0, end)

    def undone(self, start: int, end: int) -> list[Visit]:
        visits = self.undo[start:end][::-1]
        called_again = len(self.steps) > 2 * len(self.places)
        return first_exits(visits) if called_again else visits

    def uses_stage3(self) -> list[int]:
        uses = self.uses.copy()
        for at in self.biased:
            uses[at], uses[at + 1] = uses[at + 1], uses[at]
        return uses


def first_exits(visits: list[Visit]) -> list[Visit]:
    """Of a module's calls the hook after backward tells the end of the latest: each call starts its count anew."""
    left: set[int] = set()
    kept = []
    for visit in visits:
        if visit.enters or visit.module not in left:
            kept.append(visit)
        if not visit.enters:
            left.add(visit.module)
    return kept
