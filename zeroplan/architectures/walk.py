"""One forward pass over a tree of modules, and the backward passes that follow from it.

Autograd runs operators in the reverse order of forward, so backward enters modules in reverse.
"""

from functools import cached_property
from itertools import count
from typing import NamedTuple

from zeroplan.architectures.gradient_flow import EVERYWHERE, GradientFlow
from zeroplan.architectures.identical_layers import checkpointing_layers, places_of_layers, signature_numbers
from zeroplan.architectures.module import SAVES, GradientCheckpointingLayer, Module, tree
from zeroplan.architectures.module_hooks import HookSequence, LayerHooks
from zeroplan.specs.checkpointing import PLAIN, Recomputing
from zeroplan.specs.execution import ModuleHook

Moment = tuple[int, int]
"""How far forward has come: the lengths of `Walk.steps` and `Walk.undo`."""


class LayerSpan(NamedTuple):
    """A layer that checkpointing knows: its own forward, and when it has saved its last tensor."""

    start: Moment
    saved: Moment
    end: Moment
    number: int


class Walked(NamedTuple):
    """What the walk of a layer has added: an identical one adds the same, with other places and tensors."""

    path: str
    ends: list[str]
    """The ends of its modules' paths, its own first."""
    place: int
    """The place of the first."""
    parameters: range
    start: Moment
    steps: LayerHooks
    undo: LayerHooks
    uses: list[int]
    biased: list[int]
    """Places in `uses`."""
    layer: LayerSpan | None
    """None: backward does not enter it."""


class Walk:
    """Modules as forward enters and leaves them, and the uses of parameters.

    Below a module whose path is in `leaves` nothing has hooks. Of identical layers in which gradients flow alike the
    first is walked.
    """

    def __init__(
        self, root: Module, leaves: frozenset[str], *, eager: bool, flash: bool, kernels: str,
        flow: GradientFlow = EVERYWHERE,
    ) -> None:  # fmt: skip
        self.root, self.leaves, self.eager, self.flash, self.flow = root, leaves, eager, flash, flow
        self.liger, self.fuses_loss = kernels == "liger", kernels != "transformers"
        self.index: dict[int, int] = {}  # of parameters, by identity
        self.places: dict[str, int] = {}  # of the modules entered, by path
        self.steps = HookSequence()
        self.undo = HookSequence()  # what backward does in return, the last first
        self.layers: list[LayerSpan] = []
        self.layer_places: dict[int, int] = {}  # of those that are entered, by identity
        self.numbers = {id(layer): number for number, layer in enumerate(checkpointing_layers(root))}
        self.signatures = signature_numbers(root, PLAIN, attending=False)
        self.walked: dict[tuple[int, int | None], Walked] = {}  # by `kind`
        self.parameters: dict[int, range] = {}  # those of a layer that no module before it has, by the layer's identity
        self.saved = self.now()  # the last tensor, so far
        self.uses: list[int] = []
        self.biased: list[int] = []  # where in `uses` a weight and its bias meet the linear function
        self.detached = False  # what runs now has no backward
        self.number(root)
        self.run("", root, True)

    def number(self, module: Module) -> None:
        """Parameters in the order of `named_parameters`."""
        index = self.index
        start = len(index)
        for parameter in module.parameters.values() if module.parameters else ():
            index.setdefault(id(parameter), len(index))
        for child in module.children.values() if module.children else ():
            if child.parameters or child.children:
                self.number(child)
        if isinstance(module, GradientCheckpointingLayer):
            self.parameters[id(module)] = range(start, len(self.index))

    @cached_property
    def paths(self) -> dict[int, str]:
        """The path of each module, by identity."""
        return {id(module): path for path, module in tree(self.root)}

    def now(self) -> Moment:
        return len(self.steps), len(self.undo)

    def run(self, path: str, module: Module, hooked: bool) -> None:
        """One call of the module."""
        leaf = path in self.leaves
        if not (hooked and module.called):
            self.forward(path, module, hooked and not leaf)
        elif not isinstance(module, GradientCheckpointingLayer) or module.is_within:
            self.call(path, module, leaf)
        elif like := self.like(path, module):
            self.follow(like, path, module)
        else:
            self.call_layer(path, module, leaf)

    def like(self, path: str, layer: Module) -> Walked | None:
        """An identical layer that was walked, with the same leaves, if this one is new and all its own."""
        known = self.walked.get(self.kind(layer))
        if known is None or path in self.places or len(self.parameters[id(layer)]) != len(known.parameters):
            return None
        ends = known.ends if self.leaves else ()
        return known if all((path + end in self.leaves) == (known.path + end in self.leaves) for end in ends) else None

    def kind(self, layer: Module) -> tuple[int, int | None]:
        """The same for identical layers in which gradients flow alike."""
        return self.signatures[self.numbers[id(layer)]], self.flow.representative.get(id(layer))

    def call_layer(self, path: str, layer: Module, leaf: bool) -> None:
        """Walk it, and remember it if all it reads is its own."""
        start, place, uses, biased = self.now(), len(self.places), len(self.uses), len(self.biased)
        self.layer_places[id(layer)] = self.places.get(path, place)
        self.call(path, layer, leaf)
        steps, undo, used = self.steps.since(start[0]), self.undo.since(start[1]), self.uses[uses:]
        own = self.parameters[id(layer)]
        if set(used).union(*[hook.tensors for hook in steps]) <= set(own):
            ends = [each[len(path) :] for each in list(self.places)[place:]]
            self.walked.setdefault(
                self.kind(layer),
                Walked(
                    path, ends, place, own, start, LayerHooks(steps), LayerHooks(undo), used,
                    [at - uses for at in self.biased[biased:]], self.layers[-1] if self.enters(layer) else None,
                ),
            )  # fmt: skip

    def follow(self, like: Walked, path: str, layer: Module) -> None:
        """Add what walking a layer like another would add."""
        places, tensors = len(self.places) - like.place, self.parameters[id(layer)].start - like.parameters.start
        steps, undo = (now - then for now, then in zip(self.now(), like.start, strict=True))

        def later(moment: Moment) -> Moment:
            return moment[0] + steps, moment[1] + undo

        self.layer_places[id(layer)] = len(self.places)
        self.places.update(zip([path + end for end in like.ends], count(len(self.places)), strict=False))
        self.steps.follow(like.steps, places, tensors)
        self.undo.follow(like.undo, places, tensors)
        self.biased += [len(self.uses) + at for at in like.biased]
        self.uses += [index + tensors for index in like.uses]
        if like.layer is None:
            return
        if like.layer.saved >= like.start:
            self.saved = later(like.layer.saved)
        number = self.numbers[id(layer)]
        self.layers.append(LayerSpan(later(like.layer.start), self.saved, later(like.layer.end), number))

    def call(self, path: str, module: Module, leaf: bool) -> None:
        """Run a module, with DeepSpeed's hooks around its forward."""
        place = self.places.setdefault(path, len(self.places))
        tensors = self.below(module) if leaf else self.own(module)
        there = self.own(module, parametrized=True) if module.parametrized and not leaf else tensors
        self.steps.add(ModuleHook(True, place, there, False))
        if module.takes_gradient and self.flow.exits(module) and not self.detached:
            self.undo.add(ModuleHook(False, place, tensors, True))
        self.forward(path, module, not leaf)
        self.steps.add(ModuleHook(False, place, there, False))
        fetches = self.fetches_as_leaf(module) if leaf else module.backward_fetches
        fetches *= self.flow.enters(module) and not self.detached
        self.undo.add(*[ModuleHook(True, place, tensors, True)] * fetches)

    def fetches_as_leaf(self, module: Module) -> int:
        """Stage 3 has a full backward hook on each leaf, with which all tensors of a tuple get a gradient."""
        return max(module.backward_fetches, module.returns + self.eager * module.eager_returns)

    def forward(self, path: str, module: Module, hooked: bool) -> None:
        parameters, children = module.parameters, module.children
        start = self.now() if id(module) in self.numbers else None
        outer = self.detached
        detached = outer or module.unreached
        if module.calls_linear and len(parameters) == 2 and not detached:
            self.biased.append(len(self.uses))
        read = {**parameters, **module.reads} if module.reads else parameters
        for at, name in enumerate(self.order(module)):
            self.detached = detached or at < module.detached_calls
            if name in read:
                self.uses += [] if self.detached else [self.index[id(read[name])]]
            elif self.fuses_loss and name == module.fuses:
                self.uses += self.own(children[name])
            elif name in children:
                self.run(f"{path}.{name}" if path else name, children[name], hooked)
            elif name == SAVES:
                self.saved = self.now() if self.enters(module) else self.saved
            elif name in module.elsewhere:
                self.run(self.paths[id(module.elsewhere[name])], module.elsewhere[name], hooked)
        self.detached = outer
        if module.saves_last and self.enters(module):
            self.saved = self.now()
        if start and self.enters(module):  # one that needs no gradient does not run again
            self.layers.append(LayerSpan(start, self.saved, self.now(), self.numbers[id(module)]))

    def enters(self, module: Module) -> bool:
        """Whether backward does."""
        return self.flow.enters(module) and not module.unreached

    def order(self, module: Module) -> tuple[str, ...]:
        request = ((self.liger, module.liger_order), (self.eager, module.eager_order), (self.flash, module.flash_order))
        result = next((order for runs, order in request if runs and order), module.forward_order)
        return (*module.parameters, *module.children) if result is None else result

    def own(self, module: Module, *, parametrized: bool = False) -> tuple[int, ...]:
        """And what its forward reads of another module: DeepSpeed registers that with it (external parameters).

        `parametrized`: as long as its forward runs.
        """
        if self.fuses_loss and module.fuses:
            return self.own(module.children[module.fuses])
        if not module.parameters and not module.borrowed:
            return ()
        away = module.parametrized if parametrized else ()
        return tuple([self.index[id(p)] for p in (*module.parameters.values(), *module.borrowed) if p not in away])

    def below(self, module: Module) -> tuple[int, ...]:
        """Its own parameters and those of the whole tree under it."""
        return tuple([self.index[id(parameter)] for _name, parameter in module.named_parameters()])

    def backward(self) -> list[ModuleHook]:
        return self.undone(0, len(self.undo))

    def recomputing(self, which: Recomputing) -> list[ModuleHook]:
        """Backward; where a layer's first saved tensor is asked for, its forward runs again, up to the last one.

        A reentrant layer runs again as a whole before any of its own backward.
        """
        hooks: list[ModuleHook] = []
        end = len(self.undo)
        places = places_of_layers(self.root)
        for layer in reversed(self.layers):
            if not which.has(places[layer.number]):
                continue
            start, undo_start = layer.start
            to, undo_to = layer.end if which.reentrant else layer.saved
            hooks += self.undone(undo_to, end)
            hooks += self.steps.every()[start:to]
            hooks += self.undone(undo_start, undo_to)
            end = undo_start
        return hooks + self.undone(0, end)

    def undone(self, start: int, end: int) -> list[ModuleHook]:
        hooks = self.undo.every()[start:end][::-1]
        called_again = len(self.steps) > 2 * len(self.places)
        return first_exits(hooks) if called_again else hooks

    def uses_stage3(self) -> list[int]:
        uses = self.uses.copy()
        for at in self.biased:
            uses[at], uses[at + 1] = uses[at + 1], uses[at]
        return uses


def first_exits(hooks: list[ModuleHook]) -> list[ModuleHook]:
    """Keep each module's first exit: the hook after backward tells the end of its latest call alone."""
    left: set[int] = set()
    kept = []
    for hook in hooks:
        if hook.enters or hook.module not in left:
            kept.append(hook)
        if not hook.enters:
            left.add(hook.module)
    return kept
