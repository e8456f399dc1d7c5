"""A search that stops after its limit of work: its plan fits, and its bound holds for what it did not look at."""

from __future__ import annotations

import pytest

from tests.jobs import job
from tests.search.test_best_first import drawn
from tests.search.test_front import shown
from tests.search.test_least_memory import limited
from zeroplan.architectures.infer import infer
from zeroplan.costs.ledger import ledger
from zeroplan.costs.timing.step import step_time
from zeroplan.largest import largest
from zeroplan.ledger import total
from zeroplan.plan import plan
from zeroplan.report import sizing as report
from zeroplan.report import why as report_why
from zeroplan.report.recommend import searched
from zeroplan.search import evaluate, fastest, space
from zeroplan.search.front import front
from zeroplan.search.leanest_first import least_memory
from zeroplan.search.work import COMPLETING, TIMED, Allowance, Work
from zeroplan.sizing import fewest
from zeroplan.units import GiB
from zeroplan.why import Wish, why

LIMITS = (1, 3_000, 30_000)
"""Units: from one look on; searches of these spaces take up to a few hundred thousand."""
ENDLESS = float("inf")


def work_of(limit):
    """A search may do only so much, and as much as any to complete what waits."""
    work = Work(limit)
    work.first = 10**6
    return work


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("seed", range(0, 24, 3))
def test_the_plan_fits_and_the_bound_holds(seed, limit):
    """Against the search without a limit, which is held against enumerating the whole space."""
    space = drawn(seed)
    whole, stopped = (fastest(space, 0.05, work=work) for work in (Work(ENDLESS), work_of(limit)))
    assert whole.proven
    if stopped.proven:
        assert (stopped.best and stopped.best.strategy) == (whole.best and whole.best.strategy) or (
            stopped.best.time.total == pytest.approx(whole.best.time.total, rel=1e-11)
        )
        return
    assert whole.best is None or stopped.bound <= whole.best.time.total
    if stopped.best:
        assert stopped.best.fit.accepted
        assert stopped.best.time.total >= whole.best.time.total * (1 - 1e-11)
        one = stopped.best.job
        counted = ledger(one)
        assert total(counted.gpu.peak.lines) == total(stopped.best.ledger.gpu.peak.lines)
        assert step_time(one, counted).total == pytest.approx(stopped.best.time.total, rel=1e-12)


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("seed", range(0, 24, 5))
def test_the_fewest_bytes_are_bounded(seed, limit):
    space = limited(seed)
    whole, stopped = (least_memory(space, 0.05, work=work) for work in (Work(ENDLESS), work_of(limit)))
    assert whole.proven
    if stopped.proven:
        assert (stopped.best is None) == (whole.best is None)
    if stopped.best:
        assert stopped.best.fit.accepted
        assert stopped.best.fit.gpu.needed >= whole.best.fit.gpu.needed
        assert stopped.bound is not None or stopped.best.fit.gpu.needed == whole.best.fit.gpu.needed
    if stopped.bound is not None and whole.best:
        assert stopped.bound <= whole.best.fit.gpu.needed


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("seed", range(0, 40, 8))
def test_a_stopped_front_has_rows_that_fit_and_the_leanest_that_was_found(seed, limit):
    space = limited(seed)
    whole, stopped = (front(space, 0.05, 0.05, work=work) for work in (Work(ENDLESS), work_of(limit)))
    rows = shown(stopped.rows)
    assert whole.bound is None
    assert rows == sorted(rows)
    assert [needed for _seconds, needed in rows] == sorted({needed for _seconds, needed in rows}, reverse=True)
    assert all(row.fit.accepted for row in stopped.rows)
    if stopped.bound is None:
        assert rows == shown(whole.rows)


def test_one_request_has_one_plan():
    """Whatever was counted before in the same process."""
    one = job("qwen2.5-7b", gpus=16, seq=1024, stage=0, capacity=40 * GiB)
    runs = [fastest(space(one, {}, 4), 0.05, work=Work(50_000)) for _run in range(3)]
    assert runs[0].bound is not None
    assert len({(run.best.strategy, run.bound, run.timed, run.counted) for run in runs}) == 1


def test_a_stopped_search_completes_no_more_than_its_share():
    """And the look during which it stopped, of each of both."""
    one = job("qwen2.5-7b", gpus=16, seq=1024, stage=0, capacity=40 * GiB)
    work = Work(200_000)
    found = fastest(space(one, {}, 4), 0.05, work=work)
    assert found.best
    assert not found.proven
    look = 100 * TIMED.each_tensor * len(one.model.tensors)
    assert work.done <= 200_000 * (1 + COMPLETING) + look


def test_a_stopped_search_is_near_what_it_would_have_found():
    """1.3B at stage 3, one micro-batch of 1: 4,992 choices of numbers are timed that take alike, within a per cent."""
    one = job("opt-1.3b", gpus=8, seq=2048, stage=0, capacity=80 * GiB)
    settled = {"stage": 3, "micro_batch": 1, "grad_accum": 1}
    whole, stopped = (fastest(space(one, settled, 1, fine=False), 0.05, work=Work(limit)) for limit in (ENDLESS, 400_000))
    assert whole.proven
    assert stopped.bound is not None
    assert stopped.bound <= whole.best.time.total <= stopped.best.time.total <= 1.01 * whole.best.time.total


def test_nothing_is_said_not_to_fit_only_because_the_limit_was_reached():
    """gpt2 needs a few GiB of a card of 80; its leanest strategies are looked at whatever the limit."""
    one = job("gpt2", gpus=8, seq=256, stage=0, capacity=80 * GiB)
    for objective in ("fastest", "least-memory"):
        found = plan(one, {}, reserve=0.05, objective=objective, allowance=Allowance(1, 1))
        assert found.chosen
        assert found.chosen.fit.accepted
        assert evaluate(found.chosen.job, 0.05).fit.accepted
        assert not found.searched.proven


def test_work_is_counted_not_timed():
    """Ten looks at a model of so many tensors."""
    one = job("gpt2", gpus=8)
    work = Work(10**6)
    for _look in range(10):
        work.add(TIMED, one)
    assert work.done == 10 * (TIMED.once + TIMED.each_tensor * len(one.model.tensors))
    assert not work.is_over


def test_several_searches_share_an_allowance():
    allowance = Allowance(limit=5_000_000, each=2_000_000)
    limits = []
    for _search in range(3):
        work = allowance.work()
        limits.append(work.limit)
        work.done = work.limit
    assert limits == [2_000_000, 2_000_000, 1_000_000]
    assert allowance.left == 0


@pytest.mark.parametrize("objective", ["fastest", "least-memory"])
def test_the_screen_says_what_is_proven(objective):
    one = job("gpt2", gpus=8, seq=256, stage=0, capacity=80 * GiB)
    stopped, whole = (
        plan(one, {}, reserve=0.05, objective=objective, allowance=allowance) for allowance in (Allowance(1, 1), None)
    )
    best = stopped.chosen.fit.gpu.needed if objective == "least-memory" else stopped.chosen.time.total
    line = searched(stopped).plain
    assert "stopped after its limit of work: no other can " in line
    assert f"({1 - stopped.searched.bound / best:.1%} less)" in line
    assert "by proven bounds no other " in searched(whole).plain


def test_json_says_whether_a_plan_is_proven(zeroplan):
    request = ("recommend", "--model", "gpt2", "--gpus", "8", "--gpu-mem", "80", "--json")
    searched = zeroplan(*request).json["searched"]
    assert (searched["proven"], searched["bound_seconds"]) == (True, None)
    searched = zeroplan(*request, "--objective", "least-memory").json["searched"]
    assert (searched["proven"], searched["bound_bytes"]) == (True, None)


def test_the_fewest_gpus_are_not_proven_where_a_search_for_fewer_stopped():
    """Of 16 bytes a parameter 124M need 1.85 GiB, and DDP shards nothing: no number of cards of 1.5 GiB is enough."""
    settled = {"stage": 0, "offload_optimizer": None}

    def asked(gpus):
        return job("gpt2", gpus=gpus, seq=256, capacity=3 * GiB // 2), settled

    found, stopped = (fewest(asked, range(1, 9), 8, 0.05, allowance=one) for one in (Allowance(), Allowance(0, 0)))
    assert (found.gpus, found.proven, stopped.gpus, stopped.proven) == (None, True, None, False)
    assert "fewer may be enough" in report.fewest(stopped)
    assert "fewer may be enough" not in report.fewest(found)


def test_the_largest_model_is_not_proven_where_a_search_for_a_larger_one_stopped(monkeypatch):
    def sized(parameters):
        return job("gpt2", gpus=1, seq=256, capacity=8 * GiB)._replace(model=infer(parameters, str(parameters)))

    settled = {"stage": 0, "offload_optimizer": None, "checkpointing": "full", "micro_batch": 1}
    whole = largest(sized, settled, 0.05)
    monkeypatch.setattr("zeroplan.search.work.LEAST", 1)
    stopped = largest(sized, settled, 0.05, allowance=Allowance(1, 1))
    assert (whole.proven, stopped.proven) == (True, False)
    assert stopped.parameters <= whole.parameters


def test_an_alternative_is_not_proven_where_its_search_stopped():
    one = job("gpt2", gpus=8, seq=256, capacity=80 * GiB)
    best = plan(one, {}, reserve=0.05).chosen
    wish = Wish("zero-3", {"stage": 3}, lambda strategy: strategy.stage == 3)
    whole, stopped = (why(one, {}, wish, best, reserve=0.05, work=work) for work in (None, work_of(1)))
    assert (whole.proven, stopped.proven) == (True, False)
    assert "stopped at its limit of work" in report_why.answer(stopped).plain


def test_ways_out_are_not_complete_where_a_search_for_them_stopped(monkeypatch):
    monkeypatch.setattr("zeroplan.plan.WAYS_OUT", 1)
    found = plan(job("llama-3.1-8b", gpus=1, seq=4096, capacity=8 * GiB), {}, reserve=0.05)
    assert found.chosen is None
    assert not found.ways_out_complete
