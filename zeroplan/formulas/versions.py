"""What older versions of libraries held and today's do not."""

from __future__ import annotations


def clamped_scores(t: int, s: int, a: int, layers: int) -> int:
    """2·L·n·T·s -- scores that OPT's attention clamped with torch.max, which keeps its input [transformers before 4.48
    models/opt/modeling_opt.py].
    """
    return 2 * layers * a * t * s


def left_by_flattening(psi: int, w: int) -> int:
    """w·Ψ -- blocks of the model as built, which flattening on the card frees into the allocator's cache: smaller than
    long activations, they stay reserved beside them [DeepSpeed runtime/zero/stage_1_and_2.py since #7828].
    """
    return w * psi
