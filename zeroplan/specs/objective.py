"""What a plan is to be: the words of `--objective`."""

from __future__ import annotations

FASTEST = "fastest"
CHEAPEST = "cheapest"
"""Of several cards or GPU counts, whose tokens cost least; each one's plan is the fastest."""
LEAST_MEMORY = "least-memory"
"""The fewest bytes of a GPU."""
OBJECTIVES = (FASTEST, CHEAPEST, LEAST_MEMORY)
