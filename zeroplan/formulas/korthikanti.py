"""Activation bytes of a transformer layer as Korthikanti et al. count them: 16 bit, GELU MLP of width 4h, dropout.

They keep as many key heads as query heads, run attention without a fused kernel, and leave out what is small.
"""

from __future__ import annotations

from zeroplan.arithmetic import ceil_div


def norms(b: int, s: int, h: int) -> int:
    """4·b·s·h -- the inputs of two norms [Korthikanti §4.1]."""
    return 4 * b * s * h


def attention(b: int, s: int, h: int) -> int:
    """10·b·s·h -- input of the three projections, queries, keys, values, and the input of the last projection
    [Korthikanti §4.1].
    """
    return 10 * b * s * h


def scores(b: int, s: int, a: int) -> int:
    """5·n·b·s^2 -- of each pair of tokens the softmax in 16 bit, a byte of its dropout's mask, and what dropout
    makes of it [Korthikanti §4.1].
    """
    return 5 * a * b * s**2


def scores_again(b: int, s: int, a: int) -> int:
    """0·n·b·s^2 -- softmax, mask and dropped scores, which selective recomputation works out again in backward
    [Korthikanti §5].

    Queries, keys and values, from which it does, are counted with attention.
    """
    return 0 * a * b * s**2


def mlp(b: int, s: int, h: int) -> int:
    """18·b·s·h -- inputs of the first linear layer (2), of GELU (8) and of the second linear layer (8)
    [Korthikanti §4.1].
    """
    return 18 * b * s * h


def dropout_masks(b: int, s: int, h: int) -> int:
    """2·b·s·h -- a byte an element for the masks of two dropouts, behind attention and MLP [Korthikanti §4.1]."""
    return 2 * b * s * h


def no_parallelism(b: int, s: int, h: int, a: int) -> int:
    """34·b·s·h + 5·n·b·s^2 -- one layer on one GPU, s·b·h·(34 + 5·a·s/h) as printed [Korthikanti Table 2]."""
    return 34 * b * s * h + 5 * a * b * s**2


def tensor_parallel(b: int, s: int, h: int, a: int, tp: int) -> int:
    """10·b·s·h + ⌈b·s·(24·h + 5·n·s) / τ⌉ -- one layer; norms, dropouts and the inputs of the blocks are on every rank
    [Korthikanti Table 2].
    """
    return 10 * b * s * h + ceil_div(b * s * (24 * h + 5 * a * s), tp)


def tensor_sequence_parallel(b: int, s: int, h: int, a: int, tp: int) -> int:
    """⌈b·s·(34·h + 5·n·s) / τ⌉ -- one layer, nothing of it on two ranks [Korthikanti Table 2]."""
    return ceil_div(b * s * (34 * h + 5 * a * s), tp)


def tensor_parallel_selective(b: int, s: int, h: int, tp: int) -> int:
    """10·b·s·h + ⌈24·b·s·h / τ⌉ -- one layer that works its scores out again in backward [Korthikanti Table 2]."""
    return 10 * b * s * h + ceil_div(24 * b * s * h, tp)


def tensor_sequence_parallel_selective(b: int, s: int, h: int, tp: int) -> int:
    """⌈34·b·s·h / τ⌉ -- the same, nothing of it on two ranks [Korthikanti Table 2]."""
    return ceil_div(34 * b * s * h, tp)


def full_recomputation(b: int, s: int, h: int) -> int:
    """2·b·s·h -- one layer's input, from which backward works all of it out again [Korthikanti Table 2]."""
    return 2 * b * s * h


def all_layers(layer_bytes: int, layers: int) -> int:
    """L·A -- what the layers keep, embedding, last norm and loss aside [Korthikanti §4.3]."""
    return layers * layer_bytes
