"""The fastest strategy that fits, or the leanest, or all between, out of all that a request leaves open."""

from zeroplan.search.best_first import Found, fastest
from zeroplan.search.candidate import Candidate, evaluate
from zeroplan.search.front import Front, front
from zeroplan.search.leanest_first import least_memory
from zeroplan.search.neighbours import nearest, neighbours
from zeroplan.search.space import Space, space

__all__ = [
    "Candidate", "Found", "Front", "Space", "evaluate", "fastest", "front", "least_memory", "nearest", "neighbours",
    "space",
]  # fmt: skip
