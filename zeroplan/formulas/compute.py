"""Floating-point operations of training, and the seconds they and the traffic take. FLOP and seconds are floats."""

from __future__ import annotations


def parameter_flops(psi: int, t: int) -> float:
    """6·Ψ·T -- two per parameter and token forward, four backward [PaLM appendix B]."""
    return 6.0 * psi * t


def attention_flops(q: int, layers: int, s: int, t: int) -> float:
    """6·L·q·s·T -- scores and values, forward and backward, the causal half [PaLM appendix B]."""
    return 6.0 * layers * q * s * t


def recomputation_flops(psi: int, t: int) -> float:
    """2·Ψ·T -- one more forward with full checkpointing [Korthikanti §5]."""
    return 2.0 * psi * t
