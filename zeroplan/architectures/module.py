"""Modules as torch sees them: parameters and children in the order of registration.

A family writes its model once, as a tree of these; tensors (names, shapes, order, tying), and with them every
byte that DeepSpeed holds, follow from the tree. Shapes are counted in elements.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from math import prod
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import ref

from zeroplan.autograd.activations import activation
from zeroplan.autograd.autocast import with_autocast
from zeroplan.autograd.elementwise import apply_dropout
from zeroplan.autograd.graph import requires_grad
from zeroplan.autograd.products import embedding, linear, matmul
from zeroplan.autograd.tensor import Tensor
from zeroplan.autograd.views import view

if TYPE_CHECKING:
    from zeroplan.architectures.forward_run import ForwardRun

FLOAT = 4
KEPT_TREES = 8
SAVES = "(saves)"
"""Stands in a `forward_order` where the module's own forward saves a tensor between two of its modules."""


class Parameter:
    """A parameter. Two modules that hold the same object are tied."""

    __slots__ = ("shape",)

    packed: tuple[int, int] | None = None
    """Shape of the weight whose 4 or 8 bits an element it holds."""
    dtype: str = ""
    """Of the tensor, where it is not the training precision's whatever that is."""
    trains: bool = True
    """Its requires_grad as the model's own class sets it."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape

    @property
    def elements(self) -> int:
        return prod(self.shape)


class Buffer:
    """A tensor that is not trained, in the dtype (torch's name) that a model built in float32 gives it.

    One that is `cast_by_init` has the training dtype when built under zero.Init, whose torch.arange answers in that;
    what transformers converts to float32 afterwards, as in all scaled ropes (modeling_rope_utils.py), has not.
    """

    __slots__ = ("cast_by_init", "dtype", "shape")

    def __init__(self, shape: tuple[int, ...], dtype: str, *, cast_by_init: bool = False) -> None:
        self.shape, self.dtype, self.cast_by_init = shape, dtype, cast_by_init

    @property
    def elements(self) -> int:
        return prod(self.shape)


class Module:
    """A node of the tree: parameters, buffers and modules are registered in order of assignment."""

    transformers_class: ClassVar[str] = ""
    """The class that it stands for: in full, or what follows the family's own prefix (DecoderLayer)."""
    forward_order: tuple[str, ...] | None = None
    """Modules and own parameters in the order in which forward uses them; absent names are skipped, and what
    is not named never runs in training. None: own parameters, then modules, as registered."""
    eager_order: tuple[str, ...] | None = None
    """`forward_order` under eager attention, where that differs."""
    flash_order: tuple[str, ...] | None = None
    """`forward_order` with the flash-attention package, where that differs."""
    liger_order: tuple[str, ...] | None = None
    """`forward_order` under Liger's kernels, where that differs."""
    fuses: ClassVar[str] = ""
    """The module whose weight Liger's fused loss reads in place of calling it."""
    called: ClassVar[bool] = True
    """It has a forward of its own: hooks fire."""
    saves_last: bool = False
    """After its last module, its own forward saves a tensor for backward (inputs of a product, a dropout's mask)."""
    backward_fetches: int = 1
    """How many of the tensors that it returns get a gradient: DeepSpeed's hook before backward fires for each."""
    returns: ClassVar[int] = 1
    """How many could get one, alone or in a tuple: torch's full backward hook on a leaf gives zeros to the others."""
    eager_returns: ClassVar[int] = 0
    """And how many more under eager attention: its weights."""
    takes_gradient: ClassVar[bool] = True
    """A tensor that gets a gradient comes in as a positional argument: without it no hook of DeepSpeed's tells
    the end of its backward."""
    saves_views: ClassVar[bool] = False
    """Backward needs its weights through views (a transpose, a slice), which keep gathered storage alive after
    DeepSpeed has released the parameter."""
    detached_calls: ClassVar[int] = 0
    """How many modules of `forward_order`, from the first, run only for a result that is detached: in backward nothing
    of those calls runs."""
    calls_linear: ClassVar[bool] = False
    """Its product is torch.nn.functional.linear, which DeepSpeed replaces at stage 3."""

    borrowed: tuple[Parameter, ...] = ()
    """Parameters of other modules that its forward reads: DeepSpeed registers them with it (external parameters)."""
    reads: Mapping[str, Parameter] = MappingProxyType({})
    """Those of them that `forward_order` names."""
    elsewhere: Mapping[str, Module] = MappingProxyType({})
    """Modules registered elsewhere that its forward calls, by the names that `forward_order` has for them."""

    parametrized: tuple[Parameter, ...] = ()
    """Own parameters that are elsewhere while its forward runs: what is computed of them is in their place
    (torch.nn.utils.parametrize)."""
    computing: tuple[Parameter, ...] = ()
    """Those of which a wrapper computes what is in their place."""
    is_transposed: ClassVar[bool] = False
    """Experts' matrices are [experts, in, out]."""
    unreached: bool = False
    """In a recording, what it returns has no part in the loss: its parameters get no gradient."""
    program_number: int = 0
    """The number of the recorded program that a layer runs: layers with the same are identical. 0: described."""
    input_embeddings: tuple[str, ...] | None = None
    """In a recording, paths of the modules that enable_input_require_grads hooks; None: the first table of words."""
    hands_through: bool = False
    """In a recording, its layers return tensors that they are given, as T5's return position biases."""
    chains: tuple[int, ...] | None = None
    """How many of the layers below it that checkpointing knows follow each other, with nothing that has a gradient
    between them: of each chain, in the order of forward. None: all of them. Empty: they are not known to.
    """

    parameters: dict[str, Parameter]
    buffers: dict[str, Buffer]
    children: dict[str, Module]

    def __init__(self) -> None:
        vars(self).update(parameters={}, buffers={}, children={})  # past __setattr__: thousands of these are made

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, Parameter):
            self.parameters[name] = value
        elif isinstance(value, Module):
            self.children[name] = value
        elif isinstance(value, Buffer):
            self.buffers[name] = value
        vars(self)[name] = value

    def __call__(self, run: ForwardRun, *inputs: Any) -> Any:
        """Forward; the inputs live as long as it runs."""
        outer = run.enter(self, inputs)
        out = self.forward(run, *inputs)
        run.leave(self, outer, out)
        return out

    def forward(self, run: ForwardRun, *inputs: Any) -> Any:
        raise NotImplementedError(self.transformers_class)

    def named_modules(self, prefix: str = "") -> Iterator[tuple[str, Module]]:
        """The tree, parents before children, in the order of registration (torch's `named_modules`)."""
        waiting = [(prefix, self)]
        while waiting:
            path, module = waiting.pop()
            yield path, module
            start = f"{path}." if path else ""
            waiting += [(start + name, child) for name, child in reversed(module.children.items())]

    def named_parameters(self) -> Iterator[tuple[str, Parameter]]:
        """Each parameter once, under the first name it appears with (torch's `named_parameters`)."""
        seen: set[int] = set()
        for prefix, module in self.named_modules():
            for name, parameter in module.parameters.items():
                if id(parameter) not in seen:
                    seen.add(id(parameter))
                    yield (f"{prefix}.{name}" if prefix else name), parameter

    def named_buffers(self) -> Iterator[tuple[str, Buffer]]:
        """Each buffer with its name (torch's `named_buffers`)."""
        for prefix, module in self.named_modules():
            for name, buffer in module.buffers.items():
                yield (f"{prefix}.{name}" if prefix else name), buffer


@lru_cache(maxsize=KEPT_TREES)
def tree(root: Module) -> list[tuple[str, Module]]:
    """`named_modules` of a whole model, listed once."""
    return list(root.named_modules())


@lru_cache(maxsize=KEPT_TREES)
def tree_parameters(root: Module) -> list[tuple[str, Parameter]]:
    """`named_parameters` of a whole model, listed once."""
    return list(root.named_parameters())


def replace_module(modules: dict[str, Module], path: str, by: Module) -> None:
    """Put another module in one's place, in the order in which that was registered; `modules`: all of the tree."""
    parent, _dot, name = path.rpartition(".")
    holder = modules[parent]
    holder.children[name] = by
    if name in vars(holder):
        vars(holder)[name] = by


class Unary(Module):
    """A module that makes one tensor of one."""

    def __call__(self, run: ForwardRun, x: Tensor) -> Tensor:
        """Frozen, transformers has the input embedding's result ask for a gradient where layers are checkpointed."""
        outer = run.enter(self, (x,))
        out = self.forward(run, x)
        run.leave(self, outer, out)
        return requires_grad(out) if id(self) in run.opens and out.node is None else out

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        raise NotImplementedError(self.transformers_class)


class ModuleList(Module):
    transformers_class = "torch.nn.modules.container.ModuleList"
    called = False

    def __init__(self, modules: Iterable[Module]) -> None:
        super().__init__()
        for index, module in enumerate(modules):
            self.children[str(index)] = module


class GradientCheckpointingLayer(Module):
    """transformers checkpoints its forward, with its own hooks outside, when told to."""

    kind = ""
    """Which of the model's masks and ropes it gets."""
    gives_weights: ClassVar[bool] = False
    """It returns a pair: under eager attention its weights are the second."""
    is_within = False
    """It is a part of another layer: identical layers are those around it."""
    mask_by_position: ClassVar[bool] = False
    """The mask is given by position: a reentrant checkpoint keeps it until the layer's backward has run."""

    def __call__(self, run: Any, *inputs: Any) -> Any:
        if not self.is_within and run.passes_over(self, inputs):
            return (inputs[0], run.weights()) if self.gives_weights else inputs[0]
        outer = run.enter(self, inputs)
        run.layer = run.layer if self.is_within else id(self)
        forward = self.checkpointed if id(self) in run.checkpointed else self.forward
        out = forward(run, *inputs)
        run.leave(self, outer, out)
        run.layer = run.layer if self.is_within else 0
        if self.gives_weights and out[1] is not None:
            run.weights = ref(out[1])  # a layer passed over gives them again, as long as they live
        return out

    def checkpointed(self, run: Any, x: Tensor, *rest: Any) -> Any:
        """Forward through torch.utils.checkpoint, in the one way or the other."""
        forward = partial(with_autocast, run, run.autocast, self.forward, run)
        if not run.recomputing.reentrant:
            from zeroplan.autograd.checkpoint import checkpoint

            return checkpoint(run, forward, x, *rest, keeps_products=run.recomputing.keeps_products)
        from zeroplan.autograd.reentrant import checkpoint_reentrant

        if self.mask_by_position:
            shared, mask = rest[0]._replace(mask=None), rest[0].mask
            given = partial(_with_mask, forward, shared)
            return checkpoint_reentrant(run, given, x, positional=(mask,), input_offload=run.input_offload)
        return checkpoint_reentrant(run, forward, x, *rest, input_offload=run.input_offload)


def _with_mask(forward: Callable[..., Any], shared: Any, x: Tensor, mask: Tensor | None) -> Any:
    return forward(x, shared._replace(mask=mask))


class Linear(Unary):
    """y = x·Wᵀ + b, W of shape [out, in]."""

    transformers_class = "torch.nn.modules.linear.Linear"
    calls_linear = True
    saves_last = True

    def __init__(self, inputs: int, outputs: int, *, bias: bool) -> None:
        super().__init__()
        self.inputs, self.outputs = inputs, outputs
        self.weight = Parameter(outputs, inputs)
        if bias:
            self.bias = Parameter(outputs)

    def whole_weight(self, run: ForwardRun) -> Tensor:
        """W, as others read it."""
        return run.parameter(self.weight)

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        bias = self.parameters.get("bias")
        return linear(x, run.parameter(self.weight), run.parameter(bias) if bias else None)


class Conv1D(Unary):
    """GPT-2's linear layer: the weight is stored [in, out] and there is always a bias."""

    transformers_class = "transformers.pytorch_utils.Conv1D"
    saves_last = True

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.inputs, self.outputs = inputs, outputs
        self.weight = Parameter(inputs, outputs)
        self.bias = Parameter(outputs)

    def whole_weight(self, run: ForwardRun) -> Tensor:
        """W, as others read it."""
        return run.parameter(self.weight)

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        rows = view(x, (-1, x.shape[-1]))
        out = matmul(rows, run.parameter(self.weight), run.parameter(self.bias))
        return view(out, (*x.shape[:-1], self.outputs))


class LookUp(Unary):
    """A module that gives a row for each of its integers."""

    takes_gradient = False


class Embedding(LookUp):
    """A table with a row for each integer."""

    transformers_class = "torch.nn.modules.sparse.Embedding"
    saves_last = True

    def __init__(self, rows: int, width: int) -> None:
        super().__init__()
        self.rows, self.width = rows, width
        self.weight = Parameter(rows, width)

    def forward(self, run: ForwardRun, ids: Tensor) -> Tensor:
        return embedding(ids, run.parameter(self.weight))


class Activation(Unary):
    """Its class depends on the function; it owns nothing."""

    saves_last = True

    def __init__(self, function: str) -> None:
        super().__init__()
        self.function = function

    def forward(self, _run: ForwardRun, x: Tensor) -> Tensor:
        return activation(self.function, x)


class Dropout(Unary):
    """Without a probability it returns its input."""

    transformers_class = "torch.nn.modules.dropout.Dropout"

    def __init__(self, probability: float | None) -> None:
        super().__init__()
        self.probability = probability
        self.saves_last = bool(probability)

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        return apply_dropout(x, self.probability, on_cpu=run.on_cpu)
