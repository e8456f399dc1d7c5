"""Floating-point operations of a training step by the PaLM paper's convention, as floats."""

from __future__ import annotations


def parameter_flops(psi: int, t: int) -> float:
    """6·Ψ·T -- two per parameter and token forward, four backward [PaLM appendix B]."""
    return 6.0 * psi * t


def attention_flops(q: int, layers: int, s: int, t: int) -> float:
    """6·L·q·s·T -- scores and values, forward and backward, the causal half [PaLM appendix B]."""
    return 6.0 * layers * q * s * t
