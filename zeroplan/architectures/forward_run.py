"""What modules are run with: sizes of the batch, the attention and kernels that run, layers that are checkpointed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from zeroplan.autograd.graph import parameter
from zeroplan.autograd.memory import ENTER, LEAVE, Memory, Shaped
from zeroplan.autograd.tensor import Tensor, empty, given
from zeroplan.specs.checkpointing import PLAIN, ActivationCheckpointing, Recomputing

if TYPE_CHECKING:
    from zeroplan.autograd.offloaded_inputs import InputOffload

BOOL, FLOAT, LONG = 1, 4, 8
MULTIPROCESSORS = 132
"""Multiprocessors of an H100 or H200. An A100 has 108: a norm's backward then makes 96·h bytes less for a moment."""

FLASH = {"flash_attention_2": 2, "flash_attention_3": 3}
"""Versions of the flash-attention package by the name that transformers has for them."""


class ForwardRun(Memory):
    """A forward pass: sizes of the batch, the attention that runs, and which layers are checkpointed."""

    __slots__ = (
        "attention",
        "autocast_bytes",
        "batch",
        "checkpointed",
        "half",
        "input_offload",
        "keeps",
        "kernel",
        "kernels",
        "loaded",
        "mapped",
        "opens",
        "parametrized",
        "passed_over",
        "recomputing",
        "seq",
        "weights",
    )  # fmt: skip

    def __init__(
        self, width: int, batch: int, seq: int, *, attention: str, kernel: str, recomputing: Recomputing = PLAIN,
        half: bool = False, kernels: str = "transformers", autocast_bytes: int = 0, loaded: int = 0,
    ) -> None:  # fmt: skip
        super().__init__(width)
        self.batch, self.seq, self.recomputing = batch, seq, recomputing
        self.checkpointed: frozenset[int] = frozenset()
        """Layers that are, by identity."""
        self.input_offload = input_offload_of(recomputing.inputs)
        """What deepspeed.checkpointing does with their inputs."""
        self.keeps: dict[int, Callable[[], list[tuple[Tensor, ...]] | None]] = {}
        """What the checkpoints of layers keep beside their inputs, as long as they live, by the layers' identity."""
        self.mapped: dict[int, dict[int, Callable[[Sequence[Tensor], Tensor], None]]] = {}
        """What puts an output of a layer that runs again, by its place, into a mapping that all layers are given."""
        self.opens: frozenset[int] = frozenset()
        """The input embedding, by identity, where layers are: a frozen one's result asks for a gradient then."""
        self.attention = attention
        """eager, sdpa, flash_attention_2 or flash_attention_3."""
        self.kernel = kernel
        """The kernel of sdpa: cpu, flash, efficient, cudnn or math; all but the first are CUDA's."""
        self.half = half
        """Parameters are fp16: CUDA's softmax reads it without a copy in fp32."""
        self.autocast_bytes = autocast_bytes
        """Bytes of an element of what forward computes in under torch.autocast; 0: without it."""
        self.loaded = loaded or width
        """Bytes of an element of the weights that were packed."""
        self.kernels = kernels
        """transformers, liger or liger-loss."""
        self.parametrized: dict[Shaped, Callable[[], Tensor]] = {}
        """Parameters that stand for something computed of them, as long as a wrapper of their module runs."""
        self.passed_over: frozenset[int] = frozenset()
        """Layers that return their input: others represent them."""
        self.weights: Callable[[], Tensor | None] = lambda: None
        """What the last layer that ran returned beside its output."""

    def parameter(self, of: Shaped) -> Tensor:
        """The tensor that stands for a module's parameter."""
        if self.parametrized and of in self.parametrized:
            return self.parametrized[of]()
        return parameter(self, of)

    def enter(self, module: object, _inputs: tuple[Any, ...] = ()) -> int:
        """A module's forward begins; gives the module around it."""
        outer = self.scope
        self.record_event(ENTER, id(module))
        self.scope = id(module)
        return outer

    def leave(self, module: object, outer: int, _out: Any = None) -> None:
        self.record_event(LEAVE, id(module))
        self.scope = outer

    def passes_over(self, layer: Any, _inputs: tuple[Any, ...]) -> bool:
        """Whether the layer returns its input, as another one represents it."""
        return id(layer) in self.passed_over

    @property
    def on_cpu(self) -> bool:
        return self.kernel == "cpu"

    @property
    def flash(self) -> int:
        """The version of the flash-attention package that runs; 0: none."""
        return FLASH.get(self.attention, 0)

    @property
    def liger(self) -> bool:
        """Liger's norms, rotary positions, MLPs and experts run."""
        return self.kernels == "liger"

    @property
    def fuses_loss(self) -> bool:
        """And, or only, its fused linear cross-entropy."""
        return self.kernels != "transformers"

    @property
    def programs(self) -> int:
        """How many programs Liger starts to sum a norm's weight gradient: one a multiprocessor."""
        return 1 if self.on_cpu else MULTIPROCESSORS

    def ids(self) -> Tensor:
        """Token ids, which are their own labels."""
        return given(self, (self.batch, self.seq), LONG)

    def positions(self) -> Tensor:
        """0, 1, ... for every token of a sequence, the same for all sequences."""
        return empty(self, (1, self.seq), LONG)

    def mask(self, window: int | None = None, *, always: bool = False) -> Tensor | None:
        """The causal mask: numbers for eager attention; for the fused kernels nothing, or bits if a window bites.

        The flash-attention package is told of a window in numbers.
        """
        if self.flash:
            return None
        if self.attention != "eager" and not always and (window is None or self.seq < window):
            return None
        bits = empty(self, (1, 1, self.seq, self.seq), BOOL)
        shape = (self.batch, 1, self.seq, self.seq)
        if self.attention == "eager":
            return empty(self, shape, self.width)
        return bits.as_strided(shape, (0, *bits.strides[1:]))


def input_offload_of(how: ActivationCheckpointing) -> InputOffload | None:
    """None where inputs stay as they are."""
    if not how.empties:
        return None
    from zeroplan.autograd.offloaded_inputs import InputOffload

    buffers = how.number or 0 if how.contiguous else 0
    return InputOffload(partitions=how.partitions, on_host=how.on_host, buffers=buffers)


class LayerInputs(NamedTuple):
    """What a layer is given beside its input."""

    positions: Tensor | None
    mask: Tensor | None
    rope: tuple[Tensor, Tensor] | None = None
    local: bool = False
    """A query sees fewer keys than the sequence has."""
