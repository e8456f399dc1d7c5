"""Drawn spaces, small enough to be enumerated."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from itertools import product
from typing import Any, NamedTuple

from tests.jobs import job
from zeroplan.costs.engine import Numbers
from zeroplan.errors import ContradictionError
from zeroplan.ledger import total
from zeroplan.search import Space, evaluate, space
from zeroplan.search.room import lower_bound
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Offload, Strategy
from zeroplan.units import GiB

MODELS: tuple[str, ...] = ("llama-3.2-1b", "gpt2-xl", "qwen2.5-7b", "mixtral-8x7b", "gpt2", "opt-1.3b")
WAYS: tuple[dict[str, Any], ...] = (
    {}, {}, {}, {"reduce_scatter": False}, {"precision": "fp32", "autocast": "bf16"},
)  # fmt: skip
"""To reduce otherwise, or in two dtypes."""
FREE = 4
"""Numbers that stay free in a drawn variant, with two values each."""
SHORT = (None, 8 * GiB, 24 * GiB, 96 * GiB)
"""Memory of a node that offload may lack; None: nothing is known of it."""


def drawn(seed: int) -> Space:
    """Of a drawn model and cluster some variants with some of their numbers free."""
    draw = random.Random(seed)
    one = job(
        draw.choice(MODELS), gpus=draw.choice([1, 2, 8, 16]), seq=draw.choice([256, 1024]), stage=0,
        capacity=draw.randint(6, 90) * GiB, precision=draw.choice(["bf16", "bf16", "fp32"]),
    )  # fmt: skip
    cluster = one.cluster._replace(nvme=8 * 10**12, host_memory=draw.choice(SHORT))
    one = one.at(**draw.choice(WAYS))._replace(cluster=cluster)
    on_nvme = {"stage": 3, "offload_param": Offload("nvme")}
    whole = space(one, draw.choice([{}, {"stage": 3}, {"stage": 3}, on_nvme]), draw.choice([1, 2, 4]))
    variants = draw.sample(whole.variants, min(len(whole.variants), draw.choice([2, 4])))
    return whole._replace(variants=tuple(one._replace(numbers=some(one.numbers, draw)) for one in variants))


def crowded(seed: int) -> Space:
    """Of a drawn model all kinds of checkpointing, on a card that a part of them has room on."""
    draw = random.Random(seed)
    name = draw.choice((*MODELS, "qwen3-30b-a3b", "gemma-3-4b-text", "lfm2-1.2b", "bart-large"))
    gpus, seq = draw.choice([1, 8]), draw.choice([256, 512])
    one = job(name, gpus=gpus, seq=seq, stage=0, capacity=80 * GiB)
    fixed = {"stage": draw.choice([2, 3]), "offload_optimizer": draw.choice([None, Offload("cpu")])}
    whole = space(one, fixed, draw.choice([1, 2, 4]))
    leanest = min(whole.configurations(), key=lambda each: lower_bound(each.minimum_memory))
    capacity = int(lower_bound(leanest.minimum_memory) * draw.uniform(1.05, 2.0)) + 2 * GiB
    return whole._replace(job=one._replace(cluster=one.cluster._replace(capacity=capacity)))


def some(numbers: Numbers, draw: random.Random) -> Numbers:
    """The default of most, one more of a few."""
    names = draw.sample(sorted(numbers), min(FREE, len(numbers)))
    return {
        name: (values[0], draw.choice(values[1:])) if name in names and values[1:] else values[:1]
        for name, values in numbers.items()
    }


def strategies(space: Space) -> Iterator[Job]:
    """Each of a space."""
    for configuration in space.configurations():
        numbers = configuration.variant.numbers
        for values in product(*numbers.values()):
            yield configuration.at(**dict(zip(numbers, values, strict=True)))


RESERVE = 0.05
"""Share of each card that is kept free."""


class Counted(NamedTuple):
    """What is compared of one strategy."""

    seconds: float
    needed: int
    """Bytes of a GPU with what is outside of PyTorch's allocator; `peak`: inside of it."""
    peak: int
    accepted: bool


@cache
def enumerated(seed: int) -> dict[Strategy, Counted]:
    """All of a drawn space that DeepSpeed runs."""
    found = {}
    for one in strategies(drawn(seed)):
        try:
            candidate = evaluate(one, RESERVE)
        except ContradictionError:
            continue
        peak, fit = total(candidate.ledger.gpu.peak.lines), candidate.fit
        found[one.strategy] = Counted(candidate.time.total, fit.gpu.needed, peak, fit.accepted)
    return found
