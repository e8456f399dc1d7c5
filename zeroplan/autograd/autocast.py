"""torch.autocast: which operators compute in 16 bit, which in fp32, and the copies of weights that it remembers.

The lists are those for CUDA (torch 2.13, ATen/autocast_mode.h); what is on neither computes in the widest dtype it is
given. Backward runs without it: each operator's, in the dtype that forward had. A weight's 16-bit copy is made once and
remembered until forward is over; a checkpointed layer that runs again remembers its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from zeroplan.autograd.elementwise import to
from zeroplan.autograd.memory import Memory
from zeroplan.autograd.tensor import AccumulateGrad, Tensor

FLOAT = 4


def cast_for_product(x: Tensor) -> Tensor:
    """`x` as a product takes it: linear, matmul, addmm, bmm, baddbmm, scaled_dot_product_attention."""
    memory = x.memory
    if not memory.autocast or x.width != FLOAT:
        return x
    if not isinstance(x.node, AccumulateGrad):
        return to(x, memory.autocast)
    result = memory.cast_cache.get(x.node.parameter)
    if result is None:
        result = memory.cast_cache[x.node.parameter] = to(x, memory.autocast)
    return result


def cast_all_for_product(*tensors: Tensor) -> tuple[Tensor, ...]:
    """Arguments of one call, cast from the last to the first."""
    return tuple([cast_for_product(x) for x in reversed(tensors)][::-1])


def cast_to_fp32(x: Tensor) -> Tensor:
    """`x` in fp32: layer_norm, pow, rsqrt, softmax and sum without a dtype of their own."""
    return to(x, FLOAT) if x.memory.autocast else x


@contextmanager
def autocast(memory: Memory, width: int) -> Iterator[None]:
    """Operators are cast inside; the outermost forgets the copies. 0: no autocast."""
    before, memory.autocast = memory.autocast, width
    try:
        yield
    finally:
        memory.autocast = before
        if not before:
            memory.forgotten = [copy.storage.number for copy in memory.cast_cache.values() if copy.storage]
            memory.cast_cache.clear()


def with_autocast(memory: Memory, width: int, run: Callable[..., Any], *inputs: Any) -> Any:
    """`run` under the autocast that was there when it was first asked for."""
    with autocast(memory, width):
        return run(*inputs)
