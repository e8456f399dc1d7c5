"""Seconds that files on NVMe take: at the disks' rate, or as DeepSpeed's asynchronous I/O requests them.

DeepSpeed 0.19.8 csrc/aio: each rank has a thread for each part of a file (intra_op_parallelism), which keeps up to
queue_depth blocks in flight, and takes one file after the other. Under overlap_events it requests the next block as one
comes; without, it waits for all it has requested. single_submit makes a call for each block and not one for all: among
the ten fastest reads of a published sweep are four with it and six without (DeepSpeed issue 998), so it has no figure.
"""

from __future__ import annotations

from zeroplan.clock import OFFLOAD, Term, term
from zeroplan.costs.deepspeed.nvme_swap import optimized
from zeroplan.costs.timing.rates import NVME
from zeroplan.formulas import beside, overlap
from zeroplan.ledger import Ledger
from zeroplan.specs.cluster import SourcedValue
from zeroplan.specs.job import Job

READ_DELAY = SourcedValue(
    120e-6, "the middle of four: 85 and 120 us in the data of Intel's P4500 (Lenovo 4XB7A08539) and P3700 (spdk/spdk "
    "issue 415); 124 and 154 us beyond a block's own time, one at a time, of a Phison E27T (0.49 GB/s at 64 KiB; "
    "0xBakeer/deepseek-v41-flash-spark issue 2) and an Intel P3600 (1,563 MiB/s at 512 KiB; axboe/fio issue 406)",
    "2026-11-22", "published",
)  # fmt: skip
WRITE_DELAY = SourcedValue(
    25e-6, "between 20 and 30 us in the same data of Intel's P4500 and P3700", "2026-11-22", "datasheet"
)
READ, WRITTEN = ("nvme", "host"), ("host", "nvme")
READ_AHEAD, WRITTEN_BEHIND = ("optimizer files", "gradient files"), ("optimizer files",)
"""Gradients are written while backward runs, and parameters by a swapper of their own."""


def disk_terms(job: Job, ledger: Ledger, update: float) -> list[Term]:
    """All that a node reads and writes; `update`: seconds of the CPUs' optimizer.

    What pipeline_read and pipeline_write overlap with the update shows where it is longer, sub-group by sub-group; the
    first is read, and the last written, with nothing beside it. The rest is as if one waited for the other: no
    published run tells how much of it does not.
    """
    offload, ranks = job.strategy.offload_optimizer, job.cluster.gpus_per_node
    read_ahead = READ_AHEAD if offload and offload.pipeline_read else ()
    written_behind = WRITTEN_BEHIND if offload and offload.pipeline_write else ()
    result = []
    for name, way, pipelined, speed, delay in (
        ("read from NVMe", READ, read_ahead, job.cluster.nvme_read or NVME, READ_DELAY),
        ("written to NVMe", WRITTEN, written_behind, job.cluster.nvme_write or NVME, WRITE_DELAY),
    ):
        files = [entry.line for entry in ledger.copies if (entry.source, entry.target) == way]
        if alone := sum(line.bytes for line in files if line.name not in pipelined):
            result.append(moved(job, name, ranks * alone, speed, delay))
        if beside_update := sum(line.bytes for line in files if line.name in pipelined):
            entry = moved(job, f"{name}, beside the update", ranks * beside_update, speed, delay)
            tiles = sum(group.swapped for group in optimized(job))
            result.append(showing(entry, overlap.piecewise(entry.seconds, update, tiles)))
    return result


def moved(job: Job, name: str, size: int, speed: SourcedValue, delay: SourcedValue) -> Term:
    """The longer of both: at the disks' rate, or as the requests in flight let them come.

    Between the two a disk is slower than either says: that P3600 by a fifth at two blocks in flight, by 2 % at four.
    """
    strategy = job.strategy
    queue = strategy.aio_queue_depth * strategy.aio_block_size
    in_flight = job.cluster.gpus_per_node * strategy.aio_intra_op_parallelism * queue
    awaited = strategy.aio_block_size if strategy.aio_overlap_events else queue
    by_disk = term(OFFLOAD, name, beside.copied, speed, moved_bytes=size, speed=speed.value)
    as_requested = term(
        OFFLOAD, name, beside.requested, speed, delay, moved_bytes=size, in_flight=in_flight, delay=delay.value,
        awaited=awaited, speed=speed.value,
    )  # fmt: skip
    return max(by_disk, as_requested, key=lambda entry: entry.seconds)


def showing(entry: Term, seconds: float) -> Term:
    """A term of which only so much is not hidden."""
    return entry._replace(seconds=seconds, times=seconds / entry.seconds if entry.seconds else 0.0)
