"""What of a user's job no number here has in it: named, refused, or answered in part (`--partial`)."""

from __future__ import annotations

from typing import NamedTuple


class Unplanned(NamedTuple):
    """A part of the job that is not planned. What GPUs hold between steps still holds; where it does not, the job is
    refused with a `ContradictionError` in its place.
    """

    what: str
    """As the user wrote it, with its place: `ds_config.json: sequence_parallel_size 4`."""
    effect: str
    """What it changes that is not counted, as a clause: `each GPU computes a quarter of every sequence`."""
    instead: str
    """What to write or do for a planned answer, as an imperative clause: `write "sequence_parallel_size": 1`."""
