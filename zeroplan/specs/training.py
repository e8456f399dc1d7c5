"""What a whole training run is to come to: its tokens, by when, and what a GPU costs."""

from __future__ import annotations

from typing import NamedTuple


class Price(NamedTuple):
    """The price of one GPU for an hour."""

    amount: float
    """The price of one GPU-hour, in the currency."""
    currency: str = "$"
    """The currency's sign."""


class TrainingRequest(NamedTuple):
    """What was asked of a training run; None where nothing was."""

    tokens: int | None = None
    deadline: float | None = None
    """Seconds within which the tokens are to be trained."""
    price: Price | None = None
