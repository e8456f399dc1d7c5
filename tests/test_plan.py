"""The plan behaves as capacity grows, and says what its neighbours lost by."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from tests.jobs import job
from zeroplan.plan import label, plan
from zeroplan.search import evaluate, space
from zeroplan.specs.strategy import Offload
from zeroplan.units import GiB

MODELS = ("llama-3.2-1b", "gpt2-xl", "qwen2.5-7b", "mixtral-8x7b")


def fastest(name, capacity):
    return plan(job(name, capacity=capacity), {}, reserve=0.0).chosen


@pytest.mark.parametrize("name", MODELS)
def test_more_capacity_never_gives_a_slower_plan(name):
    """By more than the one per cent that a search may miss: along cards of 1 % more each, from two drawn sizes."""
    drawn = random.Random(name).sample(range(8, 161), 2)
    sizes = sorted(size * GiB * 101**step // 100**step for size in drawn for step in range(4))
    plans = [fastest(name, size) for size in sizes]
    for small, large in pairwise(plans):
        if small:
            assert large
            assert large.time.total <= 1.01 * small.time.total


def test_of_equally_fast_plans_the_simpler_is_taken():
    """One GPU sends nothing: no bucket changes a second, and stages 0 to 2 are equally fast."""
    chosen = plan(job("gpt2", gpus=1, capacity=80 * GiB), {}, reserve=0.0).chosen
    assert chosen
    strategy = chosen.strategy
    assert (strategy.stage, strategy.offload_optimizer, strategy.checkpointing) == (0, None, "none")


def test_the_reserve_is_kept_free():
    for reserve in (0.0, 0.05, 0.3):
        chosen = plan(job("qwen2.5-7b", capacity=40 * GiB), {}, reserve=reserve).chosen
        assert chosen
        assert chosen.fit.gpu.needed <= 40 * GiB * (1 - reserve)


@pytest.mark.parametrize("gpus", [8, 16, 64])
def test_more_gpus_never_need_more_at_stage_3(gpus):
    fewer, more = (evaluate(job("qwen2.5-7b", gpus=count, stage=3), 0.0) for count in (gpus, 2 * gpus))
    assert more.fit.gpu.needed <= fewer.fit.gpu.needed


def test_every_neighbour_changes_one_thing_and_lost():
    """Slower by the seconds that are said, or larger than the card by the bytes."""
    found = plan(job("qwen2.5-7b", capacity=60 * GiB), {}, reserve=0.0, compared=True)
    assert found.chosen
    own = found.chosen.strategy
    changes = {rejected.change for rejected in found.rejected}
    assert {f"ZeRO-{stage}" for stage in range(4)} - {f"ZeRO-{own.stage}"} <= changes
    assert any(change.startswith("micro-batch") for change in changes)
    for rejected in found.rejected:
        other = rejected.candidate
        if other.fit.accepted:
            assert other.time.total >= found.chosen.time.total
            assert "slower" in rejected.reason or "as fast" in rejected.reason
        else:
            assert "too many" in rejected.reason


@pytest.mark.parametrize(("model", "gib"), [
    ("llama-3.2-1b", 20), ("qwen2.5-7b", 37), ("qwen2.5-7b", 75), ("llama-2-13b", 37), ("qwen3-30b-a3b", 75),
])  # fmt: skip
def test_the_closest_neighbours_are_the_first_of_all(model, gib):
    """Where fewer fit than are wanted too: 13B on 8 GPUs of 40 GB has two."""
    found = plan(job(model, gpus=8, capacity=gib * GiB), {}, reserve=0.0, compared=True)
    assert found.chosen
    of_all = [(one.change, one.reason, one.candidate.strategy) for one in found.rejected]
    for count in range(7):
        closest = [(one.change, one.reason, one.candidate.strategy) for one in found.closest(count)]
        assert closest == of_all[:count]


def test_the_name_of_a_plan_says_what_share_is_offloaded():
    one = job("llama-3.2-1b", gpus=8, stage=3, offload_optimizer=Offload("cpu", ratio=0.2), offload_param=Offload("cpu"))
    assert label(evaluate(one, 0.0)) == "ZeRO-3, micro-batch 1, optimizer on cpu, ratio 0.2, parameters on cpu"


def test_parameters_alone_go_to_the_host_unasked_unless_offload_is_none():
    """13B on 8 GPUs of 40 GB: a larger micro-batch is worth the copies."""
    one = job("llama-2-13b", gpus=8, seq=2048, stage=0, capacity=37 * GiB)
    free, none = (space(one, fixed, 32) for fixed in ({}, {"offload_optimizer": None}))
    of_parameters = [variant.choice for variant in free.variants if variant.choice["offload_param"]]
    assert {choice["offload_param"].device for choice in of_parameters if not choice["offload_optimizer"]} == {"cpu"}
    assert not any(variant.choice["offload_param"] for variant in none.variants)
