"""Thresholds of stage 3 between the same counts: a replay of its own gives what the first one gave."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.jobs import job
from zeroplan.architectures.model import model_of
from zeroplan.architectures.read import read_config
from zeroplan.costs.deepspeed import fetch
from zeroplan.costs.deepspeed.gathered_storages import ThresholdRange

FAMILIES = {
    "llama": {},
    "gpt2": {"n_embd": 32, "n_head": 4, "n_inner": 96},
    "gemma2": {"head_dim": 8, "sliding_window": 16},
    "qwen3": {"head_dim": 8},
    "mixtral": {"num_local_experts": 4},
    "opt": {"ffn_dim": 64, "word_embed_proj_dim": 32, "max_position_embeddings": 128},
}
WIDTHS = {"hidden_size": 32, "intermediate_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2}


def small(family: str, layers: int, vocab: int):
    """A narrow model of so many layers."""
    depth = {"n_layer": layers} if family == "gpt2" else {"num_hidden_layers": layers}
    config = {"model_type": family, "vocab_size": vocab, **WIDTHS, **depth, **FAMILIES[family]}
    return model_of(*read_config(config, "here"), name=family, source="test")


LARGEST = 10**10


def run(one):
    """All micro-steps that count, every event written out; and the thresholds for which they hold."""
    found = fetch._replayed(one, fetch._settings(one))
    steps = [*found.before, found.steady, found.later]
    return [step[:3] for step in steps], found.holds


def third_step(one):
    """Its first two micro-steps, every one before them replayed; the first twice where all are like it."""
    found = fetch._settings(one)
    coordinator = fetch._coordinator(one, found)
    for number in range(2):
        for micro in range(found.grad_accum):
            coordinator.micro_step(records=not (number or micro))
        coordinator.gather_persistent()
    step = coordinator.micro_step()
    later = coordinator.micro_step() if found.second and found.grad_accum > 1 else step
    return [each[:3] for each in (step, later)]


def within(span: ThresholdRange, draw: random.Random) -> int:
    """One of its ends, or any number between."""
    first, last = int(max(span.above + 1, 0)), int(min(span.upto, LARGEST))
    return draw.choice([first, last, draw.randint(first, last)])


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(sorted(FAMILIES)), st.integers(3, 10), st.sampled_from([2, 8]), st.randoms(use_true_random=False),
    st.fixed_dictionaries({
        "prefetch_bucket_size": st.sampled_from([0, 500, 3_000, 10_000, 10**8]),
        "max_live_parameters": st.sampled_from([0, 5_000, 20_000, 10**9]),
        "max_reuse_distance": st.sampled_from([0, 5_000, 30_000, 10**9]),
        "param_persistence_threshold": st.sampled_from([0, 40, 2_000]),
        "hpz_partition_size": st.sampled_from([1, 1, 1, 2]),
        "all_reduce_for_fetch": st.booleans(),
        "memory_efficient_linear": st.booleans(),
        "checkpointing": st.sampled_from(["none", "full", "every-2", "every-3"]),
        "grad_accum": st.sampled_from([1, 1, 3]),
    }),
)  # fmt: skip
def test_thresholds_between_the_same_counts_change_nothing(family, layers, gpus, draw, strategy):
    """Each at an end of its span, or within it, all three at once."""
    one = job("gpt2", gpus=gpus, stage=3, **strategy)._replace(model=small(family, layers, 1000))
    first, holds = run(one)
    assert first[-2:] == third_step(one)
    assert holds.has(one.strategy)
    other = one.at(
        prefetch_bucket_size=within(holds.bucket, draw), max_live_parameters=within(holds.live, draw),
        max_reuse_distance=within(holds.reach, draw),
    )  # fmt: skip
    assert holds.has(other.strategy)
    assert run(other)[0] == first


def test_a_threshold_beyond_its_span_may_change_what_is_gathered():
    """Spans are not needlessly narrow: one more than the last that holds for the bucket joins or parts some gathers."""
    one = job("gpt2", gpus=8, stage=3, prefetch_bucket_size=3_000, param_persistence_threshold=0)
    one = one._replace(model=small("llama", 4, 1000))
    first, holds = run(one)
    assert run(one.at(prefetch_bucket_size=int(holds.bucket.upto) + 1))[0] != first


def test_many_thresholds_are_few_replays():
    """Beyond the model's elements no limit is met: the parameters of GPT-2 twice, forward and backward, are 0.25e9."""
    one = job("gpt2", stage=3)
    every_one = [
        one.at(max_live_parameters=live, max_reuse_distance=reach)
        for live in (10**9, 10**10)
        for reach in (10**9, 10**11)
    ]
    assert len({id(fetch.micro_steps(each)) for each in every_one}) == 1
