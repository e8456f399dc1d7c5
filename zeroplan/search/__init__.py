"""The best strategy of all that a request leaves open: choices enumerated, numbers refined."""

from zeroplan.search.candidate import Candidate, evaluate
from zeroplan.search.front import Front, front
from zeroplan.search.neighbours import closest, nearest, nearest_fitting, neighbours
from zeroplan.search.search import SearchSummary, best, fits_any
from zeroplan.search.space import Space, space

__all__ = [
    "Candidate",
    "Front",
    "SearchSummary",
    "Space",
    "best",
    "closest",
    "evaluate",
    "fits_any",
    "front",
    "nearest",
    "nearest_fitting",
    "neighbours",
    "space",
]  # fmt: skip
