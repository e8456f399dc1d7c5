"""Seconds of what offload makes the host, PCIe and the disks do beside the GPU.

Seconds that copies over PCIe add, from the bytes that the ledger says one rank copies.

What DeepSpeed 0.19.8 hides, and what it waits for:

- Stage 3 reduces gradients on a stream of its own under overlap_comm, and there brings its partitions to page-locked
  memory and back without blocking (runtime/zero/stage3.py:partition_grads, _offload_grad_partition_at_boundary): they
  run beside backward, after the reductions. Into pageable memory such a copy blocks, and so does the one into the
  buffers of NVMe's swapper (swap_tensor/async_swapper.py); nothing is left to compute meanwhile. With these hidden an
  8B model's step of 8,192 tokens on 8 H200 is 3.00 s, and 3.15 with all in full: of seven published runs four
  take 2.99 to 3.01 s, and three, on torch 2.10 and 2.11, 3.50 to 3.71.
- Stages 1 and 2 ask for each gradient's overflow before it is copied (runtime/zero/stage_1_and_2.py:
  update_offload_overflow_tracker_for_param_grad), and wait for the copy before where gradients accumulate: all of
  it shows.
- Stage 3 fetches parameters for a gather on the gathers' stream, but the host waits for each
  (partition_parameters.py:_all_gather_dtype, a copy without non_blocking), and starts no kernels until it is there.
  They would hide as far as the host was ahead. The one published step that could tell does not bear it out: 8B on one
  H100 takes 26 s, predicted are 15.5 with these in full and 14.9 with these hidden. They are kept in full.
- What the update writes comes after it.

Seconds that files on NVMe take: at the disks' rate, or as DeepSpeed's asynchronous I/O requests them.

DeepSpeed 0.19.8 csrc/aio: each rank has a thread for each part of a file (intra_op_parallelism), which keeps up to
queue_depth blocks in flight, and takes one file after the other. Under overlap_events it requests the next block as one
comes; without, it waits for all it has requested. single_submit makes a call for each block and not one for all: among
the ten fastest reads of a published sweep are four with it and six without (DeepSpeed issue 998), so it has no figure.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from zeroplan.arithmetic import ceil_div
from zeroplan.clock import OFFLOAD, Term, term
from zeroplan.costs.deepspeed.nvme_swap import on_gpu, optimized
from zeroplan.costs.deepspeed.traffic import BACKWARD
from zeroplan.costs.timing.computing import Computing
from zeroplan.costs.timing.rates import NVME, host_adam, host_link
from zeroplan.costs.timing.traffic import busy
from zeroplan.formulas import beside, overlap
from zeroplan.ledger import Copied, Ledger
from zeroplan.specs.cluster import SourcedValue
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Strategy

PAGEABLE = 0.5
"""Share of the rate from pinned memory, by judgement."""
LEAST = 1_000_000
"""Bytes of copies that take time worth a line: norms and flags are fewer."""
WAYS = {("gpu", "host"): "copies to the host", ("host", "gpu"): "copies from the host"}
PARTITIONS, FOR_THE_OPTIMIZER = "gradient partitions", "gradients for the optimizer"
OF_PARAMETERS = ("parameter partitions", "secondary partitions", "persistent parameters")


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
    every = 0
    for entry in ledger.copies:
        if (entry.source, entry.target) in WAYS:
            kind = _kind(job, entry)
            sizes[kind] += entry.line.bytes
            every += entry.line.bytes if kind.overlaps and entry.line.name == PARTITIONS else 0
    result = {kind: _copy(job, kind, size) for kind, size in sizes.items() if kind.overlaps or size >= LEAST}
    hidden = sum(entry.seconds for kind, entry in result.items() if kind.overlaps)
    shows = _beside_backward(job, hidden, every / host_link(job.cluster).value, room)
    return [
        showing(entry, shows / hidden * entry.seconds) if kind.overlaps else entry for kind, entry in result.items()
    ]  # fmt: skip


def _beside_backward(job: Job, hidden: float, partitions: float, room: float) -> float:
    """What shows of all these copies, bucket by bucket; the optimizer's gradients come in the last micro-step alone."""
    micro_steps = job.strategy.micro_steps
    buckets = ceil_div(job.model.trainable_parameters, max(1, job.strategy.reduce_bucket_size))
    each, room = partitions / micro_steps, room / micro_steps
    last = hidden - (micro_steps - 1) * each
    return (micro_steps - 1) * overlap.piecewise(each, room, buckets) + overlap.piecewise(last, room, buckets)


def _kind(job: Job, entry: Copied) -> CopyKind:
    """Buffers of NVMe's swappers are locked, but CUDA does not know of it: to it they are pageable."""
    strategy, name = job.strategy, entry.line.name
    part = strategy.offload_param if name in OF_PARAMETERS else strategy.offload_optimizer
    swapped = part is not None and part.device == "nvme" and strategy.stage == 3
    through_swapper = swapped and name in (*OF_PARAMETERS, FOR_THE_OPTIMIZER)
    pinned = not through_swapper and (part is None or part.pin_memory)
    of_gradients = strategy.stage == 3 and name in (PARTITIONS, FOR_THE_OPTIMIZER)
    return CopyKind(WAYS[entry.source, entry.target], pinned, of_gradients and hides_gradients(strategy))


def hides_gradients(strategy: Strategy) -> bool:
    """Whether stage 3's copies of offloaded gradients run beside backward."""
    offload = strategy.offload_optimizer
    return offload is not None and offload.pin_memory and offload.device != "nvme" and strategy.overlaps


def _copy(job: Job, kind: CopyKind, size: int) -> Term:
    """Pageable memory is copied through a pinned buffer first."""
    speed = host_link(job.cluster)
    if not kind.pinned:
        source = f"{PAGEABLE} where memory is not pinned: {speed.source}"
        speed = speed._replace(value=PAGEABLE * speed.value, source=source)
    return term(OFFLOAD, kind.label, beside.copied, speed, moved_bytes=size, speed=speed.value)


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


ON_CPU = "optimizer on the CPU"


def host_terms(job: Job, ledger: Ledger, found: Computing) -> list[Term]:
    """PCIe, the disks, and the CPUs' optimizer; `found`: what the GPU computes in a micro-step.

    An update in a process of its own (ZenFlow's overlap_step) shows where it is longer than the next step computes.
    """
    if not ledger.copies:
        return []
    micro_steps, update = job.strategy.micro_steps, updating(job)
    room = max(0.0, micro_steps * found.backward.seconds - busy(job, ledger, BACKWARD))
    beside_gpu = [*pcie_terms(job, ledger, room), *disk_terms(job, ledger, sum(entry.seconds for entry in update))]
    if job.strategy.overlaps_update:
        work = micro_steps * (found.forward.seconds + found.backward.seconds)
        update = [showing(entry, max(0.0, entry.seconds - work)) for entry in update]
    return [*beside_gpu, *update]


def updating(job: Job) -> list[Term]:
    """The optimizer on the CPUs, as if nothing ran beside it."""
    if not job.strategy.offload_optimizer or not (updated := updated_by_cpus(job) * job.cluster.gpus_per_node):
        return []
    pace = host_adam(job.cluster)
    return [term(OFFLOAD, ON_CPU, beside.updated_on_host, pace, updated=updated, pace=pace.value)]


def updated_by_cpus(job: Job) -> int:
    """One rank's parameters that the CPUs update; stage 3 may leave whole sub-groups to the GPU (`ratio`)."""
    share = job.model.trainable_parameters // job.ranks
    if job.strategy.stage == 3:
        share -= sum(group.elements for group in on_gpu(job))
    return max(0, share)
