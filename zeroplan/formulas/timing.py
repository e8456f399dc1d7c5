"""Seconds of an optimizer step: the GPU's own work, collectives, copies and the optimizer on the host, and what of
them shows beside other work; FLOPs as papers count them.

No roofline in the strict sense: a product's seconds of computing and of memory add up.
"""

from __future__ import annotations

from math import log2, sqrt


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


def visits(visited: float, visit: float) -> float:
    """vt·τu -- DeepSpeed's step goes through the tensors one by one, for norm, copies and casts: it is never shorter
    than starting that takes [DeepSpeed runtime/fp16/unfused_optimizer.py, zero/stage_1_and_2.py, zero/stage3.py].
    """
    return visited * visit


def piped(wire: float, link: float, latency: float, filling: float) -> float:
    """x/ζ + H + √(J·x/ζ) -- a message that goes round in pieces: its size, latency, and filling pipelines [NCCL-tests].

    Cut into k pieces it takes longer by a latency a piece and shorter by filling a node's pipeline with a k-th of it:
    the best k leaves a term that grows as the root of the size. It meets 78 of 79 measured all-reduces within 20 %.
    """
    return wire / link + latency + sqrt(filling * wire / link)


def ring_latency(hops: float, hop: float) -> float:
    """z·θ -- the hops of a ring, one after the other [NCCL-tests]."""
    return hops * hop


def tree_latency(inside: float, hop: float, nodes: float, crossing: float) -> float:
    """2·(i·θ + log2(m)·ξ) -- up a tree over nodes and down again, through a chain inside each [NCCL-tests]."""
    return 2 * (inside * hop + log2(nodes) * crossing)


def copied(moved_bytes: float, speed: float) -> float:
    """y/u -- bytes over a link or to a disk at its rate [throughput]."""
    return moved_bytes / speed


def requested(moved_bytes: float, in_flight: float, delay: float, awaited: float, speed: float) -> float:
    """y·(δ + ε/u)/l -- files as fast as they are requested: Little's law, all that is in flight comes in one delay and
    the disk's own time for what is waited for [DeepSpeed csrc/aio/common/deepspeed_aio_common.cpp].
    """
    return moved_bytes * (delay + awaited / speed) / in_flight


def updated_on_host(updated: float, pace: float) -> float:
    """U/p -- the optimizer on the CPUs of one node, which all ranks there share [ZeRO-Offload Table 4]."""
    return updated / pace


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


def parameter_flops(psi: int, t: int) -> float:
    """6·Ψ·T -- two per parameter and token forward, four backward [PaLM appendix B]."""
    return 6.0 * psi * t


def attention_flops(q: int, layers: int, s: int, t: int) -> float:
    """6·L·q·s·T -- scores and values, forward and backward, the causal half [PaLM appendix B]."""
    return 6.0 * layers * q * s * t
