"""What stage 3's replay reports layer by layer, against arithmetic on the model's own sizes."""

from __future__ import annotations

import random
from itertools import product

import pytest

from tests.jobs import job
from zeroplan.costs.deepspeed import fetch
from zeroplan.costs.deepspeed.nvme_swap import parameter_buffers, swapped_parameters
from zeroplan.costs.deepspeed.stage_3_backward import replay_backward
from zeroplan.errors import ContradictionError
from zeroplan.specs.strategy import Offload


def test_persistent_parameters_come_with_their_layers_in_the_first_step():
    """Before the first step nothing persists yet: of Llama-3.1-405B 2 × 126 + 1 norms of 16384 elements stay as they
    come, and are all that is there once its head, released first in backward, has gone.
    """
    one = job("llama-3.1-405b", gpus=512, stage=3, checkpointing="full", micro_batch=1, grad_accum=2)
    _recording, second = fetch.micro_steps(one).before
    assert second.backward.elements[1] == (2 * 126 + 1) * 16384


@pytest.mark.parametrize("checkpointing", ["none", "full"])
def test_norms_of_offloaded_gradients_are_there_at_the_end_of_backward(checkpointing):
    """The optimizer on the CPU: at the end of a backward the norms of all of its 1138 tensors are there, in fp64."""
    one = job("llama-3.1-405b", gpus=512, stage=3, checkpointing=checkpointing, offload_optimizer=Offload("cpu"))
    found = replay_backward(one, fetch.micro_steps(one).steady)
    norms = [line for line in found.tracker.lines() if line.name == "norms"]
    assert [line.bytes for line in norms] == [8 * (3 + 126 * 9)]


def test_weights_of_which_autograd_keeps_views_stay_until_backward():
    """Mixtral-8x7B's experts, 8 × (2 × 14336 + 14336) × 4096 elements in each of 32 layers, stay from forward on."""
    steady = fetch.micro_steps(job("mixtral-8x7b", gpus=64, stage=3, checkpointing="none", max_reuse_distance=0)).steady
    experts = 8 * 3 * 14336 * 4096
    assert 0 <= steady.forward.elements[-1] - 32 * experts < experts


@pytest.mark.parametrize("seed", range(30))
def test_buffers_for_nvme_are_the_first_that_suffice_of_all_that_are_tried(seed):
    """Where more of them change nothing the others are not tried: each is here."""
    draw = random.Random(seed)
    one = job(
        draw.choice(["gpt2-xl", "deepseek-v2-lite", "mixtral-8x7b"]), gpus=draw.choice([1, 2, 8]), stage=3,
        checkpointing=draw.choice(["none", "full"]), grad_accum=draw.choice([1, 2]),
        prefetch_bucket_size=draw.choice([10**6, 5 * 10**8, 10**10]), max_reuse_distance=draw.choice([0, 10**9]),
        offload_param=Offload("nvme", max_in_cpu=0, buffer_size=10**9, buffer_count=draw.choice([None, 1, 2])),
    )  # fmt: skip
    params, counts, suffice = one.strategy.offload_param, [parameter_buffers(one)], []
    while counts[-1] < len(swapped_parameters(one)):
        counts.append(2 * counts[-1])
    for bucket, count in product((one.strategy.prefetch_bucket_size, 0), counts):
        try:
            fetch.micro_steps(one.at(prefetch_bucket_size=bucket, offload_param=params._replace(buffer_count=count)))
        except ContradictionError:
            continue
        suffice.append((count, bucket))
    assert fetch.sufficient_buffers(one) == next(iter(suffice), None)
