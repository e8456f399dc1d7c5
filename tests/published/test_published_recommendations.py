"""Plans beside what others chose for the same request. The benchmark has the plans of all rows."""

from __future__ import annotations

import re

import pytest

from benchmarks import published_recommendations as benchmark
from benchmarks.published import autotuned, recommended
from benchmarks.published.autotuned import Tuned
from benchmarks.published.recommended import RESERVE, Beside
from zeroplan.search import Candidate, evaluate
from zeroplan.units import GiB

ROWS = {row.name: row for row in benchmark.asked()}


def llmf(*numbers: int) -> set[str]:
    return {f"llmf-{number:03}" for number in numbers}


UNFIT = llmf(42, 44, 56, 57, 58, *range(63, 73), 99, 101, *range(116, 130))
"""Published by mosaicml/llm-foundry, where they fit: its loss is fused and its norms run in 16 bit. As GPT-2 under
transformers and DeepSpeed they need more than the card has."""
INTO_THE_RESERVE = llmf(28, 86)
"""They fit, but leave less than the 5 % of the card free that a recommendation keeps."""
SLOWER = llmf(122)
"""Of those that do not fit, where everything that does fit takes longer: 65,536 tokens without checkpointing."""
QUICK = sorted(
    llmf(1, 2, 8, 9, 10, 12, 13, 15, 17, 18, 30, 31, 43, 46, 47, 48, 52, 53, 56, 61, 62, 63, 66, 68, 72, 75, 76)
    | llmf(94, 95, 96, 97, 100, 101, 102, 105, 106, 107, 112, 115, 116, 121, 126, 130, 133, 138)
    | {f"mlengT-{name}" for name in ("H200-8K", "H200-32K", "H200-64K", "z2-H200-8K", "torch-2.13.0-cu130")}
)
SAME, OTHER = {"autotune-gpt2", "autotune-gpt2-large"}, {"autotune-gpt2-medium": 7, "autotune-gpt2-xl": 2}


@pytest.fixture(scope="module")
def published() -> dict[str, Candidate]:
    return {name: evaluate(recommended.published_job(row), RESERVE) for name, row in ROWS.items()}


@pytest.fixture(scope="module")
def quick() -> dict[str, Beside]:
    return {one.row.name: one for one in recommended.compare(ROWS[name] for name in QUICK)}


@pytest.fixture(scope="module")
def tuned() -> dict[str, Tuned]:
    return {one.row.name: one for one in autotuned.compare()}


def test_every_row_of_both_sources_is_asked_and_lies_in_the_space(published: dict[str, Candidate]):
    assert sum(name.startswith("llmf-") for name in ROWS) == 138
    assert sum(name.startswith("mlengT-") for name in ROWS) == 13
    assert len(ROWS) == 138 + 13
    assert [name for name, one in published.items() if not recommended.is_inside(one.job)] == []


def test_a_job_is_what_its_row_says(published: dict[str, Candidate]):
    for name, row in ROWS.items():
        job = published[name].job
        strategy = job.strategy
        found = strategy.stage, strategy.micro_batch, strategy.grad_accum, job.ranks, job.workload.seq
        assert found == (row.stage, row.micro_batch, row.accumulation, row.gpus, row.seq), name
        assert (strategy.checkpointing != "none", strategy.offload_optimizer is not None) == (
            row.checkpointing == "full", row.offloads_optimizer
        ), name  # fmt: skip
        assert job.workload.global_batch == row.micro_batch * row.accumulation * row.gpus


def test_what_does_not_fit_is_known(published: dict[str, Candidate]):
    assert {name for name, one in published.items() if not one.fit.accepted} == UNFIT | INTO_THE_RESERVE
    for name in UNFIT | INTO_THE_RESERVE:
        one, card = published[name], published[name].job.cluster.capacity
        assert card is not None
        assert (one.fit.gpu.needed <= card) == (name in INTO_THE_RESERVE), name
        assert "mosaicml/llm-foundry" in ROWS[name].column("source")
        assert recommended.own_code_needs(ROWS[name]) * GiB < card, name


@pytest.mark.parametrize("name", QUICK)
def test_the_plan_fits_and_is_no_slower_than_what_was_published(quick: dict[str, Beside], name: str):
    one = quick[name]
    assert one.plan is not None
    assert one.plan.fit.accepted
    strategy, row = one.plan.strategy, ROWS[name]
    assert strategy.micro_batch * strategy.grad_accum == row.micro_batch * row.accumulation
    assert one.comparable == (name not in UNFIT | INTO_THE_RESERVE)
    if name not in SLOWER:
        assert one.plan.time.total <= one.published.time.total * (1 + benchmark.EQUAL)
    assert benchmark.kept(one)


def test_the_lines_by_which_a_plan_is_faster_add_up(quick: dict[str, Beside]):
    for one in quick.values():
        assert one.plan is not None
        for candidate in (one.published, one.plan):
            assert sum(recommended.parts(candidate.time).values()) == pytest.approx(candidate.time.total)
        left_out = recommended.SHOWN * 5 * one.published.time.total
        saved = one.published.time.total - one.plan.time.total
        assert sum(recommended.lines(one).values()) == pytest.approx(saved, abs=left_out)


def test_the_reason_says_what_is_otherwise_and_which_line_is_shorter(quick: dict[str, Beside]):
    one = quick["mlengT-H200-8K"]  # stage 3, full checkpointing, optimizer on the host of a node with room for all
    assert recommended.reason(one).startswith("ZeRO-1, no checkpointing, optimizer on the GPU: ")
    assert list(recommended.lines(one))[:2] == ["offload", "recomputation"]
    unfit = recommended.shortage(quick["llmf-063"])
    assert re.search(r"too many under transformers and DeepSpeed; llm-foundry's own code needs [0-9.]+ GiB$", unfit)


def test_rows_of_one_request_get_one_plan(quick: dict[str, Beside]):
    """The same job under other versions of torch."""
    assert quick["mlengT-H200-8K"].plan is quick["mlengT-torch-2.13.0-cu130"].plan


def test_a_plan_that_is_slower_or_does_not_fit_is_not_as_promised(quick: dict[str, Beside]):
    one = quick["mlengT-z2-H200-8K"]
    assert benchmark.kept(one)
    assert not benchmark.kept(one._replace(published=one.plan, plan=one.published))
    assert not benchmark.kept(one._replace(plan=None))


def test_what_the_autotuner_chose_is_planned_or_a_faster_one_with_a_reason(tuned: dict[str, Tuned]):
    assert set(tuned) == SAME | set(OTHER)
    for name, one in tuned.items():
        assert one.plan is not None
        assert one.published.fit.accepted  # it ran
        assert one.plan.fit.accepted
        assert one.plan.strategy.stage == one.row.stage == 1
        assert one.plan.strategy.micro_batch == (one.row.micro_batch if name in SAME else OTHER[name])
        assert one.plan.throughput >= one.published.throughput
        assert bool(one.row.column("otherwise")) == (name in OTHER)
        assert autotuned.kept(one)


def test_the_stage_that_was_fastest_in_the_autotuners_experiments_is_predicted_so(tuned: dict[str, Tuned]):
    for name, one in tuned.items():
        tried = re.findall(r"z([0-3]) at ([0-9]+): ([0-9.]+)", one.row.column("stages"))
        best = max(tried, key=lambda entry: float(entry[2]))
        assert (int(best[0]), int(best[1])) == (one.row.stage, one.row.micro_batch)
        for stage, size, _measured in tried:
            other = evaluate(one.published.job.at(stage=int(stage), micro_batch=int(size)), RESERVE)
            assert other.throughput <= one.published.throughput * (1 + benchmark.EQUAL), (name, stage)


def test_the_autotuners_other_rows_are_left_out_with_a_reason():
    asked, left_out = autotuned.rows()
    assert len(asked) == 4
    assert {row.column("model") for row in left_out} == {"DistilBERT", "BERT-base", "BERT-large", "DeBERTa"}
    assert all(row.column("left_out") for row in left_out)


def test_the_table_names_rows_that_are_not_as_promised(quick: dict[str, Beside]):
    one = quick["mlengT-z2-H200-8K"]
    assert "NOT AS PROMISED" not in "\n".join(benchmark.text(one))
    assert "NOT AS PROMISED" in "\n".join(benchmark.text(one._replace(published=one.plan, plan=one.published)))
    assert benchmark.text(one._replace(plan=None))[-1].endswith("nothing fits")
