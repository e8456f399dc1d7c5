"""Counting once what does not change: a search asks for the same layout under many micro-batches and sequences."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, Generic, ParamSpec, TypeVar

from zeroplan.specs.checkpointing import ActivationCheckpointing
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Strategy

T = TypeVar("T")
P = ParamSpec("P")
CACHE_SIZE = 64
MISSING: Any = object()


def strategy_key(strategy: Strategy) -> Hashable:
    """All of the strategy but the micro-batch; beyond three micro-steps, accumulation changes nothing.

    Under hpZ it does: micro-steps differ, so a step's calls are counted over all of them.
    """
    most = strategy.grad_accum if strategy.hpz_partition_size > 1 else 3
    if strategy.micro_batch == 1 and strategy.grad_accum <= most:
        return strategy
    return strategy._replace(micro_batch=1, grad_accum=min(strategy.grad_accum, most))


def _recomputes(strategy: Strategy) -> Hashable:
    return strategy.recomputing.every > 0


NOTHING_OFFLOADED = ActivationCheckpointing()


def order_free_key(strategy: Strategy) -> Hashable:
    """Below stage 3 nothing but the order of gradients depends on the model's operators and on what runs again."""
    plain = strategy._replace(
        checkpointing="none", activation_checkpointing=NOTHING_OFFLOADED, attention="sdpa", kernels="transformers",
    )  # fmt: skip
    return strategy_key(plain)


def no_key(_read: object) -> Hashable:
    return None


def gradients(job: Job) -> Hashable:
    """In the order in which they are ready."""
    return job.execution.gradients


def by_execution(job: Job) -> Hashable:
    """The model's order of execution: kinds of attention that enter no module of their own run in one."""
    return IdentityKey(job.execution)


class IdentityKey(Generic[T]):
    """An object as part of a key: equal to itself alone, and kept, so that no other takes its place."""

    __slots__ = ("it",)

    def __init__(self, it: T) -> None:
        self.it = it

    def __hash__(self) -> int:
        return id(self.it)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, IdentityKey) and self.it is other.it


def cached_by(
    key_of: Callable[P, tuple[Hashable, ...]], max_size: int
) -> Callable[[Callable[P, T]], Callable[P, T]]:  # fmt: skip
    """Remember what a function gives by all that it reads of its arguments, the model first.

    Of one model at a time: a search for the largest goes through fifty, which would all be kept otherwise.
    """

    def decorate(count: Callable[P, T]) -> Callable[P, T]:
        known: dict[tuple[Hashable, ...], T] = {}

        @wraps(count)
        def looked_up(*arguments: P.args, **named: P.kwargs) -> T:
            key = key_of(*arguments, **named)
            result: T = known.get(key, MISSING)  # one look: a strategy's sixty fields are hashed in each
            if result is MISSING:
                if len(known) >= max_size or (known and next(reversed(known))[0] != key[0]):
                    known.clear()
                result = known[key] = count(*arguments, **named)
            return result

        return looked_up

    return decorate


def cached(
    key_of: Callable[[Strategy], Hashable], max_size: int = CACHE_SIZE, *, order: Callable[[Job], Hashable] = no_key
) -> Callable[[Callable[[Job], T]], Callable[[Job], T]]:
    """Remember a count of a job by model, ranks, nodes, version, and what `key_of` picks of the strategy it reads.

    `order`: what of the model's order of execution it reads, where `key_of` does not settle that.
    """

    def read(job: Job) -> tuple[Hashable, ...]:
        return job.model, job.ranks, job.cluster.nodes, job.rank, job.engine, key_of(job.strategy), order(job)

    return cached_by(read, max_size)


cached_per_execution = cached(_recomputes, order=by_execution)
"""Remember what is read of a job's module hooks alone."""
