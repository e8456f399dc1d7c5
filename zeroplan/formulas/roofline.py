"""Seconds of a GPU's own work: matrix products, attention, operators bound by memory, and what its CPU does meanwhile.

No roofline in the strict sense: a product's seconds of computing and of memory add up.
"""

from __future__ import annotations


def products(flops: float, rate: float, touched: float, bandwidth: float) -> float:
    """Φ/ρ + ω/η -- matrix products at the card's sustained rate, and their operands over its memory [throughput].

    Summed, not the larger of both: a small product is slow through its operands, and a large one does not hide them.
    """
    return flops / rate + touched / bandwidth


def attention(flops: float, rate: float) -> float:
    """Φ/ρ -- fused attention at the rate of its kernel, which is not that of a matrix product [throughput]."""
    return flops / rate


def streamed(touched: float, bandwidth: float) -> float:
    """ω/η -- operators that read and write memory and compute next to nothing [throughput]."""
    return touched / bandwidth


def launches(kernels: float, start: float) -> float:
    """j·τs -- kernels are started one after the other: a pass is never shorter than that [zeroplan]."""
    return kernels * start


def hooks(modules: float, hook: float) -> float:
    """v·τh -- at stage 3 the thread that starts kernels also runs DeepSpeed's hooks around each module [throughput]."""
    return modules * hook
