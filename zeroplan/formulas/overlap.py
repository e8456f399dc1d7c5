"""Seconds that work and traffic take when they run at the same time."""

from __future__ import annotations


def together(work: float, traffic: float, shown: float) -> float:
    """max(W, C) + γ·min(W, C) - W -- what traffic adds to work that runs at the same time [throughput].

    Both share the card's memory and its multiprocessors: with γ = 0 the shorter would be hidden altogether.
    """
    return max(work, traffic) + shown * min(work, traffic) - work


def piecewise(staged: float, work: float, pieces: float) -> float:
    """o/Z + max(0, o - W)·(Z - 1)/Z -- copies in pieces, each but one beside an equal part of the work [DeepSpeed
    runtime/swap_tensor/pipelined_optimizer_swapper.py].

    The first piece that is read, or the last that is brought away, has no work left to hide behind.
    """
    return staged / pieces + max(0, staged - work) * (pieces - 1) / pieces
