"""What is promised of step times that others measured and published."""

from __future__ import annotations

import pytest

from benchmarks import published_throughput as benchmark
from benchmarks.published.rows import Row, read
from benchmarks.published.timing import held_out, measures
from benchmarks.published.timing.clusters import cluster_of
from benchmarks.published.timing.measures import ComparedStep


@pytest.fixture(scope="module")
def rows() -> list[Row]:
    return read(measures.THROUGHPUT)


@pytest.fixture(scope="module")
def compared(rows: list[Row]) -> tuple[ComparedStep, ...]:
    return measures.compare(row for row in rows if measures.is_full(row)).compared


def of(compared: tuple[ComparedStep, ...], kind: str) -> list[ComparedStep]:
    return [one for one in compared if measures.KINDS[kind](one.row)]


def test_the_core_rows(compared: tuple[ComparedStep, ...]):
    core = of(compared, "core")
    assert len(core) == 151
    assert [str(bound) for bound in benchmark.core_bounds(core) if not bound.kept] == []


@pytest.mark.parametrize(("kind", "count", "mean"), [
    ("fp8, data-parallel", 11, 0.10), ("offload", 21, 0.12), ("tensor, pipeline or context parallel", 54, 0.12),
])  # fmt: skip
def test_rows_in_fp8_with_offload_and_split_over_ranks(compared: tuple[ComparedStep, ...], kind: str, count: int, mean: float):
    found = measures.measure(one.error for one in of(compared, kind))
    assert found.rows == count
    assert found.mean <= mean


def test_nine_in_ten_are_inside_the_printed_interval(compared: tuple[ComparedStep, ...]):
    assert benchmark.intervals([one for one in compared if not measures.is_parallel(one.row)]).kept


def test_a_source_left_out_is_predicted_with_what_the_others_say(compared: tuple[ComparedStep, ...]):
    """Rows of three small sources: each fit is chosen from its grid, and each row gets one error."""
    few = [one for one in of(compared, "core") if one.row.family in ("sc21", "flagperfT", "swiftT")]
    found = held_out.held_out(few)
    assert len(found.errors) == len(few) == 6
    assert all(value in held_out.GRIDS[name] for best in found.chosen.values() for name, value in best.items())


def test_acceptance_rows(rows: list[Row]):
    found = benchmark.acceptance(rows)
    assert len(found) == 9
    assert [bound.text for bound in found if not bound.kept] == []


def test_an_offloaded_step_on_a_host_nobody_measured_is_inside_its_interval(compared: tuple[ComparedStep, ...]):
    """Hosts differ 25-fold; without a rate of the host's own the interval says so."""
    outside = []
    for one in of(compared, "offload"):
        job = one.timed.job._replace(cluster=one.timed.job.cluster._replace(host_adam=None))
        blind = one.timed._replace(job=job).time
        found = benchmark.interval(blind)
        if not found.low <= one.measured <= found.high:
            outside.append(one.row.name)
    assert len(outside) <= 2, outside  # one in ten


def test_stages_2_and_3_cross_where_the_published_runs_do(compared: tuple[ComparedStep, ...]):
    """175B on 384 and 768 A100: 144 and 88 TFLOP/s; half the micro-batch shows the network."""
    named = {one.row.name: one for one in compared}
    few, many = named["sc21-z3-175B-384"], named["sc21-z3-175B-768"]
    assert few.time.exposed_communication / few.time.total < many.time.exposed_communication / many.time.total
    assert many.time.total / few.time.total == pytest.approx(66.75 / 81.58, rel=0.05)


@pytest.mark.parametrize(
    ("columns", "name", "per_node", "network"),
    [
        ({"gpu_type": "H100-SXM-80GB", "gpus": "16"}, "h100-80gb", 8, 400e9),
        ({"gpu_type": "A100-SXM-80GB", "gpus": "128", "notes": "inter-node 400Gbps/node"}, "a100-80gb", 8, 50e9),
        ({"gpu_type": "V100-SXM-32GB", "gpus": "64", "notes": "4 GPUs/node Omni-Path"}, "v100-32gb", 4, 100e9),
        ({"gpu_type": "A100-SXM-80GB (Selene, 8x200Gb HDR)", "gpus": "384"}, "a100-80gb", 8, 200e9),
    ],
)
def test_the_cluster_is_what_the_columns_say(columns: dict[str, str], name: str, per_node: int, network: float):
    found = cluster_of(Row({"parallel": "", **columns}))
    assert found.gpu is not None
    assert found.inter_node is not None
    assert (found.gpu.name, found.gpus_per_node, found.inter_node.value) == (name, per_node, network)
