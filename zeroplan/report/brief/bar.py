"""A card as a bar: what fills it, each part with a letter-like fill of its own, so that no colour is needed."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from zeroplan.fit import Fit
from zeroplan.ledger import Ledger, is_activation, total
from zeroplan.record import NamedTuple

FILLS = {"held": "█", "gradients, buffers": "▓", "activations": "▒", "outside PyTorch": "░", "free": "·"}
COLOURS = {
    "held": "blue", "gradients, buffers": "yellow", "activations": "magenta", "outside PyTorch": "cyan", "free": "dim",
}  # fmt: skip
"""Beside the fills, where a terminal has colours."""
END, BEYOND = "│", "▶"
"""Where the card ends, and where a bar would go on."""
MOST = 1.5
"""Of a card that a bar shows."""


class Part(NamedTuple):
    name: str
    bytes: int


def parts(counted: Ledger, verdict: Fit) -> list[Part]:
    """What makes up the bytes that a GPU needs, and what of the card is left."""
    beside = counted.gpu.beside(counted.gpu.peak)
    activations = sum(entry.bytes for entry in beside if is_activation(entry))
    found = [
        Part("held", total(counted.gpu.resident)),
        Part("gradients, buffers", total(beside) - activations),
        Part("activations", activations),
        Part("outside PyTorch", total(verdict.outside)),
    ]
    headroom = verdict.gpu.headroom
    return [*found, Part("free", headroom)] if headroom is not None and headroom > 0 else found


def bar(filled: Sequence[Part], capacity: int | None, width: int, *, whole: int | None = None) -> Text:
    """In so many columns, of which `whole` bytes (of a card: at most half as many again) take all."""
    return coloured(_drawn(filled, capacity, width, whole))


def coloured(text: str) -> Text:
    """A text in which fills have their colours."""
    found = Text(text)
    for name, fill in FILLS.items():
        found.highlight_regex(f"[{fill}]+", COLOURS[name])
    return found


def _drawn(filled: Sequence[Part], capacity: int | None, width: int, whole: int | None) -> str:
    needed = sum(part.bytes for part in filled)
    scale = whole or min(max(capacity or 0, needed), int(MOST * capacity) if capacity else needed)
    drawn, at, done = "", 0, 0
    for part in filled:
        done += part.bytes
        end = round(min(done / scale, 1) * width)
        drawn += FILLS[part.name] * (end - at)
        at = max(at, end)
    if needed > scale:
        drawn = drawn[:-1] + BEYOND
    if capacity and capacity < scale:
        edge = min(round(capacity / scale * width), width - 1)
        drawn = f"{drawn[:edge]}{END}{drawn[edge + 1 :]}" if edge < len(drawn) else drawn.ljust(edge) + END
    return drawn
