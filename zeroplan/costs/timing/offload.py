"""Seconds of what offload makes the host, PCIe and the disks do beside the GPU.

Seconds that copies over PCIe add, from the bytes that the ledger says one rank copies.

Seconds that files on NVMe take: at the disks' rate, or as DeepSpeed's asynchronous I/O requests them.

DeepSpeed 0.19.8 csrc/aio: each rank has a thread for each part of a file (intra_op_parallelism), which keeps up to
queue_depth blocks in flight, and takes one file after the other. Under overlap_events it requests the next block as one
comes; without, it waits for all it has requested. single_submit makes a call for each block and not one for all: among
the ten fastest reads of a published sweep are four with it and six without (DeepSpeed issue 998), so it has no figure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from zeroplan.clock import OFFLOAD, Term, term
from zeroplan.costs.engine import BACKWARD
from zeroplan.costs.timing.computing import Computing
from zeroplan.costs.timing.rates import NVME, host_adam, host_link
from zeroplan.costs.timing.traffic import busy
from zeroplan.formulas import timing
from zeroplan.ledger import Copied, Ledger
from zeroplan.specs.cluster import SourcedValue
from zeroplan.specs.job import Job

PAGEABLE = 0.5
"""Share of the rate from pinned memory, by judgement."""
LEAST = 1_000_000
"""Bytes of copies that take time worth a line: norms and flags are fewer."""
WAYS = {("gpu", "host"): "copies to the host", ("host", "gpu"): "copies from the host"}


class CopyKind(NamedTuple):
    """What copies have in common."""

    name: str
    pinned: bool
    overlaps: bool
    """Beside backward."""

    @property
    def label(self) -> str:
        return f"{self.name}{'' if self.pinned else ', pageable'}{', beside backward' if self.overlaps else ''}"


def pcie_terms(job: Job, ledger: Ledger, room: float) -> list[Term]:
    """Copies between GPU and host; `room`: seconds of backward in a step beside which no collective runs."""
    sizes: Counter[CopyKind] = Counter()
    hidden_copies = []
    for entry in ledger.copies:
        if (entry.source, entry.target) in WAYS:
            kind = CopyKind(WAYS[entry.source, entry.target], entry.pinned, entry.concurrent == BACKWARD)
            sizes[kind] += entry.line.bytes
            if kind.overlaps:
                hidden_copies.append(entry)
    result = {kind: _copy(job, kind, size) for kind, size in sizes.items() if kind.overlaps or size >= LEAST}
    hidden = sum(entry.seconds for kind, entry in result.items() if kind.overlaps)
    shows = _beside_backward(job, hidden_copies, hidden, room) if hidden else 0.0
    return [
        showing(entry, shows / hidden * entry.seconds) if kind.overlaps else entry for kind, entry in result.items()
    ]  # fmt: skip


def _beside_backward(job: Job, copies: Sequence[Copied], hidden: float, room: float) -> float:
    """What shows of all these copies, piece by piece; not all of them come in every micro-step."""
    micro_steps, pieces = job.strategy.micro_steps, copies[0].pieces
    partitions = sum(entry.line.bytes for entry in copies if entry.every_micro_step) / host_link(job.cluster).value
    each, room = partitions / micro_steps, room / micro_steps
    last = hidden - (micro_steps - 1) * each
    return (micro_steps - 1) * timing.piecewise(each, room, pieces) + timing.piecewise(last, room, pieces)


def _copy(job: Job, kind: CopyKind, size: int) -> Term:
    """Pageable memory is copied through a pinned buffer first."""
    speed = host_link(job.cluster)
    if not kind.pinned:
        source = f"{PAGEABLE} where memory is not pinned: {speed.source}"
        speed = speed._replace(value=PAGEABLE * speed.value, source=source)
    return term(OFFLOAD, kind.label, timing.copied, speed, moved_bytes=size, speed=speed.value)


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


def disk_terms(job: Job, ledger: Ledger, update: float) -> list[Term]:
    """All that a node reads and writes; `update`: seconds of the CPUs' optimizer.

    What overlaps with the update shows where it is longer, piece by piece; the first is read, and the last written,
    with nothing beside it. The rest is as if one waited for the other.
    """
    ranks, result = job.cluster.gpus_per_node, []
    for name, way, speed, delay in (
        ("read from NVMe", READ, job.cluster.nvme_read or NVME, READ_DELAY),
        ("written to NVMe", WRITTEN, job.cluster.nvme_write or NVME, WRITE_DELAY),
    ):
        files = [entry for entry in ledger.copies if (entry.source, entry.target) == way]
        if alone := sum(entry.line.bytes for entry in files if not entry.concurrent):
            result.append(moved(job, name, ranks * alone, speed, delay))
        if with_update := [entry for entry in files if entry.concurrent]:
            size = sum(entry.line.bytes for entry in with_update)
            entry = moved(job, f"{name}, beside the update", ranks * size, speed, delay)
            result.append(showing(entry, timing.piecewise(entry.seconds, update, with_update[0].pieces)))
    return result


def moved(job: Job, name: str, size: int, speed: SourcedValue, delay: SourcedValue) -> Term:
    """The longer of both: at the disks' rate, or as the requests in flight let them come.

    Between the two a disk is slower than either says: that P3600 by a fifth at two blocks in flight, by 2 % at four.
    """
    strategy = job.strategy
    queue = strategy.aio_queue_depth * strategy.aio_block_size
    in_flight = job.cluster.gpus_per_node * strategy.aio_intra_op_parallelism * queue
    awaited = strategy.aio_block_size if strategy.aio_overlap_events else queue
    by_disk = term(OFFLOAD, name, timing.copied, speed, moved_bytes=size, speed=speed.value)
    as_requested = term(
        OFFLOAD, name, timing.requested, speed, delay, moved_bytes=size, in_flight=in_flight, delay=delay.value,
        awaited=awaited, speed=speed.value,
    )  # fmt: skip
    return max(by_disk, as_requested, key=lambda entry: entry.seconds)


def showing(entry: Term, seconds: float) -> Term:
    """A term of which only so much is not hidden."""
    return entry._replace(seconds=seconds, times=seconds / entry.seconds if entry.seconds else 0.0)


ON_CPU = "optimizer on the CPU"


def host_terms(job: Job, ledger: Ledger, computed: Computing, on_host: int) -> list[Term]:
    """PCIe, the disks, and the CPUs' optimizer; `computed`: what the GPU computes in a micro-step; `on_host`: a rank's
    parameters that the CPUs update.

    An update in a process of its own (ZenFlow's overlap_step) shows where it is longer than the next step computes.
    """
    if not ledger.copies:
        return []
    micro_steps, update = job.strategy.micro_steps, updating(job, on_host)
    room = max(0.0, micro_steps * computed.backward.seconds - busy(job, ledger, BACKWARD))
    beside_gpu = [*pcie_terms(job, ledger, room), *disk_terms(job, ledger, sum(entry.seconds for entry in update))]
    if job.strategy.overlaps_update:
        work = micro_steps * (computed.forward.seconds + computed.backward.seconds)
        update = [showing(entry, max(0.0, entry.seconds - work)) for entry in update]
    return [*beside_gpu, *update]


def updating(job: Job, on_host: int) -> list[Term]:
    """The optimizer on the CPUs, as if nothing ran beside it."""
    if not (updated := on_host * job.cluster.gpus_per_node):
        return []
    pace = host_adam(job.cluster)
    return [term(OFFLOAD, ON_CPU, timing.updated_on_host, pace, updated=updated, pace=pace.value)]
