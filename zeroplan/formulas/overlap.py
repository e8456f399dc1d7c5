"""Seconds that traffic adds to work that runs at the same time."""

from __future__ import annotations


def evenly(work: float, traffic: float, alone: float) -> float:
    """Ca + max(0, C - Ca - W) -- waits of work whose traffic is spread evenly over it, but for some alone [throughput].

    The first module's gather has no work to hide behind, nor has the last bucket's reduction.
    """
    return alone + max(0.0, traffic - alone - work)


def added(waits: float, work: float, traffic: float, shown: float) -> float:
    """Cw + γ·min(W, C - Cw) -- waits, and what is hidden slows the work down [throughput].

    Both share the card's memory and its multiprocessors: with γ = 0 all but the waits would be hidden.
    """
    return waits + shown * min(work, traffic - waits)


def together(work: float, traffic: float, shown: float) -> float:
    """max(W, C) + γ·min(W, C) - W -- what traffic adds that nothing holds up but the network [throughput]."""
    return added(evenly(work, traffic, 0.0), work, traffic, shown)


def piecewise(staged: float, work: float, pieces: float) -> float:
    """o/Z + max(0, o - W)·(Z - 1)/Z -- copies in pieces, each but one beside an equal part of the work [DeepSpeed
    runtime/swap_tensor/pipelined_optimizer_swapper.py].

    The first piece that is read, or the last that is brought away, has no work left to hide behind.
    """
    return staged / pieces + max(0, staged - work) * (pieces - 1) / pieces
