"""Counts of several models remembered side by side, by whoever imports the engine afterwards.

A command is about one model, and `zeroplan.costs.cache` remembers counts of the latest alone. Tests of one process go to
and fro between a few, and would have each counted anew; keys are the same, so what is remembered is equal.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any

from zeroplan.costs import cache

KEPT = 8
"""Models of which each count is remembered."""


def cached_by(key_of: Callable[..., tuple[Hashable, ...]], max_size: int) -> Callable[..., Any]:
    """As `cache.cached_by`, for several models."""

    def decorate(count: Callable[..., Any]) -> Callable[..., Any]:
        models: OrderedDict[Hashable, dict[tuple[Hashable, ...], Any]] = OrderedDict()

        @wraps(count)
        def looked_up(*arguments: Any, **named: Any) -> Any:
            key = key_of(*arguments, **named)
            known = models.setdefault(key[0], {})
            models.move_to_end(key[0])
            if len(models) > KEPT:
                models.popitem(last=False)
            result = known.get(key, cache.MISSING)
            if result is cache.MISSING:
                if len(known) >= max_size:
                    known.clear()
                result = known[key] = count(*arguments, **named)
            return result

        return looked_up

    return decorate


cache.cached_by = cached_by
