"""The plan is what brute force over the same space would choose, and it behaves as capacity grows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.jobs import job
from zeroplan.plan import TIE, _per_gpu, plan, simplicity
from zeroplan.search import choices, evaluate, micro_batches
from zeroplan.units import GiB

MODELS = ("llama-3.2-1b", "gpt2-xl", "qwen2.5-7b", "mixtral-8x7b")
drawn = settings(max_examples=25, deadline=None, derandomize=True)
capacities = st.integers(8, 160).map(lambda size: size * GiB)


def brute_force(one, settled):
    """The fastest fitting strategy, ties within `TIE` to the simplest, every micro-batch evaluated."""
    per_gpu = _per_gpu(one, settled)
    every = [
        evaluate(one.at(**choice, micro_batch=size, grad_accum=per_gpu // size), 0.0)
        for choice in choices(one, settled)
        for size in micro_batches(per_gpu, settled)
    ]
    return [candidate for candidate in every if candidate.fit.fits]


@drawn
@given(st.sampled_from(MODELS), st.sampled_from([1, 2, 8, 16]), capacities, st.sampled_from([512, 4096]))
def test_no_fitting_strategy_is_faster_than_the_plan_by_more_than_a_tie(name, gpus, capacity, seq):
    one = job(name, gpus=gpus, seq=seq, capacity=capacity)
    fitting = brute_force(one, {})
    chosen = plan(one, {}, reserve=0.0, rescue=False).chosen
    assert (chosen is None) == (not fitting)
    if chosen:
        assert chosen.fit.fits
        fastest = max(candidate.throughput for candidate in fitting)
        assert chosen.throughput >= fastest * (1 - TIE)


@drawn
@given(st.sampled_from(MODELS), capacities)
def test_more_capacity_never_gives_a_slower_plan(name, capacity):
    small = plan(job(name, capacity=capacity), {}, reserve=0.0, rescue=False).chosen
    large = plan(job(name, capacity=capacity * 101 // 100), {}, reserve=0.0, rescue=False).chosen
    if small:
        assert large
        assert large.throughput >= small.throughput * (1 - TIE)


def test_of_equally_fast_plans_the_simpler_is_taken():
    chosen = plan(job("gpt2", capacity=80 * GiB), {}, reserve=0.0).chosen
    assert chosen
    assert simplicity(chosen)[:3] == (0, 0, 0)


def test_the_reserve_is_kept_free():
    for reserve in (0.0, 0.05, 0.3):
        chosen = plan(job("qwen2.5-7b", capacity=40 * GiB), {}, reserve=reserve, rescue=False).chosen
        assert chosen
        assert chosen.fit.gpu.needed <= 40 * GiB * (1 - reserve)


@pytest.mark.parametrize("gpus", [8, 16, 64])
def test_more_gpus_never_need_more_at_stage_3(gpus):
    fewer, more = (evaluate(job("qwen2.5-7b", gpus=count, stage=3), 0.0) for count in (gpus, 2 * gpus))
    assert more.fit.gpu.needed <= fewer.fit.gpu.needed
