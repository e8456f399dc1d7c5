"""Which single changes are named where nothing fits, and how many of them are tried."""

from __future__ import annotations

import pytest

from tests.jobs import job
from zeroplan.catalog import hardware
from zeroplan.suggestions import suggestions


def asked(fits, **fixed):
    """What is named, and the jobs that were tried; `fits` stands for a search."""
    tried = []

    def has_any(one, free):
        tried.append((one, free))
        return fits(one, free)

    one = job("llama-3.1-8b", gpus=8, seq=5000, capacity=10**9)
    ways = suggestions(one, fixed, has_any, lambda one, free: one if fits(one, free) else None)
    return [said for said, _found in ways], tried


@pytest.mark.parametrize(("most", "said"), [(5000, 4096), (4096, 4096), (1000, 512), (256, 256)])
def test_the_longest_sequence_that_fits_is_named(most, said):
    """Powers of two below 5000: 4096 to 256, five of them; the shortest is tried first, then halves of what is left."""
    ways, tried = asked(lambda one, _free: one.workload.seq <= most and one.ranks == 8)
    assert ways == [f"a sequence of {said} (--seq {said})"]
    assert sum(one.workload.seq < 5000 for one, _free in tried) <= 4


@pytest.mark.parametrize(("least", "said", "tries"), [
    (9, "16 GPUs (--gpus 2x8)", 5), (100, "104 GPUs (--gpus 13x8)", 5 + 3), (4096, "4096 GPUs (--gpus 512x8)", 5 + 8),
])  # fmt: skip
def test_the_fewest_nodes_that_fit_are_named(least, said, tries):
    """16 to 4096 GPUs are nine counts of nodes, doubled; then halves of those between two of them."""
    ways, tried = asked(lambda one, _free: one.ranks >= least)
    assert ways == [said]
    assert sum(one.ranks > 8 for one, _free in tried) <= tries


def test_the_smallest_card_that_does_it_is_named():
    cards = hardware.larger(job("llama-3.1-8b", capacity=24 * 10**9).cluster, "bf16")
    assert [card.memory_class for card in cards] == sorted(card.memory_class for card in cards)
    one = job("llama-3.1-8b", gpus=8, capacity=10**9)
    ways = suggestions(one, {}, lambda one, _free: (one.cluster.capacity or 0) > 70 * 10**9, lambda one, _free: one, cards=cards)
    assert [said.rpartition("(")[2] for said, _found in ways] == ["--gpu a100-80gb)"]


def test_where_nothing_fits_the_last_of_each_kind_is_tried_alone():
    ways, tried = asked(lambda _one, _free: False)
    assert ways == []
    assert [(one.workload.seq, one.ranks) for one, _free in tried] == [(256, 8), (5000, 4096)]


def test_a_choice_that_was_asked_for_is_left_open():
    ways, _tried = asked(lambda _one, free: "stage" not in free, stage=1, checkpointing="none")
    assert ways == ["another stage than 1 (leave --stage out)"]
