"""What Muon's update makes of one matrix for a while, at its largest moment as the operators run one by one, and its
products.

DeepSpeed 0.19.8 runtime/zero/muon/original_muon.py: muon_update and its two iterations, in 16 bit. torch.compile joins
some of the operators on a card; the recorded runs are eager.
"""

from __future__ import annotations

from functools import lru_cache
from math import prod
from typing import NamedTuple

from zeroplan.costs.deepspeed.resident import DTYPE_BYTES

COMPUTED = {"gram": "float16", "standard": "bfloat16"}
"""The dtype that each iteration runs in (ns_compute_dtype)."""


STEPS = 5
"""Steps of the iteration; nothing sets another number."""


class ProductFlops(NamedTuple):
    """Matrix products of one update."""

    flops: int
    touched: int
    """Bytes of operands and results, in 16 bit."""


@lru_cache(maxsize=256)
def products(shape: tuple[int, ...], method: str) -> ProductFlops:
    """Products for a matrix of n rows and m columns, n the less of both, or for a stack of them.

    Five steps of the standard iteration are two products of n·n·m and one of n·n·n each. The gram iteration has four of
    the former in all (X·Xᵀ and Q·X, both once more where it begins again) and 14 of the latter (Z, Q, RZ and R in the
    middle step; no Q in a first one, no RZ and R in a last); a square matrix takes the standard one.
    """
    n, m = sorted(shape[-2:])
    count = prod(shape[:-2])
    long, short = (4, 14) if method == "gram" and n < m else (2 * STEPS, STEPS)
    flops = 2 * n * n * (long * m + short * n)
    touched = 2 * (long * (2 * n * m + n * n) + short * 3 * n * n)
    return ProductFlops(count * flops, count * touched)


def workspace(shape: tuple[int, ...], dtype: str, method: str) -> int:
    """Most bytes beside a gradient and its momentum, both of `dtype`; the update that comes back counts in them."""
    n, w = prod(shape), DTYPE_BYTES[dtype]
    finite = n * (w + 3)  # magnitudes, and three masks
    blended = 2 * n * w  # the new momentum, and the one that is taken
    return max(finite, blended, _normalized(n, dtype, method), _iterated(shape, method), _returned(n, dtype, method))


def _normalized(n: int, dtype: str, method: str) -> int:
    """The matrix divided by its norm: in fp32 for an fp16 gradient before the cast to 16 bit, or after the cast."""
    if method == "standard":
        return 2 * n * (1 if dtype == COMPUTED[method] else 2)
    quotient = 4 * n if dtype == "float16" else DTYPE_BYTES[dtype] * n
    return quotient + 2 * n + (4 * n if dtype == "float16" else 0)


def _iterated(shape: tuple[int, ...], method: str) -> int:
    """The matrix X in 16 bit beside products as large as its Gram matrix X·Xᵀ, those of a stack of matrices together.

    The gram iteration keeps R, Z, Q and RZ and makes three more of them, or the next X; the other one makes X again.
    """
    low, high = sorted(shape[-2:])
    x = 2 * prod(shape)
    gram = x * low // high
    if method == "gram" and low < high:
        return max(x + 7 * gram, 2 * x + 4 * gram)
    return max(4 * x + 2 * gram, x + 5 * gram)


def _returned(n: int, dtype: str, method: str) -> int:
    """Back in the gradient's dtype, then chosen if the gradient was finite."""
    w = DTYPE_BYTES[dtype]
    return max(0 if dtype == COMPUTED[method] else (2 + w) * n, 2 * w * n)
