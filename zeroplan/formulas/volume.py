"""How much the collectives of a step move, in bytes of the full tensor."""

from __future__ import annotations


def paper_reduce(psi: int, g: int) -> int:
    """g·Ψ -- every gradient is reduced once [ZeRO §7.1]."""
    return g * psi


def paper_gather(psi: int, w: int) -> int:
    """w·Ψ -- every parameter is gathered once [ZeRO §7.2]."""
    return w * psi


def reduce_gradients(psi: int, g: int) -> int:
    """g·Ψ -- gradients of all buckets [DeepSpeed runtime/zero/stage_1_and_2.py]."""
    return g * psi


def gather_flat(flat: int, w: int) -> int:
    """w·F -- updated partitions come back to every rank after the step [DeepSpeed runtime/zero/stage_1_and_2.py]."""
    return w * flat


def gather_parameters(psi: int, w: int) -> int:
    """w·Ψ -- each tensor gathered once on the pass, prefetch and reuse aside [DeepSpeed
    runtime/zero/partitioned_param_coordinator.py].
    """
    return w * psi


def gather_persistent(persistent: int, w: int) -> int:
    """w·Q -- persistent tensors are gathered again after the step, one call each [DeepSpeed runtime/zero/stage3.py]."""
    return w * persistent


def replayed(moved: int, w: int) -> int:
    """w·X -- what the replay of DeepSpeed's own order of events sends [DeepSpeed runtime/zero]."""
    return w * moved


def scalars(tensors: int, w: int) -> int:
    """w·t -- one number a call: overflow flags and gradient norms [DeepSpeed runtime/zero]."""
    return w * tensors
