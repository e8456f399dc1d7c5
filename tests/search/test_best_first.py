"""The search finds what enumerating the whole space finds."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.jobs import job
from zeroplan.errors import ContradictionError
from zeroplan.search import evaluate, fastest, space
from zeroplan.units import GiB

MODELS = ("llama-3.2-1b", "gpt2-xl", "qwen2.5-7b", "mixtral-8x7b", "gpt2", "opt-1.3b")
SETTLED: tuple[dict[str, Any], ...] = (
    {"stage": 2, "offload_optimizer": None, "overlap_comm": True, "contiguous_gradients": True},
    {"stage": 3, "offload_optimizer": None, "offload_param": None, "reduce_bucket_size": 500_000_000},
    {"reduce_bucket_size": 500_000_000, "prefetch_bucket_size": 50_000_000, "contiguous_gradients": True,
     "overlap_comm": True, "checkpointing": "full"},
    {"stage": 1, "checkpointing": "none", "micro_batch": 1},
    {"offload_param": None, "reduce_bucket_size": 200_000_000, "prefetch_bucket_size": 50_000_000,
     "overlap_comm": None, "contiguous_gradients": True, "checkpointing": "every-2"},
)  # fmt: skip


def enumerated(found, reserve):
    """Seconds of all that fit."""
    for one in found.strategies():
        try:
            candidate = evaluate(one, reserve)
        except ContradictionError:
            continue
        if candidate.fit.fits:
            yield candidate.time.total


def drawn(seed: int):
    draw = random.Random(seed)
    one = job(
        draw.choice(MODELS), gpus=draw.choice([1, 2, 8, 16]), seq=draw.choice([256, 1024]), stage=0,
        capacity=draw.randint(6, 90) * GiB,
    )  # fmt: skip
    settled = draw.choice(SETTLED) | {"allgather_bucket_size": 500_000_000}
    return space(one, settled, draw.choice([1, 2, 4]))


@pytest.mark.parametrize("seed", range(25))
def test_as_fast_as_the_fastest_of_all(seed):
    """To the last digit, and nothing fits exactly when nothing is found."""
    found = drawn(seed)
    best = fastest(found, 0.05).best
    seconds = list(enumerated(found, 0.05))
    assert (best.time.total if best else None) == min(seconds, default=None)
    assert best is None or best.fit.fits


def test_the_space_is_as_large_as_it_says():
    for seed in range(8):
        found = drawn(seed)
        every = [one.strategy for one in found.strategies()]
        assert len(every) == len(set(every)) == found.size


def test_few_are_counted():
    """Of tens of thousands of strategies a handful."""
    one = job("qwen2.5-7b", gpus=8, seq=2048, stage=0, capacity=80 * GiB)
    found = fastest(space(one, {}, 32), 0.05)
    assert found.best
    assert found.stood_for > 20_000 > 200 * (found.timed + found.counted) / 3


def test_the_order_of_the_branches_changes_nothing():
    for seed in range(4):
        found = drawn(seed)
        turned = found._replace(branches=found.branches[::-1], sizes=found.sizes[::-1])
        one, other = (fastest(each, 0.05).best for each in (found, turned))
        assert (one and one.strategy) == (other and other.strategy)
