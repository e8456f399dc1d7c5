"""Seconds that copies over PCIe add, from the bytes that the ledger says one rank copies.

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
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from zeroplan.arithmetic import ceil_div
from zeroplan.clock import OFFLOAD, Term, term
from zeroplan.costs.timing.disk import showing
from zeroplan.costs.timing.rates import host_link
from zeroplan.formulas import beside, overlap
from zeroplan.ledger import Copied, Ledger
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
    buckets = ceil_div(job.model.parameters, max(1, job.strategy.reduce_bucket_size))
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
