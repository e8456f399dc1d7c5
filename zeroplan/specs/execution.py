"""The order in which a step runs a model, and what its operators have alive meanwhile."""

from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple, Protocol


class ModuleHook(NamedTuple):
    """A module is entered or left, in the order in which DeepSpeed's hooks see it."""

    enters: bool
    module: int
    tensors: tuple[int, ...]
    """Indices into the model's tensors: the module's own, none for many, all below it for a leaf."""
    backward: bool
    """Under backward; False for what a checkpointed layer runs again inside it."""


class LayerPosition(NamedTuple):
    """A layer that checkpointing knows."""

    module: int
    """Its number among the modules entered."""
    tensor: int
    """Its first tensor, and how many it has."""
    tensors: int
    place: int
    """Among all layers that transformers can checkpoint, those too that no step runs: what every-K counts."""


class Execution(NamedTuple):
    """The order of one training step: modules entered and left, and gradients becoming ready."""

    modules: tuple[str, ...]
    """Paths of the modules entered, in the order in which forward first calls them; "" is the root."""
    forward: Sequence[ModuleHook]
    backward: Sequence[ModuleHook]
    recomputing: Sequence[ModuleHook]
    """Backward with layers checkpointed, all unless others are asked for: their forward runs again inside it."""
    gradients: tuple[int, ...]
    """Tensors in the order in which their gradients become ready; those that get none are not here."""
    gradients_stage_3: tuple[int, ...]
    """The same at stage 3, whose own linear function gives weights before biases."""
    leaves: frozenset[int]
    """Modules entered as a whole."""
    subtrees: tuple[tuple[int, ...], ...]
    """All tensors below each module, where there are leaves: releasing one, DeepSpeed counts them."""
    layers: tuple[LayerPosition, ...] = ()
    """Those that are entered, in order."""
    parametrized: Mapping[int, tuple[int, ...]] = MappingProxyType({})
    """Tensors of a module that its hooks in forward do not see: torch.nn.utils.parametrize has them meanwhile."""
    computing: frozenset[int] = frozenset()
    """Tensors of which a wrapper computes a parameter before it runs the module: their gradients come after its
    backward."""


class AllocatedActivations(NamedTuple):
    """One moment of a pass."""

    module: str
    """The path of the module at work, empty for the model itself."""
    kinds: dict[str, int]
    """Bytes alive, by what keeps them."""


class Intervals(Protocol):
    """Forward or backward of a model as intervals, each answer worked out when somebody asks."""

    @property
    def levels(self) -> tuple[Sequence[int], Sequence[int]]:
        """Bytes of activations alive in each interval at most, and at its end; the gradient that ends one aside."""

    @property
    def fullest(self) -> tuple[int, int]:
        """The most of them, and the first interval that has so many."""

    def align(self, hooks: Sequence[ModuleHook]) -> Sequence[int]:
        """The interval at whose end each hook falls."""

    def ready(self) -> dict[int, int]:
        """The interval that each tensor's gradient ends."""


class PassTimeline:
    """Forward or backward as a list of intervals; each of its answers is worked out once, when it is asked for.

    `start`: bytes alive before the first.
    """

    def __init__(self, intervals: Intervals, hooks: Sequence[ModuleHook], start: int) -> None:
        self.intervals, self.module_hooks, self.start = intervals, hooks, start

    @property
    def fullest(self) -> tuple[int, int]:
        """As `Intervals` has it."""
        return self.intervals.fullest

    @cached_property
    def most(self) -> Sequence[int]:
        """Bytes of activations alive in each interval at most."""
        return self.intervals.levels[0]

    @cached_property
    def now(self) -> Sequence[int]:
        """And at its end; the gradient that ends one aside."""
        return self.intervals.levels[1]

    @cached_property
    def hooks(self) -> Sequence[int]:
        """The interval at whose end each hook of `Execution.forward`, `.backward` or `.recomputing` falls."""
        return self.intervals.align(self.module_hooks)

    @cached_property
    def ready(self) -> dict[int, int]:
        """The interval that each tensor's gradient ends."""
        return self.intervals.ready()


class Timeline(NamedTuple):
    """What the model's own operators have alive over one micro-step, without parameters and their gradients."""

    forward: PassTimeline
    backward: PassTimeline
    saved: int
    """When forward has returned and only the loss is held."""
