"""Seconds that work and traffic take when they run at the same time."""

from __future__ import annotations


def together(work: float, traffic: float, shown: float) -> float:
    """max(W, C) + γ·min(W, C) - W -- what traffic adds to work that runs at the same time [throughput].

    Both share the card's memory and its multiprocessors: with γ = 0 the shorter would be hidden altogether.
    """
    return max(work, traffic) + shown * min(work, traffic) - work
