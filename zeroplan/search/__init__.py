"""The best strategy of all that a request leaves open: choices enumerated, numbers refined."""

from zeroplan.search.candidate import Candidate, evaluate
from zeroplan.search.front import Front, front
from zeroplan.search.neighbours import any_leanest_fits, nearest, neighbours
from zeroplan.search.search import SearchSummary, best
from zeroplan.search.space import Space, space

__all__ = [
    "Candidate",
    "Front",
    "SearchSummary",
    "Space",
    "any_leanest_fits",
    "best",
    "evaluate",
    "front",
    "nearest",
    "neighbours",
    "space",
]  # fmt: skip
