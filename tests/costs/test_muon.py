"""Muon: which tensors it takes, what one update needs, and where DeepSpeed stops. Whole runs are compared in tests/verify."""

from __future__ import annotations

import pytest

from tests.jobs import job
from zeroplan.architectures.model import model_of
from zeroplan.architectures.read import read_config
from zeroplan.costs.allocations import AllocationTracker
from zeroplan.costs.deepspeed import muon, muon_offload
from zeroplan.costs.deepspeed.layout import flat_groups, group_members
from zeroplan.costs.deepspeed.muon_gather import MOST_KEPT, GatherBuffers
from zeroplan.costs.deepspeed.muon_update import workspace
from zeroplan.costs.deepspeed.partitions import sub_group_members
from zeroplan.costs.ledger import ledger
from zeroplan.errors import ContradictionError
from zeroplan.search.space import choices
from zeroplan.specs.strategy import Offload

TINY = {
    "model_type": "llama", "hidden_size": 32, "num_attention_heads": 4, "num_key_value_heads": 2,
    "intermediate_size": 77, "num_hidden_layers": 1, "vocab_size": 160, "tie_word_embeddings": False,
}  # fmt: skip


def tiny(gpus=2, changed=None, **strategy):
    given = TINY | (changed or {})
    found = job("llama-3.2-1b", gpus=gpus, **{"stage": 2, "optimizer": "muon", **strategy})
    return found._replace(model=model_of(*read_config(given, "tiny"), name="tiny", source="tiny"))


def names(one, members):
    return [one.model.tensors[index].name.split(".")[-2] for index in members]


def test_matrices_come_first_largest_shape_first():
    """Shapes are compared as tuples: (77, 32) twice, (32, 77), (32, 32) twice, (16, 32) twice."""
    one = tiny()
    assert [names(one, members) for members in group_members(one)] == [
        ["gate_proj", "up_proj", "down_proj", "q_proj", "o_proj", "k_proj", "v_proj"],
        ["embed_tokens", "input_layernorm", "post_attention_layernorm", "norm", "lm_head"],
    ]
    assert [layout.muon for layout in flat_groups(one)] == [True, False]


def test_under_zero_init_they_stay_in_order():
    one = tiny(stage=3, zero_init=True)
    assert names(one, sub_group_members(one)[0])[0] == "q_proj"
    assert names(one, sub_group_members(one.at(zero_init=False))[0])[0] == "gate_proj"


def test_another_optimizer_on_the_same_model_has_one_group():
    """What is remembered of a job under Muon is not given to the job under Adam."""
    one = tiny()
    assert [len(flat_groups(one.at(optimizer=name))) for name in ("adamw", "muon", "adamw")] == [1, 2, 1]


# Counted by a dispatch mode over muon_update on torch's meta device, less its one flag of a byte.
@pytest.mark.parametrize(
    ("shape", "dtype", "method", "expected"),
    [
        ((32, 224), "float32", "gram", 57_344),  # the blended momentum twice: 2 · 4 · 7,168
        ((224, 32), "float16", "gram", 71_680),  # in fp32, divided, and in fp16 again: 10 · 7,168
        ((32, 224), "bfloat16", "standard", 61_440),  # X four times, its Gram matrix twice: 8 · 7,168 + 4 · 1,024
        ((60, 64), "bfloat16", "gram", 58_080),  # X, and seven Gram matrices: 2 · 3,840 + 14 · 3,600
        ((64, 64), "float32", "standard", 49_152),  # 12 · 4,096
        ((4, 32, 48), "float16", "gram", 69_632),  # four at once: 2 · 6,144 + 14 · 4 · 1,024
        ((4, 64, 32), "bfloat16", "standard", 81_920),
    ],
)
def test_the_largest_moment_of_an_update(shape, dtype, method, expected):
    assert workspace(shape, dtype, method) == expected


def test_a_rank_with_nothing_of_a_matrix_stops_deepspeed_at_stage_3():
    """34 · 72 = 2,448 elements on 64 ranks are pieces of 39: rank 63 begins at 2,457, nine elements beyond the end."""
    one = tiny(gpus=64, changed={"hidden_size": 72, "intermediate_size": 34}, stage=3)
    with pytest.raises(ContradictionError, match=r"one gets nothing of .*write stage 2"):
        ledger(one)
    assert ledger(one.at(stage=2)).gpu.resident
    assert ledger(one.at(optimizer="adamw")).gpu.resident
    assert {choice["stage"] for choice in choices(one, {})} == {0, 1, 2}


def test_stacks_of_matrices_are_refused_beside_fp32_accumulation_at_stage_1():
    experts = job("mixtral-8x7b", optimizer="muon", stage=1, grad_accum_dtype="fp32")
    with pytest.raises(ContradictionError, match=r"experts.*is a stack of matrices"):
        ledger(experts)
    assert not muon.refusal(experts.at(grad_accum_dtype=None))


def test_kept_buffers_make_room_for_others():
    """Two of 100 MiB stay; the third takes the place of the one used least recently; 300 MiB are never kept."""
    tracker, mib = AllocationTracker(), 1024**2
    buffers = GatherBuffers(tracker, "uint8")
    for key in ("a", "b", "a", "c"):
        assert buffers.take(key, 100 * mib)
    assert list(buffers.kept) == ["a", "c"]
    assert not buffers.take("d", 300 * mib)
    assert 256 * mib == MOST_KEPT
    assert tracker.most == (200 + 300) * mib


def test_batches_of_an_offloaded_step_are_64_mib_with_momentum():
    """fp32 gradients and momentum of 2²³ elements; Llama 2 7B's projections of 2²⁴ and more go one by one."""
    one = job("llama-2-7b", optimizer="muon", stage=2, offload_optimizer=Offload("cpu"))
    assert all(len(batch.tensors) == 1 for batch in muon_offload.batches(one))
    assert [len(batch.tensors) for batch in muon_offload.batches(tiny())] == [7]


def test_what_is_left_out_is_named():
    assert tiny().strategy.not_counted == (
        "Muon's compiled update, which is counted as it runs uncompiled",
        "Muon's element-wise operators in the time of a step",
    )
    assert tiny(optimizer="adamw").strategy.not_counted == ()
