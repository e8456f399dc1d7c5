"""What nobody stated, in three lines: what moves the answer most first."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import RenderableType
from rich.text import Text

from zeroplan.ledger import Ledger, is_activation, total
from zeroplan.report.console import console

LINES = 3
NAMES = "assumed: "
FIRST = 2.0
"""Weight of what decides what is counted at all: before all that is weighed as a share."""
GUESSED = 1.5
"""Weight of a card or a shape that a short name stands for: it is said before what is weighed."""
USUAL = (0.6, 0.4, 0.3)
"""Shares of a peak where several jobs are shown: held, of that optimizer states, and activations."""


def assumed(texts: Sequence[str], counted: Ledger | None = None) -> list[RenderableType]:
    """As many as three lines have room for, and how many more `-v` shows; `counted`: the answer's own ledger."""
    if not texts:
        return []
    shares = _shares(counted)
    weighed = sorted(texts, key=lambda text: -_weight(text, *shares))
    return [Text(brief(weighed, console().width), style="dim")]


def brief(texts: Sequence[str], width: int, lines: int = LINES) -> str:
    """Those that fit into so many lines, the first ones first, and how many were left out."""
    kept: list[str] = []
    for text in texts:
        if _height(_said([*kept, text], len(texts)), width) <= lines:
            kept.append(text)
    return _said(kept, len(texts))


def _said(kept: Sequence[str], every: int) -> str:
    left = every - len(kept)
    more = [f"{'and ' * bool(kept)}{left} {'more' if kept else 'things'} (-v)"] if left else []
    return NAMES + "; ".join([*kept, *more])


def _height(text: str, width: int) -> int:
    """Lines that it takes, broken between words."""
    lines, at = 1, 0
    for word in text.split():
        size = cell_len(word)
        if at and at + 1 + size > width:
            lines, at = lines + 1, size
        else:
            at += size + bool(at)
    return lines


def _shares(counted: Ledger | None) -> tuple[float, float, float]:
    """Shares of a GPU's peak: what is held between steps, optimizer states of that, and activations."""
    if counted is None:
        return USUAL
    peak = total(counted.gpu.peak.lines) or 1
    activations = sum(entry.bytes for entry in counted.gpu.beside(counted.gpu.peak) if is_activation(entry))
    optimizer = sum(entry.bytes for entry in counted.gpu.resident if "optimizer" in entry.name)
    return total(counted.gpu.resident) / peak, optimizer / peak, activations / peak


def _weight(text: str, held: float, optimizer: float, activations: float) -> float:
    """Share of the answer that would be another, if something else were stated."""
    weights = {
        "model": FIRST, "gpus": FIRST, "params": GUESSED, "gpu": GUESSED, "global-batch": 0.5, "headroom": 0.15,
        "seq": activations, "checkpointing": activations, "micro-batch": activations, "attention": 0.05 * activations,
        "precision": held, "optimizer": optimizer, "optim": optimizer, "gpu-mem": 0.1, "cluster": 0.02, "built-in": 0.0,
    }  # fmt: skip
    if text.startswith("shape inferred"):
        return GUESSED
    named = re.findall(r"--([a-z][a-z-]*)", text)
    return max((weights.get(name, 0.0) for name in named), default=FIRST)
