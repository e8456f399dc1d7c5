"""Seconds that traffic adds to work that runs at the same time."""

from __future__ import annotations


def evenly(work: float, traffic: float, alone: float) -> float:
    """A + max(0, C - A - W) -- waits of work whose traffic is spread evenly over it, but for some alone [throughput].

    The first module's gather has no work to hide behind, nor has the last bucket's reduction.
    """
    return alone + max(0.0, traffic - alone - work)


def shown(waits: float, work: float, traffic: float, share: float) -> float:
    """S + γ·min(W, C - S) -- waits, and what is hidden slows the work down [throughput].

    Both share the card's memory and its multiprocessors: with γ = 0 all but the waits would be hidden.
    """
    return waits + share * min(work, traffic - waits)


def together(work: float, traffic: float, share: float) -> float:
    """max(W, C) + γ·min(W, C) - W -- what traffic adds that nothing holds up but the network [throughput]."""
    return shown(evenly(work, traffic, 0.0), work, traffic, share)
