"""What a recording holds of a module's forward: its operators in order, what each saves for backward and runs there.

An operator is one of torch's own below autograd (aten), which has one node in the graph. Tensors are numbered within a
program; parameters and buffers go by name. Sizes are polynomials in the batch b and the sequence s.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from zeroplan.autograd.tensor import Needs

Ref = int | str | None
"""A tensor of the program by its number, a parameter or buffer by its name, or one that is given without a gradient.

Names begin below the module; one of another module begins with "/".
"""


class Extent(NamedTuple):
    """A number that grows with the batch and the sequence: (c + cb·b + cs·s + cbs·b·s + cbss·b·s² + css·s²) / per."""

    constant: int
    b: int = 0
    s: int = 0
    bs: int = 0
    bss: int = 0
    ss: int = 0
    per: int = 1
    """Of layers that take several tokens together."""

    def at(self, batch: int, seq: int) -> int:
        whole = (
            self.constant + self.b * batch + self.s * seq + self.bs * batch * seq
            + self.bss * batch * seq * seq + self.ss * seq * seq
        )  # fmt: skip
        return whole if self.per == 1 else whole // self.per


class Layout(NamedTuple):
    """How a tensor lies in its storage."""

    shape: tuple[Extent, ...]
    strides: tuple[Extent, ...]
    width: int
    """Bytes of an element."""


class Result(NamedTuple):
    """A tensor that an operator gives."""

    number: int
    layout: Layout
    size: Extent
    """Bytes of its storage, where that is new."""
    of: int = -1
    """The operator's input whose storage it has; -1: it is new."""
    is_input: bool = False
    """It is that input, written in place."""
    counted: bool = True
    """Its storage is the GPU's."""
    is_there: bool = False
    """Operators before have made it: a function that is written in Python gives it its node."""


class Saved(NamedTuple):
    """A tensor that an operator saves for backward: one of its inputs, one of its results, or neither."""

    kind: str
    at: int
    layout: Layout
    size: Extent = Extent(0)


INPUT, RESULT, OTHER = "input", "result", "other"


class Allocated(NamedTuple):
    """Backward makes a storage, by its number."""

    number: int
    size: Extent


class Freed(NamedTuple):
    """It goes again, within the operator's backward."""

    number: int


class GradientOf(NamedTuple):
    """The gradient of an input: a storage that backward made, or the one that a result's gradient came in."""

    made: bool
    at: int
    """The storage's number, or the place of the result."""
    layout: Layout


class Backward(NamedTuple):
    """What an operator saves and runs where certain of its inputs need a gradient."""

    name: str
    saved: tuple[Saved, ...]
    steps: tuple[Allocated | Freed, ...]
    gradients: tuple[GradientOf | None, ...]
    differentiable: tuple[bool, ...]
    """Whether each result has a gradient."""
    flops: Extent = Extent(0)
    """Of its products."""
    causal: bool = False
    """As of the operator."""


class Operator(NamedTuple):
    name: str
    inputs: tuple[Ref, ...]
    results: tuple[Result, ...]
    backward: Mapping[Needs, Backward]
    """By which inputs need a gradient; none where none of its results can have one."""
    base: int | None = None
    """What the input that it writes to in place is a view of, where that is another tensor of the program."""
    flops: Extent = Extent(0)
    """Of a product."""
    causal: bool = False
    """It is attention whose kernel may leave out the pairs of a token and those ahead."""


FUNCTION = "function"
"""An operator's name where a torch.autograd.Function gives nodes to what its own operators have made."""
LINEAR = "linear"
"""An operator's name where torch.nn.functional.linear is called, which DeepSpeed's stage 3 replaces."""

ASKS = "requires_grad_"
"""An operator's name where the model's own code calls requires_grad_ on a tensor; it has no results."""
READS = "getattr"
"""An operator's name where a module takes a parameter of a module below it, or elsewhere, that does not run: for its
dtype, say. DeepSpeed's stage 3 gathers it then, and registers it with the module that reads it; it has no results.
"""
FLASH_FUNCTION = "flash_attention"
"""The first word of an operator's name where the flash-attention package's function is called; then what it is told:
`dropout=0.1`, `softcap`, `local` for a window that is shorter than the sequence, and where sequences of several lengths
lie in one row `longest=1024`.
"""


class Call(NamedTuple):
    """A module below is called: what of it runs, on which tensors, and which of what it made are used later."""

    module: str
    """Its path below the one that calls it, or with "/" before it that in the model."""
    program: Program
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    positional: tuple[int, ...] = ()
    """Tensors that it is given by position: DeepSpeed's hook after backward is on these."""
    returned: tuple[int, ...] = ()
    """Those that it returns, on which the hook before backward is; the caller's numbers, as above."""


class Release(NamedTuple):
    """Python lets go of the last reference to these tensors' storage."""

    tensors: tuple[int, ...]


class Keeps(NamedTuple):
    """What layers have put into a mapping that all of them are given: their checkpoints keep it."""

    modules: tuple[str, ...]
    """Those that are given it, as a call has their paths."""
    tensors: tuple[int, ...]


class Program(NamedTuple):
    """One call of a module. Its inputs are numbered first."""

    inputs: int
    steps: tuple[Operator | Call | Release | Keeps, ...]
    outputs: tuple[int, ...]
