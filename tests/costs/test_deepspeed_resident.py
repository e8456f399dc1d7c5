"""What DeepSpeed 0.19.8 holds between steps, against one measured example.

Llama-2-7B, 8 ranks, bf16, defaults, torch's Adam, rank 0, measured on DeepSpeed itself with the accelerator on
torch's meta device (2026-11): held bytes line by line.
"""

from __future__ import annotations

import pytest

from tests.jobs import job
from zeroplan.costs.ledger import ledger

MASTER_OR_MOMENT = 3_369_207_808
MEASURED = {
    0: {"parameters": 13_476_831_232, "fp32 master copy": 26_953_662_464, "optimizer states": 2 * 26_953_662_464},
    1: {"parameters": 13_476_831_232, "fp32 master copy": MASTER_OR_MOMENT, "optimizer states": 2 * MASTER_OR_MOMENT},
    2: {"parameters": 13_476_831_232, "fp32 master copy": MASTER_OR_MOMENT, "optimizer states": 2 * MASTER_OR_MOMENT},
    3: {
        "parameters": 1_684_603_904,
        "gradients": 1_684_603_904,
        "fp32 master copy": MASTER_OR_MOMENT,
        "optimizer states": 2 * MASTER_OR_MOMENT,
        "reduce bucket": 1_000_000_000,
        "persistent parameters": 532_480,
    },
}


@pytest.mark.parametrize("stage", MEASURED)
def test_llama_2_7b_on_8_ranks(stage):
    """The published example leaves out rotary buffers and single numbers: some hundred bytes."""
    held = {line.name: line.bytes for line in ledger(job("llama-2-7b", stage=stage)).gpu.resident}
    small = {name: held.pop(name) for name in list(held) if held[name] < 1000}
    assert held == MEASURED[stage]
    assert small.keys() <= {"model buffers", "norm and flags", "fused optimizer's flag"}


def test_after_forward_and_backward_with_one_rank_nothing_is_sent():
    assert ledger(job("llama-2-7b", gpus=1, stage=2)).traffic == ()


# The same run: a step at stages 1 and 2 all-reduces Ψ elements in 14 buckets and gathers Ψ once.
@pytest.mark.parametrize(("stage", "when"), [(1, "step"), (2, "micro_step")])
def test_stages_1_and_2_all_reduce_their_buckets(stage, when):
    traffic = ledger(job("llama-2-7b", stage=stage)).traffic
    reduce, overflow, norm, gather = traffic
    assert [(t.dtype, t.calls, t.bytes) for t in (overflow, norm)] == [("uint8", 1, 1), ("float32", 1, 4)]
    assert (reduce.collective, reduce.when, reduce.calls, reduce.bytes) == ("all_reduce", when, 14, 13_476_831_232)
    assert (gather.collective, gather.when, gather.calls, gather.bytes) == ("all_gather", "step", 1, 13_476_831_232)


# Stage 0 all-reduces once per step, in 13 runs of tensors.
def test_stage_0_all_reduces_once_per_step():
    (reduce,) = ledger(job("llama-2-7b", stage=0, grad_accum=4)).traffic
    assert (reduce.collective, reduce.when, reduce.bytes) == ("all_reduce", "step", 13_476_831_232)


# 65 persistent tensors (norms) are gathered again after the step, one call each.
def test_stage_3_gathers_persistent_tensors_again():
    traffic = ledger(job("llama-2-7b", stage=3)).traffic
    again = traffic[-1]
    scattered = next(transfer for transfer in traffic if transfer.collective == "reduce_scatter")
    assert (scattered.calls, scattered.bytes) == (14, 13_476_831_232)
    assert (again.when, again.calls, again.bytes) == ("step", 65, 2 * 266_240)
