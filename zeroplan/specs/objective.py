"""What a plan is to be: the words of `--objective`."""

from __future__ import annotations

FASTEST = "fastest"
CHEAPEST = "cheapest"
"""The card or GPU count whose tokens cost least; each one's plan is the fastest."""
LEAST_MEMORY = "least-memory"
"""The fewest bytes of a GPU."""
FEWEST_GPUS = "fewest-gpus"
"""As `--gpus auto`: the fastest plan on as few GPUs as are enough."""
PARETO = "pareto"
"""All of which none is both faster and leaner."""
OBJECTIVES = (FASTEST, CHEAPEST, LEAST_MEMORY, FEWEST_GPUS, PARETO)
APART = 0.01
"""Share of its bytes by which a row of that front needs less than the row before, at least."""
