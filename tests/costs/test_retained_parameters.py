"""What stage 3 has gathered when forward ends, as told without a replay, against the replay."""

from __future__ import annotations

import random

import pytest

from tests.jobs import job
from zeroplan.costs.deepspeed.event_log import all_events
from zeroplan.costs.deepspeed.fetch import micro_steps
from zeroplan.costs.deepspeed.layout import tensor_sizes
from zeroplan.costs.deepspeed.module_hooks import backward_hooks
from zeroplan.costs.deepspeed.partitions import persistent_tensors
from zeroplan.costs.deepspeed.retained_parameters import retained_at_least, retained_at_most

MODELS = ("llama-3.2-1b", "gpt2-xl", "qwen2.5-7b", "mixtral-8x7b", "opt-1.3b", "gemma-2-2b", "falcon-7b", "bert-base")
M, G = 10**6, 10**9


@pytest.mark.parametrize("seed", range(60))
def test_backward_gathers_what_was_not_kept(seed):
    """All that is partitioned is read again in backward; what no call of backward brings by then was there before."""
    draw = random.Random(seed)
    one = job(
        draw.choice(MODELS), gpus=draw.choice([2, 8, 16]), seq=128, stage=3,
        checkpointing=draw.choice(["none", "full", "every-2", "every-3"]), grad_accum=draw.choice([1, 3]),
        prefetch_bucket_size=draw.choice([0, 5 * M, 50 * M, 500 * M, 2 * G]),
        max_live_parameters=draw.choice([0, 100 * M, 500 * M, G, 5 * G, 50 * G]),
        max_reuse_distance=draw.choice([0, 100 * M, G, 2 * G, 5 * G, 10 * G]),
        param_persistence_threshold=draw.choice([0, 100_000]),
    )  # fmt: skip
    sizes, stay = tensor_sizes(one), set(persistent_tensors(one))
    reads: dict[int, int] = {}
    for at, hook in enumerate(backward_hooks(one)):
        for index in hook.tensors if hook.enters else ():
            reads.setdefault(index, at)
    brought = {
        index
        for gather in all_events(micro_steps(one).steady.gathers)
        if gather.pass_index
        for index in gather.tensors
        if gather.at <= reads[index]
    }
    kept = sum(size for index, size in enumerate(sizes) if index not in brought and index not in stay)
    assert retained_at_least(one) <= kept <= retained_at_most(one)
