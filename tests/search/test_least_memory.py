"""The strategy that needs fewest bytes is the one that enumerating the whole space finds."""

from __future__ import annotations

import random

import pytest

from tests.jobs import job
from tests.search.test_best_first import drawn, enumerated
from zeroplan.costs.ledger import ledger
from zeroplan.errors import ContradictionError
from zeroplan.ledger import total
from zeroplan.search import fastest, space
from zeroplan.search.bounds import Bounds
from zeroplan.search.leanest_first import least_memory
from zeroplan.search.space import Space
from zeroplan.specs.strategy import Offload
from zeroplan.units import GiB

SHORT = (None, 8 * GiB, 24 * GiB, 96 * GiB)
"""Memory of a node that offload may lack; None: nothing is known of it."""


def limited(seed: int) -> Space:
    """A drawn space on nodes of drawn memory, some with NVMe."""
    found, draw = drawn(seed), random.Random(seed)
    cluster = found.job.cluster._replace(host_memory=draw.choice(SHORT))
    return found._replace(job=found.job._replace(cluster=cluster))


@pytest.mark.parametrize("seed", range(0, 40, 3))
def test_as_lean_as_the_leanest_of_all(seed):
    """To the byte; of equally lean ones the fastest, to the twelve digits that a search compares."""
    found = limited(seed)
    best = least_memory(found, 0.05).best
    every = [(one.fit.gpu.needed, float(f"{one.time.total:.12g}")) for one in enumerated(found, 0.05)]
    assert (best and (best.fit.gpu.needed, float(f"{best.time.total:.12g}"))) == min(every, default=None)


def test_all_sequences_at_once_add_up_no_gradients_on_the_host():
    """fp32 under autocast on the CPU: with accumulation 26.7 GB a node for eight ranks, without 17.9 GB, of 24 GiB."""
    one = job("bloom-560m", gpus=16, seq=256, stage=0, capacity=40 * GiB, precision="fp32", autocast="bf16")
    one = one._replace(cluster=one.cluster._replace(host_memory=24 * GiB))
    settled = {"stage": 2, "offload_optimizer": Offload("cpu"), "checkpointing": "every-8", "attention": "sdpa"}
    best = least_memory(space(one, settled, 4, fine=False), 0.05).best
    assert best
    assert (best.strategy.micro_batch, best.strategy.micro_steps) == (4, 1)
    assert total(ledger(best.job.at(micro_batch=2, grad_accum=2)).host.peak.lines) > 24 * GiB


def test_what_is_kept_for_reuse_may_be_leaner():
    """What stays is not unpacked beside its buffer again, so the smallest reuse distance bounds nothing."""
    one = job("qwen3-0.6b", gpus=8, seq=1024, stage=0, capacity=28 * GiB, precision="fp16")
    on_host = {"offload_optimizer": Offload("cpu"), "offload_param": Offload("cpu")}
    found = space(one, {"stage": 3, "checkpointing": "every-2", "attention": "sdpa", "micro_batch": 1, **on_host}, 1)
    numbers = {name: values[:1] for name, values in found.branches[0].numbers.items()}
    numbers["max_reuse_distance"] = (10**9, 10**10)
    found = found._replace(branches=(found.branches[0]._replace(numbers=numbers),))
    best = least_memory(found, 0.05).best
    assert best.fit.gpu.needed == min(one.fit.gpu.needed for one in enumerated(found, 0.05))


def test_of_equally_lean_and_fast_ones_the_simplest():
    """One GPU sends nothing, so that no bucket changes a second: DeepSpeed's own is taken where it changes no byte."""
    one = job("gpt2", gpus=1, seq=256, stage=0, capacity=80 * GiB)
    best = least_memory(space(one, {"stage": 3, "offload_optimizer": None, "offload_param": None}, 2), 0.05).best
    assert best
    assert best.strategy.overlap_comm is True
    assert (best.strategy.prefetch_bucket_size, best.strategy.max_live_parameters) == (50_000_000, 1_000_000_000)


def test_few_are_counted():
    one = job("qwen2.5-7b", gpus=8, seq=2048, stage=0, capacity=80 * GiB)
    found = least_memory(space(one, {}, 32, fine=False), 0.05)
    assert found.best
    assert found.stood_for > 20_000 > 200 * (found.timed + found.counted) / 3
    assert found.best.fit.gpu.needed < fastest(space(one, {}, 32), 0.05).best.fit.gpu.needed


def test_the_order_of_the_branches_changes_nothing():
    for seed in range(4):
        found = limited(seed)
        turned = found._replace(branches=found.branches[::-1], sizes=found.sizes[::-1])
        one, other = (least_memory(each, 0.05).best for each in (found, turned))
        assert (one and one.strategy) == (other and other.strategy)


@pytest.mark.parametrize("name", ["llama-3.2-1b", "mixtral-8x7b", "gpt2"])
@pytest.mark.parametrize("checkpointing", ["none", "full", "every-3", "selective"])
def test_more_sequences_never_have_fewer_activations_at_least(name, checkpointing):
    """From two on, where no gradients wait for a last micro-step: a larger micro-batch is looked at later."""
    for stage in (2, 3):
        peaks = [
            Bounds(0.0).peak(job(name, stage=stage, seq=256, checkpointing=checkpointing, micro_batch=size, grad_accum=24 // size))
            for size in (2, 3, 4, 6, 8, 12, 24)
        ]
        assert peaks == sorted(peaks)


@pytest.mark.parametrize("seed", range(12))
def test_at_stage_3_overlap_changes_no_byte_of_a_gpu(seed):
    draw = random.Random(seed)
    one = job(draw.choice(["llama-3.2-1b", "gpt2", "mixtral-8x7b"]), gpus=draw.choice([1, 8, 16]), seq=256)
    found = space(one, {"stage": 3}, draw.choice([1, 4]))
    branch = draw.choice(found.branches)
    chosen = found.sized(branch, draw.choice(found.sizes)).at(
        **{name: draw.choice(values) for name, values in branch.numbers.items()}
    )
    try:
        counted = [ledger(chosen.at(overlap_comm=overlap)) for overlap in (True, False)]
    except ContradictionError:
        return  # DeepSpeed stops there
    assert len({total(each.gpu.peak.lines) for each in counted}) == 1
