"""The order in which a pass issues its collectives, and how long it waits for them."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from zeroplan.catalog.models import model
from zeroplan.costs.engine import FOR_GATHER, FOR_REDUCTION, GATHER, REDUCE, IssueOrder
from zeroplan.costs.engines import engine_of
from zeroplan.costs.ledger import ledger
from zeroplan.costs.timing.stalls import backward_progress, forward_progress, stall_seconds
from zeroplan.specs.cluster import Cluster
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Strategy, Workload


def job(name: str = "llama-2-7b", **strategy: Any) -> Job:
    return Job(model(name), Cluster(nodes=1, gpus_per_node=8), Workload(2048), Strategy(**strategy))


def order(one: Job) -> IssueOrder:
    return engine_of(one).issue_order(one)


def stalls(one: Job, work: float, gathers: float, reductions: float) -> tuple[float, float]:
    """Of forward, which reduces nothing, and of backward."""
    found = order(one)
    return (
        stall_seconds(found.forward, forward_progress(one), work, gathers, 0.0),
        stall_seconds(found.backward, backward_progress(one), work, gathers, reductions),
    )


def test_gathers_wait_for_nothing_but_the_reductions_before_them():
    """Two gathers of 1 s are done after 1 and 2 s; work of 2 s that needs the first waits 1 s, so the second is there.

    A reduction of 3 s is full when 2 s of work are done, at 3 s, and ends at 6; the gather after it at 7, and the last
    3 s of work, due at 4 s, wait 3 s for it. The last reduction of 3 s begins when all 6 s of work are done, at 10 s.
    """
    events = [
        (GATHER, 0, 1 / 3, 0), (GATHER, 0, 1 / 3, 1), (FOR_GATHER, 0, 0.0, 0),
        (FOR_GATHER, 1, 0.0, 1), (REDUCE, 1, 0.5, 0), (GATHER, 1, 1 / 3, 2),
        (FOR_GATHER, 2, 0.0, 2), (REDUCE, 3, 0.5, 1),
    ]  # fmt: skip
    done = [0.0, 1 / 3, 0.5, 1.0]
    assert stall_seconds(events, done, work=6.0, gathers=3.0, reductions=6.0) == pytest.approx(1 + 3 + 3)


def test_a_network_that_takes_no_time_is_not_waited_for():
    assert stalls(job(stage=3), 1.0, 0.0, 0.0) == (0.0, 0.0)


def test_a_slow_network_is_never_idle():
    """Where traffic takes a hundred times as long as work, the pass takes as long as the traffic and what cannot run
    beside it: all but the work after the last reduction."""
    for waits, traffic in zip(stalls(job(stage=3), 1.0, 100.0, 100.0), (100.0, 200.0), strict=True):
        assert traffic - 1.0 <= waits + 1e-9
        assert waits <= traffic


@pytest.mark.parametrize("strategy", [
    {"stage": 3}, {"stage": 3, "checkpointing": "full"}, {"stage": 3, "prefetch_bucket_size": 0},
    {"stage": 3, "grad_accum": 2}, {"stage": 3, "contiguous_gradients": False},
])  # fmt: skip
def test_gathers_are_the_ledger_s(strategy: dict[str, Any]):
    """As many calls in both passes as a micro-step's traffic has, whose reductions are as many as the buckets."""
    one = job(**strategy)
    found = order(one)
    calls = {entry.collective: entry.calls for entry in ledger(one).traffic if entry.when == "micro_step"}
    events = [*found.forward, *found.backward]
    assert sum(event[0] == GATHER for event in events) == calls["all_gather"]
    assert sum(event[0] == REDUCE for event in events) <= calls["reduce_scatter"]
    for passed in found:
        for kind in (GATHER, REDUCE):
            sizes = [event[2] for event in passed if event[0] == kind]
            assert not sizes or sum(sizes) == pytest.approx(1.0)
        assert all(one[1] <= other[1] for one, other in pairwise(passed))


def test_without_prefetch_backward_hides_nothing_of_its_gathers():
    """Each gather is issued when its module runs, behind the reduction of the bucket that just got full; in forward
    nothing is before it but gathers."""
    without, with_it = job(stage=3, prefetch_bucket_size=0), job(stage=3)
    assert stalls(without, 2.0, 0.3, 0.3)[1] > 0.3 > 5 * stalls(with_it, 2.0, 0.3, 0.3)[1]
    assert stalls(without, 1.0, 0.3, 0.0)[0] < 0.05


def test_a_bucket_for_the_whole_model_is_reduced_when_backward_is_over():
    one = job(stage=2, overlap_comm=True, reduce_bucket_size=10_000_000_000)
    assert [event[0] for event in order(one).backward] == [REDUCE]
    assert stalls(one, 5.0, 0.0, 0.7)[1] == pytest.approx(0.7)


def test_work_waits_for_the_bucket_before():
    """stage_1_and_2.py:average_tensor: when a bucket is full, backward waits for the reduction of the one before."""
    found = order(job(stage=2, overlap_comm=True)).backward
    assert [event[0] for event in found[:3]] == [REDUCE, REDUCE, FOR_REDUCTION]
    assert found[2][3] == 0


def test_the_tied_table_works_as_the_head():
    """GPT-2's table of 38.6M elements is 31 % of what tokens are multiplied with (124.3M): its backward comes first."""
    one = job("gpt2", stage=2, overlap_comm=True, reduce_bucket_size=1_000_000)
    assert backward_progress(one)[order(one).backward[0][1]] > 38.6 / 124.3
