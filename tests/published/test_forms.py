"""Forms against figures that were worked out elsewhere, or by hand here."""

from __future__ import annotations

import pytest

from benchmarks.published import constants, measures
from benchmarks.published.constants import Constant
from benchmarks.published.engines import predict
from benchmarks.published.rows import Row, read
from benchmarks.published.shapes import shape, stages
from zeroplan.formulas import fully_sharded, fused, megatron

GPT_3 = {"t": 2048, "s": 2048, "h": 12288, "a": 96}
MIB = 2**20


def test_a_layer_without_flash_attention_is_korthikantis():
    """Korthikanti et al. §4: s·b·h·(34 + 5·a·s/h) for GPT-3 at micro-batch 1, 5·a·s/h = 80."""
    assert megatron.unfused_layer(**GPT_3, tp=1) == 2048 * 12288 * (34 + 80)
    assert megatron.unfused_layer(**GPT_3, tp=8) == 2048 * 12288 * (10 + (24 + 80) // 8)


def test_a_plain_layer_keeps_32_hidden_states_and_the_log_sum_exp():
    """MPT-7B: two norms 8, query, key, value and output 8, GELU's input and output 16 bytes a token and element."""
    t, h = 2048, 4096
    expected = 32 * t * h + 4 * t * 32 + 8 * t
    assert fused.gelu_layer(t, h, h, h, 4 * h, 32, 1) == expected


def test_selective_checkpointing_keeps_every_second_product():
    """Llama-3.1-8B, a token: input and down projection 4·4096, query and attention's output 4·4096, value 2·1024,
    gate 2·14336, log-sum-exp 4·32: 63,616 bytes.
    """
    assert fully_sharded.selective_layer(1, 4096, 4096, 1024, 14336, 32, 1) == 63_616


def test_sequence_parallelism_splits_a_layer_and_its_checkpoint():
    sizes = {"t": 4096, "h": 8192, "q": 8192, "kv": 1024, "f": 28672, "a": 64}
    assert fused.swiglu_layer(**sizes, tp=8) * 8 == fused.swiglu_layer(**sizes, tp=1)
    assert fused.checkpoints(4096, 8192, 80, 1, 8) == 80 * 2 * 4096 * 8192 // 8


def row(**columns):
    stated = {
        "model": "GPT 52B", "hidden": "8192", "layers": "64", "heads": "32", "ffn": "32768", "vocab": "50688",
        "seq": "1024", "gpus": "64", "parallel": "dp=1,tp=4,pp=16", "grad_accum": "256",
    }  # fmt: skip
    return Row({**stated, **columns})


def test_a_pipelines_stages_hold_their_layers_and_ends():
    """52B over 16 stages and 4 tensor-parallel ranks: 4 layers of 12·8192² and the embedding at both ends."""
    first, middle, last = stages(row(), shape(row()))
    layers = 4 * (12 * 8192**2 + 13 * 8192)
    assert middle.parameters == layers // 4
    assert first.parameters == (layers + (50688 + 1024) * 8192) // 4
    assert last.parameters == (layers + 50688 * 8192) // 4
    assert (first.in_flight, middle.in_flight, last.in_flight) == (16, 8, 1)


@pytest.mark.parametrize(("rank", "in_flight"), [(0, 16), (63, 1)])
def test_a_named_rank_is_looked_at_alone(rank, in_flight):
    (only,) = stages(named := row(what_was_measured=f"torch rank{rank} allocated"), shape(named))
    assert only.in_flight == in_flight


def test_micro_batches_in_flight_are_no_more_than_there_are():
    assert stages(few := row(grad_accum="4"), shape(few))[0].in_flight == 4


def test_head_width_follows_from_the_stated_parameters():
    """Qwen3-32B: 64 heads of 128 on a hidden size of 5,120."""
    qwen = row(
        model="Qwen3-32B", params="32762123264", hidden="5120", heads="64", kv_heads="8", ffn="25600", vocab="151936"
    )
    assert shape(qwen).queries == 8192
    assert not shape(qwen).tied


def test_every_constant_says_what_it_rests_on():
    found = [one for one in vars(constants).values() if isinstance(one, Constant)]
    assert len(found) > 8
    for one in found:
        assert one.low <= one.value <= one.high
        assert one.kind in {"published", "fitted", "code", "assumed"}
        assert len(one.evidence) > 20


def test_terms_carry_the_measures():
    """Without activations, checkpoints or logits a large part of the rows is missed; no term is for show alone."""
    table = measures.compare(one for one in read() if one.column("trainable") == "full")
    core = measures.distinct(one for one in table.compared if measures.counts(one))
    without = {one.term: one for one in measures.removed(core)}
    for term in ("activations", "checkpoints", "logits", "states"):
        assert without[term].nine_in_ten > 0.2
    for term in ("reserved beside max allocated", "gathered parameters", "gradients"):
        assert without[term].nine_in_ten > 0.1


@pytest.mark.parametrize(
    ("rule", "ranks", "bytes_each"),
    [
        (lambda n: megatron.fp16_states(1000), 1, 20), (lambda n: megatron.distributed_fp16_states(1000, n), 1, 20),
        (lambda n: megatron.distributed_states(1000, n), 1, 18), (lambda n: megatron.distributed_states(1000, n), 4, 9),
        (lambda n: megatron.distributed_fp16_states(1000, n), 8, 6),
    ],
)  # fmt: skip
def test_states_are_those_of_megatrons_documentation(rule, ranks, bytes_each):
    """Its table: fp16 gradients 20 and 4 + 16/d bytes per parameter, fp32 gradients 18 and 6 + 12/d."""
    assert rule(ranks) == 1000 * bytes_each


def test_gathered_weights_stay_unless_the_trainer_builds_the_model():
    """Llama-2-7B at stage 3 without checkpointing: 2 bytes of 6.74 billion parameters, less what is gathered anyway."""
    named = {one.name: one for one in read()}
    loop = named["chenyaofo-5-max"]
    trainer = Row({**loop.text, "framework": "HF Trainer + deepspeed 0.14.2"})
    difference = (predict(loop).peak.bytes - predict(trainer).peak.bytes) / 2**30
    assert 2 * 6.738e9 / 2**30 - 2.5 < difference < 2 * 6.738e9 / 2**30
