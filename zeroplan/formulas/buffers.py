"""Working memory that stays between steps: buckets and scratch."""

from __future__ import annotations


def reduce_bucket(bucket: int, w: int, copies: int) -> int:
    """c·w·B -- the buffer gradients are copied into, two with overlap_comm [DeepSpeed runtime/zero/stage_1_and_2.py].

    reduce_bucket_size counts elements: 5e8 of them are 1 GB in 16 bit, whatever the model's size.
    """
    return copies * w * bucket


def whole_gradients(psi: int, g: int) -> int:
    """g·Ψ -- all gradients alive at the end of backward [DeepSpeed runtime/zero/stage_1_and_2.py]."""
    return g * psi


def offload_scratch(largest: int, g: int) -> int:
    """g·Λ -- scratch of the largest tensor's size for gradients bound for the host [DeepSpeed
    runtime/zero/stage_1_and_2.py].
    """
    return g * largest
