"""The fastest strategy that fits, out of all that a request leaves open.

`leanest_first` has the leanest, `front` all between.
"""

from zeroplan.search.best_first import Found, fastest
from zeroplan.search.candidate import Candidate, evaluate
from zeroplan.search.neighbours import nearest, neighbours
from zeroplan.search.space import Space, space

__all__ = [
    "Candidate", "Found", "Space", "evaluate", "fastest", "nearest", "neighbours", "space",
]  # fmt: skip
