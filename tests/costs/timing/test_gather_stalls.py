"""Gathers alone: the few events that are kept of a pass make it wait as long as all of them do."""

from __future__ import annotations

import random

import pytest

from tests.jobs import job
from zeroplan.costs.deepspeed.fetch import distinct, micro_steps
from zeroplan.costs.timing.gather_stalls import alone
from zeroplan.costs.timing.order import FOR_GATHER, GATHER, order
from zeroplan.costs.timing.stalls import stall_seconds

MODELS = ("llama-3.2-1b", "gpt2-xl", "qwen2.5-7b", "mixtral-8x7b", "opt-1.3b", "gemma-2-2b", "falcon-7b", "bert-base")
M, G = 10**6, 10**9
WORK_AND_GATHERS = ((1.0, 0.1), (1.0, 0.5), (1.0, 1.0), (1.0, 3.0), (0.01, 1.0))
"""Seconds."""


def drawn(seed):
    draw = random.Random(seed)
    gpus = draw.choice([2, 8, 16, 64])
    return job(
        draw.choice(MODELS), gpus=gpus, seq=512, stage=3,
        checkpointing=draw.choice(["none", "full", "every-2", "every-3"]), grad_accum=draw.choice([1, 3]),
        hpz_partition_size=draw.choice([1, 8]) if gpus > 8 else 1,
        prefetch_bucket_size=draw.choice([0, 5 * M, 50 * M, 500 * M, 2 * G]),
        max_live_parameters=draw.choice([0, 100 * M, G, 5 * G]),
        max_reuse_distance=draw.choice([0, 100 * M, G, 10 * G]), param_persistence_threshold=draw.choice([0, 100_000]),
    )  # fmt: skip


@pytest.mark.parametrize("seed", range(24))
def test_as_long_as_all_of_them(seed):
    one = drawn(seed)
    for first in (False, True):
        for few, every in zip(alone(one, first=first), order(one, first=first), strict=True):
            gathers = [event for event in every if event.kind in (GATHER, FOR_GATHER)]
            for work, seconds in WORK_AND_GATHERS:
                assert stall_seconds(few, work, seconds, 0.0) == pytest.approx(
                    stall_seconds(gathers, work, seconds, 0.0)
                )


def test_a_few_of_many():
    """Llama-3.1-405B has 126 layers; what 100 of them do alike is told by two."""
    one = job("llama-3.1-405b", gpus=512, stage=3, checkpointing="full")
    few, every = alone(one), order(one)
    assert len(few.forward) < len(every.forward) / 5


@pytest.mark.parametrize(("accum", "micro_steps_that_differ"), [(1, 1), (4, 2)])
def test_secondary_partitions_are_made_in_the_step_s_first_forward(accum, micro_steps_that_differ):
    """ZeRO++'s hpZ: each parameter comes from all 16 ranks once a step, in its first forward; else from the node's 8.

    What forward gathers ahead for backward lies in the node already.
    """
    one = job("llama-3.2-1b", gpus=16, stage=3, hpz_partition_size=8, grad_accum=accum, checkpointing="full")
    steps = distinct(micro_steps(one))
    assert len(steps) == micro_steps_that_differ
    ranks = [{(part.pass_index, part.ranks) for gathers in step.gathers for part in gathers.events} for step in steps]
    assert ranks[0] == {(0, 16), (0, 8), (1, 8)}
    assert all(found == {(0, 8), (1, 8)} for found in ranks[1:])
