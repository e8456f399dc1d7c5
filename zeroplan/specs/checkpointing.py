"""Activation checkpointing by layers, as transformers and torch offer it."""

from __future__ import annotations

from functools import lru_cache
from re import fullmatch
from typing import NamedTuple

KINDS = ("none", "selective", "full", "every-2", "full-reentrant")
"""What `--checkpointing` takes; every-2 stands for every-K, and each of those may be reentrant."""
PATTERN = r"(full|every-([2-9]|[1-9]\d+))(-reentrant)?"


class Recomputing(NamedTuple):
    """Which layers run again in backward, and how."""

    every: int = 0
    """Every how manyth, the first among them (transformers' every_n_layers); 0: none."""
    reentrant: bool = False
    """torch's autograd function, whose backward runs the whole layer and a backward of its own (use_reentrant)."""

    def has(self, number: int) -> bool:
        """Whether the layer of this number is checkpointed."""
        return self.every > 0 and number % self.every == 0


PLAIN = Recomputing()


@lru_cache
def recomputing(kind: str) -> Recomputing:
    """Layers of none, full, every-K and their reentrant forms; selective recomputes parts of layers, and none whole."""
    found = fullmatch(PATTERN, kind)
    return Recomputing(int(found[2] or 1), bool(found[3])) if found else PLAIN


def is_checkpointing(kind: str) -> bool:
    return kind in KINDS or fullmatch(PATTERN, kind) is not None
