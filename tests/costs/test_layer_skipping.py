"""Layers of stage 3 that are not replayed: what comes out is what a replay of every visit gives."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.jobs import job
from zeroplan.architectures.identical_layers import cycles
from zeroplan.architectures.model import model_of
from zeroplan.architectures.read import read_config
from zeroplan.costs.deepspeed import fetch
from zeroplan.costs.deepspeed.backward import replay_backward
from zeroplan.costs.deepspeed.coordinator import Coordinator
from zeroplan.costs.deepspeed.events import all_events
from zeroplan.costs.deepspeed.layout import tensor_sizes
from zeroplan.specs.strategy import Offload

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


def replayed(one, *, follows):
    """The micro-steps and their backwards; `follows`: layers may follow from others."""
    found = fetch._settings(one)
    course = fetch.access_order_of(one)
    coordinator = Coordinator(tensor_sizes(one), found, course if follows else course._replace(passes=course.passes._replace(intervals=())))
    steps = [coordinator.micro_step(records=True)]
    steps += [coordinator.micro_step() for _micro in range(one.strategy.grad_accum - 1)]  # nothing persists yet
    for _step in range(2 if one.strategy.grad_accum > 1 else 1):
        coordinator.gather_persistent()
        steps += [coordinator.micro_step() for _micro in range(one.strategy.grad_accum)]
    return [block for block in steps[-1].backward if block.times > 1], [told(one, step) for step in steps]


def told(one, step):
    """Without events of modules that have no tensors."""
    backward = replay_backward(one, step)
    passes = [[event for event in all_events(phase) if event.hook.tensors] for phase in (step.forward, step.backward)]
    gradients = [entry for entry in all_events(backward.tracker.snapshots.blocks()) if entry.key < 0]
    return list(all_events(step.gathers)), passes, backward.tracker.peak, backward.tracker.lines(), gradients


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(sorted(FAMILIES)), st.integers(3, 14), st.sampled_from([64, 1000]), st.sampled_from([2, 6, 8]),
    st.fixed_dictionaries({
        "prefetch_bucket_size": st.sampled_from([0, 500, 3_000, 10_000, 10**8]),
        "max_live_parameters": st.sampled_from([0, 5_000, 20_000, 10**9]),
        "max_reuse_distance": st.sampled_from([0, 5_000, 30_000, 10**9]),
        "param_persistence_threshold": st.sampled_from([0, 40, 2_000]),
        "model_persistence_threshold": st.sampled_from([300, 10**9]),
        "reduce_bucket_size": st.sampled_from([1, 2_000, 15_000, 5 * 10**8]),
        "contiguous_gradients": st.booleans(),
        "memory_efficient_linear": st.booleans(),
        "allgather_sequential": st.booleans(),
        "all_reduce_for_fetch": st.booleans(),
        "hpz_partition_size": st.sampled_from([1, 1, 2]),
        "checkpointing": st.sampled_from(["none", "full", "every-2", "every-3"]),
        "grad_accum": st.sampled_from([1, 1, 3]),
        "offload_optimizer": st.sampled_from([None, None, Offload("cpu"), Offload("cpu", ratio=0.5), Offload("nvme")]),
        "precision": st.sampled_from(["bf16", "bf16", "fp16", "fp32"]),
    }),
)  # fmt: skip
def test_what_is_not_replayed_follows(family, layers, vocab, gpus, strategy):
    """Every gather, every event with tensors, every gradient, and the peak."""
    one = job("gpt2", gpus=gpus, stage=3, **strategy)._replace(model=small(family, layers, vocab))
    assert replayed(one, follows=True)[1] == replayed(one, follows=False)[1]


@pytest.mark.parametrize("checkpointing", ["none", "full"])
def test_alike_layers_are_not_replayed(checkpointing):
    """Of 126 layers of Llama-3.1-405B three are in forward, and as many in backward."""
    one = job("llama-3.1-405b", gpus=512, stage=3, checkpointing=checkpointing)
    (repeat,) = replayed(one, follows=True)[0]
    assert repeat.times > 100


def test_what_comes_with_its_layer_and_stays_is_told_of_all():
    """Before the first step nothing persists yet: a layer of Llama-3.1-405B brings two norms of 16384 elements."""
    one = job("llama-3.1-405b", gpus=512, stage=3, checkpointing="full", micro_batch=1, grad_accum=2)
    second = fetch.micro_steps(one).before[1]
    (repeat,) = [block for block in second.forward if block.times > 1]
    assert repeat.times > 100
    assert repeat.offset.more == (2 * 16384,)
    last, first = max(repeat.copy(repeat.times - 1)), max(repeat.events)
    assert last.elements - first.elements == (repeat.times - 1) * 2 * 16384


@pytest.mark.parametrize("checkpointing", ["none", "full"])
def test_norms_of_offloaded_gradients_are_told_of_all_layers(checkpointing):
    """The optimizer on the CPU: at the end of a backward the norms of all of its 1138 tensors are there, in fp64."""
    one = job(
        "llama-3.1-405b", gpus=512, stage=3, checkpointing=checkpointing, offload_optimizer=Offload("cpu"),
    )  # fmt: skip
    found = replay_backward(one, fetch.micro_steps(one).steady)
    (repeat,) = [block for block in found.tracker.snapshots.blocks() if block.times > 1]
    assert repeat.times > 100
    assert repeat.offset.more[0] == 8 * 9
    norms = [line for line in found.tracker.lines() if line.name == "norms"]
    assert [line.bytes for line in norms] == [8 * (3 + 126 * 9)]


def test_layers_whose_makes_take_turns_are_replayed_once():
    """Gemma-2's layers have a window every other time: of 24, what two do comes again."""
    settings = {"prefetch_bucket_size": 0, "max_reuse_distance": 0, "checkpointing": "full"}
    one = job("gpt2", stage=3, **settings)._replace(model=small("gemma2", 24, 1000))
    (repeat,) = replayed(one, follows=True)[0]
    assert repeat.times > 8


def test_cycles_are_those_that_reach_farthest():
    """A layer of its own; then a, b, b three times; then c five times, which is longer than once more a, b, b."""
    makes = [*"x", *"abb" * 3, *"c" * 5, "y"]
    assert [tuple(each) for each in cycles(makes)] == [(0, 1, 1), (1, 3, 3), (10, 1, 5), (15, 1, 1)]


def test_weights_of_which_autograd_keeps_views_are_told_of_all_layers():
    """Mixtral-8x7B's experts, 8 × (2 × 14336 + 14336) × 4096 elements a layer, stay from forward until backward."""
    steady = fetch.micro_steps(job("mixtral-8x7b", gpus=64, stage=3, checkpointing="none", max_reuse_distance=0)).steady
    forward, backward = ([block for block in each if block.times > 1] for each in (steady.forward, steady.backward))
    experts = 8 * 3 * 14336 * 4096
    assert [block.offset.more for block in (*forward, *backward)] == [(experts,), (-experts,)]
    assert forward[0].times > 20
