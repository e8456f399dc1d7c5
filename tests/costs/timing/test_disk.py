"""Files on NVMe: the disks' rate, the requests in flight, and what the update hides."""

from __future__ import annotations

from typing import Any

import pytest

from tests.costs.timing.test_step import job, timed
from zeroplan.clock import Term
from zeroplan.costs.deepspeed.nvme_swap import gradient_files, optimizer_files
from zeroplan.costs.timing.offload import READ_DELAY, moved
from zeroplan.formulas import timing
from zeroplan.specs.cluster import Cluster, SourcedValue
from zeroplan.specs.strategy import Offload

MIB = 2**20
P3600 = dict(zip((1, 2, 4, 8, 16, 32, 64, 128), (1563, 2477, 2948, 3012, 3004, 2983, 2987, 3015), strict=True))
"""MiB/s that fio reads of an Intel P3600 with libaio, O_DIRECT and blocks of 512 KiB, by depth (axboe/fio issue 406)."""
READ, WRITTEN = "read from NVMe", "written to NVMe"


def rate(value: float) -> SourcedValue:
    return SourcedValue(value, "test", "", "measured")


def terms(**section: Any) -> dict[str, Term]:
    """One GPU of Llama-3.1-8B, states on a disk of 5 and 4 GB/s, in sub-groups of 2e9 parameters."""
    aio = {name: section.pop(name) for name in [*section] if name.startswith("aio_")}
    cluster = Cluster(nvme_read=rate(5e9), nvme_write=rate(4e9), host_adam=rate(2e9))
    offload = Offload("nvme", buffer_count=16, **section)
    one = job(cluster=cluster, stage=3, offload_optimizer=offload, sub_group_size=2_000_000_000, **aio)
    return {entry.name: entry for entry in timed(one).terms}


def test_requests_in_flight_are_those_of_a_published_sweep():
    for depth, measured in P3600.items():
        one = job(cluster=Cluster(), aio_block_size=MIB // 2, aio_queue_depth=depth)
        seconds = moved(one, READ, MIB * measured, rate(MIB * max(P3600.values())), READ_DELAY).seconds
        assert seconds == pytest.approx(1, rel=0.2), depth
        assert depth == 2 or seconds == pytest.approx(1, rel=0.11), depth


def test_one_block_in_flight_by_hand():
    # a block of 128 KiB takes 120 us and 131,072 / 5e9 = 26.2 us: 146.2 us each, where the disk alone needs 26.2
    found, plain = terms(aio_queue_depth=1, aio_block_size=131_072)[READ], terms()[READ]
    assert found.rule is timing.requested
    assert found.seconds == pytest.approx(plain.symbols["moved_bytes"] / 131_072 * 146.2144e-6)
    assert plain.seconds == pytest.approx(plain.symbols["moved_bytes"] / 5e9)


def test_threads_and_deeper_queues_have_more_in_flight_until_the_disk_is_busy():
    def read(**aio: int) -> float:
        return terms(aio_block_size=131_072, **aio)[READ].seconds

    one = read(aio_queue_depth=1)
    assert read(aio_queue_depth=4) == pytest.approx(one / 4)
    assert read(aio_queue_depth=2, aio_intra_op_parallelism=2) == pytest.approx(one / 4, rel=1e-6)
    assert read(aio_queue_depth=64) == pytest.approx(terms()[READ].seconds)  # 6 in flight are enough


def test_without_overlap_events_a_thread_waits_for_the_whole_queue():
    # 8 MiB take 8,388,608 / 5e9 = 1.678 ms and 120 us of delay more; a second thread reads meanwhile
    found, plain = terms(aio_overlap_events=False)[READ], terms()[READ]
    assert found.seconds / plain.seconds == pytest.approx((1.6777216 + 0.120) / 1.6777216)
    threads = terms(aio_overlap_events=False, aio_intra_op_parallelism=2)[READ]
    assert threads.seconds == pytest.approx(plain.seconds, rel=1e-6)


def test_every_rank_of_a_node_has_requests_of_its_own():
    """64 KiB at a time from disks of 100 GB/s: 120 us of delay and 0.66 us of their own, for each rank."""
    for ranks in (1, 8):
        one = job(cluster=Cluster(gpus_per_node=ranks), aio_queue_depth=1, aio_block_size=65_536)
        found = moved(one, READ, 10**9, rate(100e9), READ_DELAY).seconds
        assert found == pytest.approx(10**9 / (ranks * 65_536) * 120.65536e-6)


def test_pipelines_hide_all_sub_groups_but_one_behind_the_update():
    """8,030,261,248 parameters in sub-groups of 2e9: four of 12 bytes of states a parameter, and 4 of gradients."""
    plain, piped = terms(), terms(pipeline_read=True, pipeline_write=True)
    update = 8_030_261_248 / 2e9
    assert plain["optimizer on the CPU"].seconds == pytest.approx(update)
    one = job(cluster=Cluster(), stage=3, offload_optimizer=Offload("nvme"), sub_group_size=2_000_000_000)
    states, gradients = sum(optimizer_files(one)), sum(gradient_files(one))
    assert states == pytest.approx(12 * 8_030_261_248, rel=1e-3)
    assert plain[READ].seconds == pytest.approx((states + gradients) / 5e9)
    assert plain[WRITTEN].seconds == pytest.approx((states + gradients) / 4e9)
    assert len(optimizer_files(one)) == 3 * 4
    read, written = (states + gradients) / 5e9, states / 4e9
    assert piped[f"{READ}, beside the update"].seconds == pytest.approx(
        read / 4 + (read - update) * 3 / 4
    )
    assert piped[f"{WRITTEN}, beside the update"].seconds == pytest.approx(
        written / 4 + (written - update) * 3 / 4
    )
    assert piped[WRITTEN].seconds == pytest.approx(gradients / 4e9)  # while backward runs
    assert READ not in piped


def test_a_single_sub_group_has_nothing_to_be_read_beside():
    def read(**pipelines: bool) -> list[float]:
        offload = Offload("nvme", buffer_count=16, **pipelines)
        one = job(cluster=Cluster(), stage=3, offload_optimizer=offload, sub_group_size=10**11)
        return [entry.seconds for entry in timed(one).terms if entry.name.startswith(READ)]

    assert read(pipeline_read=True) == pytest.approx(read())
