"""Modules of peft's low-rank adapters: what stands in a layer's place, and what its forward runs.

peft 0.21.2: tuners/lora/layer.py, tuners/lora/dora.py and utils/other.py. What a forward reads of another module's
parameters DeepSpeed registers with it (external parameters): a wrapper reads the dtype of its adapter's first matrix.
"""

from __future__ import annotations

from copy import deepcopy
from typing import TYPE_CHECKING, Any

from zeroplan.architectures.module import FLOAT, Conv1D, Dropout, Embedding, Linear, LookUp, Module, Parameter, Unary
from zeroplan.autograd import graph
from zeroplan.autograd.autocast import autocast
from zeroplan.autograd.elementwise import add, add_scalar, div, mul, mul_scalar, sub, to
from zeroplan.autograd.products import baddbmm, embedding, linear, matmul
from zeroplan.autograd.reductions import norm_of_rows
from zeroplan.autograd.tensor import Tensor, empty, given
from zeroplan.autograd.views import clone, transpose, view

if TYPE_CHECKING:
    from zeroplan.architectures.forward_run import ForwardRun
    from zeroplan.architectures.quantized import QuantizedLinear
    from zeroplan.specs.adapter import Adapter

NAME = "default"
"""The name that get_peft_model gives its first adapter."""
REGISTERED = (
    "lora_dropout", "lora_A", "lora_B", "lora_embedding_A", "lora_embedding_B", "lora_magnitude_vector",
)  # fmt: skip
IDENTITY = "torch.nn.modules.linear.Identity"


class Container(Module):
    """A ModuleDict or ParameterDict, of the one adapter's part or empty."""

    transformers_class = "torch.nn.modules.container.ModuleDict"
    called = False

    def __init__(self, part: Module | Parameter | None = None) -> None:
        super().__init__()
        if part is not None:
            setattr(self, NAME, part)


EMPTY = Container()
"""One for all layers: most of what is registered has no part in an adapter, and large trees would hold hundreds of
thousands."""


class LoraLayer(Module):
    """What an adapter registers beside the layer in whose place it stands."""

    dropout: Dropout
    down: Linear
    """lora_A: [r, in]."""
    up: Linear
    """lora_B: [out, r]."""

    def __init__(self, base: Module, adapter: Adapter, **parts: Module | Parameter) -> None:
        """`parts`: by the names that peft has for them, in whose order they are registered (LoraLayer.__init__)."""
        super().__init__()
        self.base_layer = base
        dropout = Dropout(adapter.lora_dropout)
        if not adapter.lora_dropout:
            vars(dropout)["transformers_class"] = IDENTITY
        own = {"lora_dropout": dropout, **parts}
        self.children |= {name: Container(own[name]) if name in own else EMPTY for name in REGISTERED}
        vars(self).update(dropout=dropout, down=parts.get("lora_A"), up=parts.get("lora_B"))


class LoraLinear(LoraLayer, Unary):
    """y = W·x + s·B·A·dropout(x), around a linear layer or a Conv1D that stays as it is."""

    transformers_class = "peft.tuners.lora.layer.Linear"
    forward_order = ("base_layer", "lora_dropout", "lora_A", "lora_B")

    def __init__(self, base: Linear | Conv1D | QuantizedLinear, adapter: Adapter, rank: int) -> None:
        down, up = Linear(base.inputs, rank, bias=False), Linear(rank, base.outputs, bias=adapter.lora_bias)
        super().__init__(base, adapter, lora_A=down, lora_B=up)
        self.borrowed = (down.weight,)

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        result = self.base_layer(run, x)
        width = result.width
        x = to(x, run.parameter(self.down.weight).width)
        result = add(result, mul_scalar(self.up(run, self.down(run, self.dropout(run, x)))))
        return to(result, width)


class LoraLinear4bit(LoraLinear):
    """Adapters around a linear layer in 4 bit: a copy of the layer's result comes first (tuners/lora/bnb.py)."""

    transformers_class = "peft.tuners.lora.bnb.Linear4bit"

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        result = self.base_layer(run, x)
        result = clone(result)
        x = to(x, run.parameter(self.down.weight).width)
        output = mul_scalar(self.up(run, self.down(run, self.dropout(run, x))))
        output = to(output, result.width)
        return add(result, output)


class LoraLinear8bit(LoraLinear):
    """Adapters around a linear layer in 8 bit."""

    transformers_class = "peft.tuners.lora.bnb.Linear8bitLt"


class DoraLinear(LoraLayer, Unary):
    """y = W·x + (m / |W + s·B·A| - 1)·W·x + m / |W + s·B·A| · s·B·A·x, m a magnitude of each row (use_dora)."""

    transformers_class = "peft.tuners.lora.layer.Linear"
    magnitude: Magnitude

    def __init__(self, base: Linear | Conv1D | QuantizedLinear, adapter: Adapter, rank: int) -> None:
        down, up = Linear(base.inputs, rank, bias=False), Linear(rank, base.outputs, bias=False)
        self.drops = bool(adapter.lora_dropout)
        magnitude = Magnitude(base, down, up, reads_bias=not self.drops)
        super().__init__(base, adapter, lora_A=down, lora_B=up, lora_magnitude_vector=magnitude)
        vars(self).update(magnitude=magnitude)
        self.forward_order = ("base_layer", *(("lora_dropout",) if self.drops else ()), "lora_magnitude_vector")
        self.borrowed = (down.weight,)

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        result = self.base_result(run, x)
        width = result.width
        x = to(x, run.parameter(self.down.weight).width)
        base_result = None if self.drops else result
        dropped = self.dropout(run, x) if self.drops else x  # x is there as long as this runs
        result = add(result, self.magnitude(run, dropped, base_result))
        return to(result, width)

    def base_result(self, run: ForwardRun, x: Tensor) -> Tensor:
        result: Tensor = self.base_layer(run, x)
        return result


class DoraLinear4bit(DoraLinear):
    """The same around a linear layer in 4 bit, whose result is copied (tuners/lora/bnb.py)."""

    transformers_class = "peft.tuners.lora.bnb.Linear4bit"

    def base_result(self, run: ForwardRun, x: Tensor) -> Tensor:
        result = self.base_layer(run, x)
        return clone(result)


class Magnitude(Module):
    """DoraLinearLayer: reads the base layer's weight, and calls both matrices of the adapter twice."""

    transformers_class = "peft.tuners.lora.dora.DoraLinearLayer"
    forward_order = ("lora_A", "lora_B", "weight", "lora_A", "lora_B")
    detached_calls = 2
    saves_last = True

    down: Linear
    up: Linear
    base: Linear | Conv1D | QuantizedLinear

    def __init__(self, base: Linear | Conv1D | QuantizedLinear, down: Linear, up: Linear, *, reads_bias: bool) -> None:
        super().__init__()
        self.weight = Parameter(base.outputs)
        vars(self).update(base=base, down=down, up=up)
        self.elsewhere = {"lora_A": down, "lora_B": up}
        bias = base.parameters.get("bias") if reads_bias else None
        self.borrowed = (base.weight, bias) if bias else (base.weight,)
        self.turned = isinstance(base, Conv1D)

    def forward(self, run: ForwardRun, x: Tensor, base_result: Tensor | None) -> Tensor:
        identity = empty(run, (self.down.inputs, self.down.inputs), run.parameter(self.down.weight).width)
        lora_weight = transpose(self.up(run, self.down(run, identity)), 0, 1)
        del identity
        lora_weight = to(lora_weight, x.width)
        weight = to(self.base.whole_weight(run), x.width)
        weight_norm = self.weight_norm(weight, lora_weight.detach())
        scale = view(div(run.parameter(self.weight), weight_norm), (1, -1))
        lora_result = self.up(run, self.down(run, x))
        if base_result is None:
            # peft turns a weight into a new parameter, and those ask for a gradient (tuners/lora/dora.py: transpose)
            base_result = linear(x, graph.requires_grad(transpose(weight, 0, 1)) if self.turned else weight)
        elif len(self.borrowed) > 1:
            bias = run.parameter(self.borrowed[1])
            if self.borrowed[1].dtype:  # of 4-bit layers that compute in fp32
                bias = given(run, bias.shape, FLOAT)
            base_result = sub(base_result, bias)
        return add(mul(add_scalar(scale), base_result), mul_scalar(mul(scale, lora_result)))

    def weight_norm(self, weight: Tensor, lora_weight: Tensor) -> Tensor:
        """|W + s·B·A| of each row, which gets no gradient."""
        weight = transpose(weight, 0, 1) if self.turned else weight
        weight = add(weight, mul_scalar(lora_weight))
        return norm_of_rows(weight).detach()


class LoraEmbedding(LoraLayer, LookUp):
    """Rows of a table, and rows of Aᵀ times Bᵀ: parameters that no module calls."""

    transformers_class = "peft.tuners.lora.layer.Embedding"
    forward_order = ("base_layer", "lora_embedding_A", "lora_embedding_B")
    takes_gradient = False
    saves_last = True
    saves_views = True

    def __init__(self, base: Embedding, adapter: Adapter, rank: int) -> None:
        table, up = Parameter(rank, base.rows), Parameter(base.width, rank)
        super().__init__(base, adapter, lora_embedding_A=table, lora_embedding_B=up)
        self.width, self.borrowed = base.width, (table, up)
        self.scales = "embed_scale" in base.buffers

    def forward(self, run: ForwardRun, ids: Tensor) -> Tensor:
        result = self.base_layer(run, ids)
        width = result.width
        table, up = (transpose(run.parameter(each), 0, 1) for each in self.borrowed)
        after = embedding(ids, table)
        rows = matmul(view(after, (-1, after.shape[-1])), up)
        extra = mul_scalar(view(rows, (*ids.shape, self.width)))
        del rows
        if self.scales:
            extra = mul_scalar(extra)
        result = add(result, extra)
        return to(result, width)


class ParamWrapper(LoraLayer):
    """A module of which one parameter is W + s·B·A while it runs; of a stack of matrices each has its own B and A.

    The adapter's linear layers hold B and A, and are never called. Several parameters of a module have a wrapper each,
    one around the other.
    """

    transformers_class = "peft.tuners.lora.layer.ParamWrapper"
    forward_order = ("lora_A", "lora_B", "base_layer")
    base_layer: Module
    holder: Module
    parameter: Parameter

    def __init__(self, base: Module, adapter: Adapter, parameter: Parameter, rank: int, alpha: float) -> None:
        """`base`: what holds the parameter, or a wrapper around it for another one."""
        holder = base.holder if isinstance(base, ParamWrapper) else base
        *stack, rows, columns = parameter.shape
        experts = stack[0] if stack else 1
        transposed = bool(stack) and holder.is_transposed
        inputs, outputs = (rows, columns) if transposed else (columns, rows)
        down, up = Linear(inputs, rank * experts, bias=False), Linear(rank * experts, outputs, bias=False)
        super().__init__(base, adapter, lora_A=down, lora_B=up)
        for part in (down, up):
            vars(part).update(called=False, saves_views=experts > 1)
        self.experts, self.transposed = experts, transposed
        self.scales = alpha != (rank**0.5 if adapter.use_rslora else rank)
        self.computing = (down.weight, up.weight)
        self.borrowed = (parameter, *self.computing)
        holder.parametrized += (parameter,)
        like = {name: getattr(base, name) for name in ("takes_gradient", "backward_fetches", "returns")}
        vars(self).update(holder=holder, parameter=parameter, **like)

    def forward(self, run: ForwardRun, *inputs: Any) -> Any:
        """The wrapped module's, which reads the parameter that is computed; registering that computes it once more."""
        factors = self.factors(run)
        self.computed(run, *factors)
        known: list[Tensor] = []

        def read() -> Tensor:
            if not known:
                known.append(self.computed(run, *factors))
            return known[0]

        outermost = not run.parametrized
        run.parametrized[self.parameter] = read
        try:
            return self.base_layer(run, *inputs)
        finally:
            if outermost:
                run.parametrized.clear()  # torch's cache of them lives until the outermost wrapper is done

    def factors(self, run: ForwardRun) -> tuple[Tensor, ...]:
        """B and A of each matrix, or of the only one their product, in the dtype of what they are added to."""
        width = graph.parameter(run, self.parameter).width
        down, up = run.parameter(self.down.weight), run.parameter(self.up.weight)
        if self.experts == 1:
            return (to(mul_scalar(matmul(up, down)), width),)
        down = view(down, (self.experts, -1, down.shape[-1]))
        up = transpose(transpose(view(up, (up.shape[0], -1, self.experts)), 0, 2), 1, 2)
        factors = (transpose(down, 1, 2), transpose(up, 1, 2)) if self.transposed else (up, down)
        return tuple([to(factor, width) for factor in factors])

    def computed(self, run: ForwardRun, *factors: Tensor) -> Tensor:
        """W + s·B·A, in the dtype of W."""
        weight = graph.parameter(run, self.parameter)
        if self.experts == 1:
            return add(weight, *factors)
        with autocast(run, 0):
            return baddbmm(weight, *factors, scales=self.scales)


class ModulesToSave(Unary):
    """A module of which a copy trains as a whole: the copy runs, the original stays where it was."""

    transformers_class = "peft.utils.other.ModulesToSaveWrapper"
    forward_order = ("modules_to_save",)

    def __init__(self, original: Module) -> None:
        super().__init__()
        self.original_module = original
        self.modules_to_save = Container(deepcopy(original))
        vars(self)["takes_gradient"] = original.takes_gradient

    def forward(self, run: ForwardRun, x: Tensor) -> Tensor:
        result: Tensor = self.modules_to_save.children[NAME](run, x)
        return result


class TableToSave(ModulesToSave, LookUp):
    """An embedding of which a copy trains, and the one that was there."""


class PeftModel(Module):
    """PeftModel, and inside it LoraModel: each calls the one inside and gives what that gives."""

    takes_gradient = False
    inside: Module

    def __init__(self, inside: Module, name: str, transformers_class: str) -> None:
        super().__init__()
        vars(self).update(inside=inside, transformers_class=transformers_class)
        self.children[name] = inside

    def forward(self, run: ForwardRun, ids: Tensor) -> Tensor:
        loss: Tensor = self.inside(run, ids)
        return loss
