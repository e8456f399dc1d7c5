"""Bounds hold: no strategy is faster than its bound, none fits that the bound of bytes leaves out."""

from __future__ import annotations

import random
from typing import Any

import pytest

from tests.jobs import job
from zeroplan.costs.deepspeed import host
from zeroplan.costs.deepspeed.stage_3 import first_backward_at_least
from zeroplan.costs.deepspeed.traffic import reduced, reduced_last
from zeroplan.costs.ledger import (
    gathering_at_least,
    gpu_at_least,
    init_at_least,
    ledger,
    resident_at_least,
    step_at_least,
)
from zeroplan.costs.outside import outside
from zeroplan.costs.timing.step import step_time
from zeroplan.errors import ContradictionError
from zeroplan.ledger import total
from zeroplan.search.bounds import Bounds
from zeroplan.search.bucketed import beside_buckets
from zeroplan.search.candidate import timed
from zeroplan.search.room import gathers
from zeroplan.search.space import space
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Offload
from zeroplan.units import GiB

MODELS = ("llama-3.2-1b", "gpt2-xl", "qwen2.5-7b", "mixtral-8x7b", "opt-1.3b", "gemma-2-2b", "falcon-7b", "bert-base")
WIDTHS: tuple[dict[str, Any], ...] = (
    {}, {"precision": "fp16"}, {"precision": "fp32"}, {"precision": "fp32", "autocast": "bf16"},
    {"communication_dtype": "fp32"}, {"grad_accum_dtype": "fp32"},
    {"reduce_scatter": False},
)  # fmt: skip
"""What weights and gradients are kept, gathered and reduced in, and whether to one rank each."""
OF = (
    Bounds.outside_passes, Bounds.peak, Bounds.may_fit, Bounds.may_keep, Bounds.may_reduce, Bounds.seconds,
    Bounds.computing_alone, Bounds.may_run,
)  # fmt: skip
LEAST = (resident_at_least, init_at_least, step_at_least, gpu_at_least)


@pytest.mark.parametrize("seed", range(90))
def test_a_drawn_strategy_against_its_bounds(seed):
    """Of a drawn model, cluster and space one strategy, counted in full; the bounds know its choices, not its numbers."""
    draw = random.Random(seed)
    one = job(draw.choice(MODELS), gpus=draw.choice([1, 2, 8, 16, 64]), seq=draw.choice([128, 512]), stage=0)
    one = one.at(**draw.choice(WIDTHS))._replace(cluster=one.cluster._replace(nvme=draw.choice([None, 8 * 10**12])))
    found = space(one, draw.choice([{}, {"stage": 2}, {"stage": 3}, {"stage": 3}]), draw.choice([1, 4, 6]))
    branch, size = draw.choice(found.branches), draw.choice(found.sizes)
    drawn = found.sized(branch, size).at(**{name: draw.choice(values) for name, values in branch.numbers.items()})
    if (offload := drawn.strategy.offload_optimizer) and draw.random() < 0.3:
        drawn = drawn.at(offload_optimizer=offload._replace(pin_memory=False))
    try:
        counted = ledger(drawn)
    except ContradictionError:
        return  # DeepSpeed stops there
    step = step_time(drawn, counted).total
    assert timed(drawn) == float(f"{step:.12g}")
    bounds, needed = Bounds(0.0), total(counted.gpu.peak.lines)
    for settled in range(len(branch.open) + 1):
        still = branch.open[settled:]
        loose = [drawn.at(**chosen) for chosen in branch.loosest_ones(still)]
        rough, bound = (min(bounds.seconds(one, traced=traced) for one in loose) for traced in (False, True))
        plain = drawn.at(memory_efficient_linear=False)
        untraced = bounds.computing_alone(drawn, traced=False)
        assert untraced <= rough
        assert untraced <= bounds.computing_alone(plain) <= bounds.computing_alone(drawn) <= bound
        bucketed = min(bounds.seconds(one, bucketed="reduce_bucket_size" not in still) for one in loose)
        assert rough <= bound * (1 + 1e-12) <= bucketed * (1 + 2e-12) <= step * (1 + 3e-12), still
        lean = drawn.at(**branch.leanest(still))
        assert max(least(lean) for least in LEAST) <= needed, still
        assert total(host.tier(lean).peak.lines) <= total(counted.host.peak.lines)
    if gathers(drawn):
        buckets = [drawn.at(**of(branch.open[-2:])) for of in (branch.loosest, branch.leanest)]
        assert bounds.with_gathers(*buckets) <= bounds.among(drawn, buckets[0]) * (1 + 1e-12) <= step * (1 + 2e-12)
        assert gathering_at_least(drawn.at(**branch.leanest(branch.open[-2:]))) <= needed
        assert first_backward_at_least(drawn.at(**branch.leanest(branch.open[-2:]))) <= needed
    assert beside_buckets(drawn) <= needed
    exact = card_of(drawn, needed)
    assert Bounds(0.0).may_run(exact)
    assert Bounds(0.0).may_fit(exact)
    assert Bounds(0.0).may_keep(exact)
    assert Bounds(0.0).may_gather(exact)
    assert Bounds(0.0).may_reduce(exact)
    assert Bounds(0.0).seconds(exact) <= step * (1 + 1e-12)


@pytest.mark.parametrize("seed", range(30))
def test_what_is_known_of_one_strategy_is_not_given_to_another(seed):
    """Bounds that were asked of other strategies of a space say of each what bounds say that were not."""
    draw = random.Random(seed)
    one = job(draw.choice(MODELS), gpus=draw.choice([1, 2, 8, 16]), seq=256, stage=0, capacity=draw.randint(8, 80) * GiB)
    one = one.at(**draw.choice(WIDTHS))._replace(cluster=one.cluster._replace(nvme=8 * 10**12))
    found = space(one, draw.choice([{}, {"stage": draw.choice([1, 2])}, {"stage": 3}]), draw.choice([4, 6]))
    asked = Bounds(0.0)
    for branch in draw.sample(found.branches, min(len(found.branches), 6)):
        numbers = {name: draw.choice(values) for name, values in branch.numbers.items()}
        sized = [found.sized(branch, size).at(**numbers) for size in draw.sample(found.sizes, len(found.sizes))]
        memory = max(total(host.tier(each).peak.lines) for each in sized) - 1  # not enough for all of them
        for each in (other._replace(cluster=other.cluster._replace(host_memory=memory)) for other in sized):
            for of in OF:
                assert of(asked, each) == of(Bounds(0.0), each), (of, each)


def card_of(one: Job, needed: int) -> Job:
    """On a card of just as many bytes as it needs."""
    needed += total(outside(one))
    return one._replace(cluster=one.cluster._replace(capacity=needed))


@pytest.mark.parametrize("name", ["gpt2", "llama-3.2-1b", "opt-1.3b", "mixtral-8x7b"])
@pytest.mark.parametrize("checkpointing", ["none", "full", "every-3"])
def test_activations_grow_no_slower_than_two_more_sequences_say(name, checkpointing):
    """From two and three sequences to eight: no more than what eight are counted to need."""
    one = job(name, stage=1, seq=256, checkpointing=checkpointing, micro_batch=8)
    three, two = (one.at(micro_batch=size) for size in (3, 2))
    more = gpu_at_least(three) - gpu_at_least(two)
    assert gpu_at_least(three) + 5 * more <= gpu_at_least(one) <= total(ledger(one).gpu.peak.lines)


@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("width", WIDTHS, ids=str)
def test_the_last_bucket_is_told_without_the_others(stage, width):
    for name in MODELS:
        for limit in (1, 12_345, 10**6, 5 * 10**8, 10**10):
            one = job(name, gpus=8, stage=stage).at(reduce_bucket_size=limit, **width)
            assert reduced_last(one) == reduced(one)[-1][1].elements


def test_disks_that_are_too_small_are_seen_before_anything_is_timed():
    """Master weights and moments alone are 12 bytes a parameter."""
    one = job("llama-3.2-1b", stage=3, offload_optimizer=Offload("nvme"), offload_param=Offload("nvme"))
    needed = total(host.nvme(one).peak.lines)
    assert needed >= 12 * one.model.parameters
    for disks, fits in ((needed, True), (needed - 1, False)):
        assert Bounds(0.0).may_fit(one._replace(cluster=one.cluster._replace(nvme=disks))) is fits
