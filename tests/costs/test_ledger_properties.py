"""Properties that hold for any strategy."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.jobs import job
from zeroplan.costs.deepspeed.fetch import with_room
from zeroplan.costs.deepspeed.layout import flat_groups, own_elements
from zeroplan.costs.deepspeed.partitions import persistent_tensors, shard_elements, sub_groups
from zeroplan.costs.deepspeed.traffic import traffic
from zeroplan.costs.ledger import ACCOUNTINGS, ledger
from zeroplan.costs.passes import alone
from zeroplan.ledger import PHASES, RESIDENT, total
from zeroplan.search.room import lower_bound
from zeroplan.specs.strategy import Offload

MODELS = ("llama-3.2-1b", "gpt2", "mixtral-8x7b", "falcon-7b", "deepseek-v2-lite", "bert-base", "gemma-2-2b")


def runs(one):
    """Falcon's layers compute attention themselves: nothing can checkpoint it alone."""
    return one.strategy.checkpointing != "selective" or one.strategy.attention not in one.model.own_attention


jobs = st.builds(
    job,
    st.sampled_from(MODELS),
    gpus=st.sampled_from([1, 2, 3, 8, 64]),
    seq=st.sampled_from([128, 2048]),
    stage=st.integers(0, 3),
    precision=st.sampled_from(["fp32", "fp16", "bf16", "fp8"]),
    optimizer=st.sampled_from(["adamw", "sgd", "lion", "adam8bit"]),
    micro_batch=st.integers(1, 4),
    grad_accum=st.integers(1, 3),
    checkpointing=st.sampled_from(["none", "selective", "full"]),
    attention=st.sampled_from(["eager", "sdpa", "flash_attention_2"]),
    parameter_groups=st.sampled_from([1, 2, 3]),
    round_robin_gradients=st.booleans(),
    reduce_bucket_size=st.sampled_from([5_000_000, 500_000_000]),
    prefetch_bucket_size=st.sampled_from([0, 50_000_000]),
    param_persistence_threshold=st.sampled_from([0, 100_000]),
    max_reuse_distance=st.sampled_from([0, 1_000_000_000]),
    sub_group_size=st.sampled_from([10_000_000, 1_000_000_000]),
    overlap_comm=st.sampled_from([None, True, False]),
    offload_optimizer=st.sampled_from([None, Offload(device="cpu"), Offload(device="nvme")]),
    offload_param=st.sampled_from([None, Offload(device="cpu"), Offload(device="nvme", buffer_size=10**9)]),
).map(with_room).filter(runs)
drawn = settings(max_examples=150, deadline=None, derandomize=True)


@drawn
@given(jobs, st.sampled_from(ACCOUNTINGS))
def test_lines_add_up_to_each_phase_and_every_byte_is_an_integer(one, accounting):
    counted = ledger(one, accounting)
    for tier in (counted.gpu, counted.host, counted.nvme):
        lines = tier.lines()
        assert all(type(line.bytes) is int and line.bytes >= 0 for line, _phases in lines)
        assert sum(line.bytes for line, phases in lines if RESIDENT in phases) == total(tier.resident)
        for phase in PHASES:
            assert sum(line.bytes for line, phases in lines if phase in phases) == total(tier.worst(phase).lines)
        assert total(tier.peak.lines) == max(total(tier.worst(phase).lines) for phase in PHASES)


@drawn
@given(jobs)
def test_the_bound_without_a_replay_is_never_above_the_peak(one):
    assert lower_bound(one) <= total(ledger(one).gpu.peak.lines)


@drawn
@given(jobs)
def test_a_line_says_formula_symbols_source_and_evidence(one):
    for accounting in ACCOUNTINGS:
        for line, _phases in ledger(one, accounting).gpu.lines():
            assert line.formula
            assert line.source
            assert line.evidence
            assert line.rule(**line.symbols) == line.bytes


@drawn
@given(jobs)
def test_a_higher_stage_never_holds_more_model_states(one):
    """But for the reduce bucket and gathered tensors that stage 3 keeps, and a padding under one element a rank.

    In fp32 stage 0 has no master copy and every other stage has one, so there stage 1 can hold more.
    """
    states = {"parameters", "gradients", "fp32 master copy", "optimizer states"}
    first = 1 if one.strategy.precision == "fp32" else 0
    one = one.at(offload_optimizer=None, offload_param=None)
    held = [
        sum(line.bytes for line in ledger(one.at(stage=stage)).gpu.resident if line.name in states - {"gradients"})
        for stage in range(first, 4)
    ]
    padding = 16 * (2 * one.ranks + len(one.model.tensors))
    assert all(later <= earlier + padding for earlier, later in pairwise(held))


@drawn
@given(jobs)
def test_activations_grow_with_the_micro_batch(one):
    twice = one.at(micro_batch=2 * one.strategy.micro_batch)
    assert total(ledger(twice).gpu.peak.lines) >= total(ledger(one).gpu.peak.lines)


@pytest.mark.parametrize("attention", ["sdpa", "flash_attention_2", "flash_attention_3"])
def test_fused_attention_is_linear_in_the_sequence_and_eager_is_not(attention):
    def saved(seq: int, kind: str) -> int:
        return alone(job("llama-3.2-1b", seq=seq, attention=kind, stage=2)).saved

    def bends(kind: str) -> int:
        return saved(6144, kind) - 2 * saved(4096, kind) + saved(2048, kind)

    assert bends(attention) == 0
    assert bends("eager") > saved(2048, attention)


def test_gradients_accumulate_only_with_accumulation():
    one = job("llama-3.2-1b", stage=2, grad_accum=1)
    more = one.at(grad_accum=2)
    assert "own gradients" not in {line.name for line in ledger(one).gpu.worst("forward").lines}
    assert "own gradients" in {line.name for line in ledger(more).gpu.worst("forward").lines}


@drawn
@given(jobs)
def test_what_is_counted_once_equals_a_fresh_count(one):
    """A memory that forgot a field of the strategy would hand out another strategy's bytes."""
    for count in (flat_groups, own_elements, shard_elements, persistent_tensors, sub_groups, traffic):
        assert count(one) == count.__wrapped__(one)
