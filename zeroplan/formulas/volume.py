"""How much the collectives of a step move, in bytes of the full tensor."""

from __future__ import annotations

from zeroplan.categories import Category


def paper_reduce(psi: int, g: int) -> int:
    """g·Ψ -- every gradient is reduced once [ZeRO §7.1]."""
    return g * psi


def paper_gather(psi: int, w: int) -> int:
    """w·Ψ -- every parameter is gathered once [ZeRO §7.2]."""
    return w * psi


# fmt: off
replayed = Category("replayed", "DeepSpeed runtime/zero",
    "what the replay of DeepSpeed's own order of events sends")
scalars = Category("scalars", "DeepSpeed runtime/zero",
    "one number a call: overflow flags and gradient norms")
