"""One forward and backward of a model on tensors without numbers, as a training step of transformers runs it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from zeroplan.autograd.attention import fused_attention
from zeroplan.autograd.elementwise import add, contiguous, scaled, to
from zeroplan.autograd.memory import Memory
from zeroplan.autograd.products import batched_product
from zeroplan.autograd.reductions import joined, softmax
from zeroplan.autograd.tensor import Tensor, empty, given
from zeroplan.autograd.views import expanded, reshaped, sliced, transposed, unsqueezed

if TYPE_CHECKING:
    from zeroplan.architectures.module import Module

FLOAT, LONG = 4, 8


class Run(Memory):
    """What a forward pass is told: sizes of the batch, the attention that runs, and whether layers are checkpointed."""

    __slots__ = ("attention", "batch", "checkpointing", "kernel", "seq")

    def __init__(
        self, width: int, batch: int, seq: int, *, attention: str, kernel: str, checkpointing: bool = False
    ) -> None:
        super().__init__(width)
        self.batch, self.seq, self.checkpointing = batch, seq, checkpointing
        self.attention, self.kernel = attention, kernel

    def ids(self) -> Tensor:
        """Token ids, which are their own labels."""
        return given(self, (self.batch, self.seq), LONG)

    def positions(self) -> Tensor:
        """0, 1, ... for every token of a sequence, the same for all sequences."""
        return empty(self, (1, self.seq), LONG)

    def mask(self, window: int | None = None) -> Tensor | None:
        """The causal mask: numbers for eager attention; for the fused kernels nothing, or bits if a window bites."""
        shape = (self.batch, 1, self.seq, self.seq)
        if self.attention == "eager":
            bits = empty(self, (1, 1, self.seq, self.seq), 1)
            del bits
            return empty(self, shape, self.width)
        if window is None or self.seq < window:
            return None
        bits = empty(self, (1, 1, self.seq, self.seq), 1)
        return bits.seen_as(shape, (0, *bits.strides[1:]))


class Shared(NamedTuple):
    """What all layers are given."""

    positions: Tensor
    mask: Tensor | None
    rope: tuple[Tensor, Tensor]


def rotary(run: Run, positions: Tensor, width: int, dtype_width: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of every position, [1, s, width]: in fp32, scaled, then cast (no gradient)."""
    run.records = False
    halves = empty(run, (*positions.shape, width // 2), FLOAT)
    both = empty(run, (*positions.shape, width), FLOAT)
    cosines = scaled(both_like(both))
    sines = scaled(both_like(both))
    made = to(cosines, dtype_width), to(sines, dtype_width)
    del halves
    run.records = True
    return made


def both_like(x: Tensor) -> Tensor:
    return empty(x.memory, x.shape, x.width)


def turned(q: Tensor, k: Tensor, cosines: Tensor, sines: Tensor) -> tuple[Tensor, Tensor]:
    """Queries and keys with their positions in them."""
    from zeroplan.autograd.elementwise import multiply

    cosines, sines = unsqueezed(cosines, 1), unsqueezed(sines, 1)
    turned_q = add(multiply(q, cosines), multiply(half_turned(q), sines))
    turned_k = add(multiply(k, cosines), multiply(half_turned(k), sines))
    return turned_q, turned_k


def half_turned(x: Tensor) -> Tensor:
    """The second half negated, then the first."""
    from zeroplan.autograd.elementwise import negated

    half = x.shape[-1] // 2
    first = sliced(x, -1, half)
    second = sliced(x, -1, x.shape[-1] - half)
    return joined((negated(second), first), -1)


def repeated(x: Tensor, times: int) -> Tensor:
    """Every head of keys or values as often as queries share it."""
    if times == 1:
        return x
    batch, heads, seq, width = x.shape
    return reshaped(expanded(unsqueezed(x, 2), (batch, heads, times, seq, width)), (batch, heads * times, seq, width))


def attended(run: Run, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """The values that each query attends to, [b, s, n, d], and under eager attention the weights."""
    times = q.shape[1] // k.shape[1]
    if run.attention == "eager":
        return attended_eagerly(q, k, v, mask, times)
    made = fused_attention(run.kernel, q, k, v, mask)
    return contiguous(transposed(made, 1, 2)), None


def attended_eagerly(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, times: int
) -> tuple[Tensor, Tensor]:
    """Scores of all queries and keys, their softmax in fp32 and back, and its product with the values."""
    keys, values = repeated(k, times), repeated(v, times)
    weights = scaled(batched_product(q, transposed(keys, 2, 3)))
    if mask is not None:
        weights = add(weights, mask)
    weights = to(softmax(weights, FLOAT), q.width)
    made = batched_product(weights, values)
    return contiguous(transposed(made, 1, 2)), weights


def step(root: Module, run: Run) -> dict[str, int]:
    """Bytes over what is held before forward: saved for backward, and the peaks of forward and of backward."""
    from zeroplan.autograd.graph import Engine

    loss: Any = root(run, run.ids())
    saved, forward = run.live, run.most
    run.look_again()
    Engine().run(loss)
    del loss
    return {"saved": saved, "forward_peak": forward, "backward_peak": run.most}
