"""Which columns ZenFlow chooses, worked out by hand; runs of DeepSpeed stand in tests/verify."""

from __future__ import annotations

import pytest

from tests.jobs import job
from zeroplan.costs.deepspeed.zenflow import SelectedColumns, chosen, elements
from zeroplan.costs.deepspeed.zenflow_backward import ZenFlowBackward
from zeroplan.costs.ledger import ledger
from zeroplan.errors import ContradictionError
from zeroplan.ledger import total
from zeroplan.search.room import lower_bound
from zeroplan.specs.strategy import Offload, ZenFlow

CPU = Offload(device="cpu")


def flowing(name="gpt2", *, gpus=1, **zenflow):
    return job(name, gpus=gpus, stage=2, offload_optimizer=CPU, zenflow=ZenFlow(**{"update_interval": 4, **zenflow}))


def test_a_tenth_of_the_columns_and_all_of_a_vector():
    """GPT-2's first tensor has 50,257 rows and 768 columns: int(76.8) = 76 of them."""
    one = flowing()
    names = [tensor.name for tensor in one.model.tensors]
    assert chosen(one)[0] == (SelectedColumns(0, 768, 76, 76 * 50_257),)
    assert chosen(one)[names.index("transformer.h.0.ln_1.weight")] == (SelectedColumns(0, 0, 0, 768),)


def test_a_piece_counts_the_columns_that_lie_whole_in_it():
    """On two ranks F/2 elements are the first's: 768 columns of 50,257, less than a column is cut off its end."""
    one = flowing(gpus=2)
    assert sum(tensor.elements for tensor in one.model.tensors) == 124_439_808  # which 4 divides: no padding
    share = 124_439_808 // 2
    assert share // 50_257 == 1238  # more than its 768 columns: the first tensor lies whole in the first partition
    assert [len(pieces) for pieces in chosen(one).values()].count(2) <= 1
    cut = flowing(gpus=8)
    whole = [124_439_808 // 8 // 50_257, 2 * 124_439_808 // 8 // 50_257]
    assert [piece.columns for piece in chosen(cut)[0]][:2] == [whole[0], whole[1] - whole[0] - 1]


def test_moments_in_the_training_precision_a_counter_a_tensor_and_the_columns():
    one = flowing()
    without = job("gpt2", gpus=1, stage=2, offload_optimizer=CPU)
    held = total(ledger(one).gpu.resident) - total(ledger(without).gpu.resident)
    columns = sum(piece.picked for pieces in chosen(one).values() for piece in pieces)
    assert held == 2 * 2 * elements(one) + 4 * len(one.model.tensors) + 4 * columns


def test_the_interval_takes_the_place_of_accumulation():
    """Each micro-step reduces, at stage 1 too; gradient_accumulation_steps changes nothing."""
    one, more = flowing(gpus=8), flowing(gpus=8).at(grad_accum=3)
    assert ledger(one) == ledger(more)
    for stage in (1, 2):
        reduced = [t for t in ledger(one.at(stage=stage)).traffic if t.collective == "all_reduce" and t.bytes > 4]
        assert [t.times(one.strategy.micro_steps) for t in reduced] == [4]


def test_with_offload_the_moments_are_fetched_for_every_update():
    one = flowing(gpus=2, offload=True)
    moved = [entry.line.bytes for entry in ledger(one).copies if entry.line.name == "chosen moments"]
    assert moved == [4 * 2 * 2 * elements(one)] * 2  # four updates, two moments of two bytes, there and back


def test_two_intervals_are_not_one():
    """What is remembered of one section is not given to another."""
    one = flowing()
    assert elements(one.at(zenflow=ZenFlow(4, topk_ratio=0.2))) > elements(one)
    assert elements(one) == elements(flowing(topk_ratio=0.1))


@pytest.mark.parametrize(("name", "gpus", "word"), [("mixtral-8x7b", 8, "shape"), ("gpt2", 4096, "column")])
def test_what_deepspeed_stops_on_is_said(name, gpus, word):
    """Fused experts have three dimensions; 124,439,808 elements over 4,096 ranks are less than a column of 50,257."""
    with pytest.raises(ContradictionError, match=word):
        ledger(flowing(name, gpus=gpus))


def test_a_process_of_its_own_holds_gradients_and_states_twice():
    """Beside the rank's: master 4, two gradients 4 each, updated weights 4, four states 4 each: 32 bytes an element."""
    one = flowing(gpus=2, overlap_step=True)
    fp32 = [
        line.symbols["size"] for line in ledger(one).host.resident if line.dtype == "float32" and line.name != "norm"
    ]
    assert sum(fp32) == 32 * 124_439_808 // 2


FLOWS = [
    ZenFlow(1), ZenFlow(3, topk_ratio=0.4, select_interval=3), ZenFlow(2, select_interval=8, offload=True),
    ZenFlow(2, overlap_step=True),
]  # fmt: skip


@pytest.mark.parametrize("flow", FLOWS, ids=str)
@pytest.mark.parametrize("stage", [1, 2])
@pytest.mark.parametrize("ranks", [1, 3, 8])
def test_a_replay_gives_back_what_it_made(flow, stage, ranks):
    """Nothing alive is left below zero, the bound is below the peak, and what is remembered is what is counted."""
    one = job(
        "gpt2", gpus=ranks, stage=stage, offload_optimizer=CPU, overlap_comm=True, parameter_groups=2, zenflow=flow
    )
    counted = ledger(one)
    assert all(line.bytes >= 0 for line, _phases in counted.gpu.lines())
    assert lower_bound(one) <= total(counted.gpu.peak.lines)
    assert chosen(one) == chosen.__wrapped__(one)
    apart = "fp32" if stage == 2 and not flow.overlap_step else None
    replay = ZenFlowBackward(one.at(grad_accum_dtype=apart), flow)
    for _step in range(2):
        replay.step(choosing=True)
        replay.update()
    assert replay.tracker.bytes == 0
    assert not any(replay.tracker.elements.values())
