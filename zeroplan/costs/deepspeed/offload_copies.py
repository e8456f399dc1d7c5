"""What one rank copies between GPU, host and NVMe in an optimizer step, because of offload (DeepSpeed 0.19.8).

What it hides, and what it waits for:

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
- What the update writes comes after it. pipeline_read and pipeline_write overlap the optimizer's files with it; no
  published run tells how much of the other files' time does not show.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from zeroplan.arithmetic import ceil_div
from zeroplan.costs.deepspeed import host
from zeroplan.costs.deepspeed.fetch import micro_steps
from zeroplan.costs.deepspeed.host import accumulated
from zeroplan.costs.deepspeed.layout import flat_groups, own_pieces, rank_of, tensor_sizes
from zeroplan.costs.deepspeed.muon import matrices
from zeroplan.costs.deepspeed.nvme_swap import (
    gradient_files,
    on_gpu,
    optimized,
    optimizer_files,
    parameter_bytes,
    swapped_parameters,
)
from zeroplan.costs.deepspeed.partitions import (
    by_dtype,
    partition_dtypes,
    persistent_tensors,
    secondary_ranks,
    shard_sizes,
    sub_groups,
    trained_dtype,
    transient_secondary_sizes,
)
from zeroplan.costs.deepspeed.reduction import to_host
from zeroplan.costs.deepspeed.traffic import MICRO_STEP, gathers
from zeroplan.formulas import copied
from zeroplan.ledger import DTYPE_BYTES, Copied, Rule, line
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Offload, Strategy

GPU, HOST, NVME = "gpu", "host", "nvme"
PARTITIONS, FOR_THE_OPTIMIZER = "gradient partitions", "gradients for the optimizer"
OF_PARAMETERS = ("parameter partitions", "secondary partitions", "persistent parameters")
READ_AHEAD, WRITTEN_BEHIND = ("optimizer files", "gradient files"), ("optimizer files",)
"""Gradients are written while backward runs, and parameters by a swapper of their own."""


def copies(job: Job) -> tuple[Copied, ...]:
    """Everything but what is empty."""
    strategy = job.strategy
    if not (strategy.offload_optimizer or strategy.offload_param):
        result = _zeros(job) if strategy.stage in (1, 2) else iter(())
    else:
        result = _stage_3(job) if strategy.stage == 3 else _stages_1_2(job)
    return tuple(_as_it_runs(job, entry) for entry in chain(result, _checkpoints(job)) if entry.line.bytes)


def _as_it_runs(job: Job, entry: Copied) -> Copied:
    """With what runs meanwhile. Buffers of NVMe's swappers are locked, but CUDA does not know of it."""
    from zeroplan.costs.engine import BACKWARD

    strategy, name = job.strategy, entry.line.name
    if NVME in (entry.source, entry.target):
        pipelined = _pipelined(strategy.offload_optimizer, entry)
        return entry._replace(
            concurrent="update" * pipelined, pieces=sum(group.swapped for group in optimized(job)) if pipelined else 1
        )
    part = strategy.offload_param if name in OF_PARAMETERS else strategy.offload_optimizer
    swapped = part is not None and part.device == "nvme" and strategy.stage == 3
    through_swapper = swapped and name in (*OF_PARAMETERS, FOR_THE_OPTIMIZER)
    of_gradients = strategy.stage == 3 and name in (PARTITIONS, FOR_THE_OPTIMIZER)
    hidden = of_gradients and hides_gradients(strategy)
    return entry._replace(
        pinned=not through_swapper and (part is None or part.pin_memory), concurrent=BACKWARD * hidden,
        pieces=ceil_div(job.model.trainable_parameters, max(1, strategy.reduce_bucket_size)) if hidden else 1,
        every_micro_step=name == PARTITIONS,
    )  # fmt: skip


def _pipelined(offload: Offload | None, entry: Copied) -> bool:
    if offload is None:
        return False
    if entry.source == NVME:
        return offload.pipeline_read and entry.line.name in READ_AHEAD
    return offload.pipeline_write and entry.line.name in WRITTEN_BEHIND


def hides_gradients(strategy: Strategy) -> bool:
    """Whether stage 3's copies of offloaded gradients run beside backward."""
    offload = strategy.offload_optimizer
    return offload is not None and offload.pin_memory and offload.device != "nvme" and strategy.overlaps


def _copied(source: str, target: str, name: str, rule: Rule, dtype: str, **symbols: int) -> Copied:
    return Copied(source, target, line(name, rule, dtype, **symbols))


def _zeros(job: Job) -> Iterator[Copied]:
    """A rank whose partition of a group is padding alone has no gradient there, and takes a zero for its norm."""
    reached = {piece.group for piece in own_pieces(job).values()}
    empty = len(flat_groups(job)) - len(reached)
    if job.strategy.compute_grad_norm and not job.strategy.runs_bf16_optimizer:
        yield _copied(HOST, GPU, "norms", copied.zero_norms, "float32", tensors=empty, w=4)


def _checkpoints(job: Job) -> Iterator[Copied]:
    """Inputs of checkpointed layers (cpu_checkpointing)."""
    for source, target, size in zip((GPU, HOST), (HOST, GPU), host.input_copies(job), strict=True):
        yield _copied(source, target, "activation checkpoints", copied.checkpoints, job.strategy.dtype,
                      accum=job.strategy.micro_steps, size=size, tp=host.TENSOR_PARALLEL)  # fmt: skip


def _stages_1_2(job: Job) -> Iterator[Copied]:
    strategy, w = job.strategy, job.strategy.element_bytes
    master, used = strategy.master, set(job.execution.gradients)
    moved = sum(piece.elements for index, piece in own_pieces(job).items() if index in used)
    if added := accumulated(job):
        full = master == "float32"
        own = sum(
            tensor_sizes(job)[index] if full else piece.elements for index, piece in added.items() if index in used
        )
        symbols = {"accum": strategy.micro_steps, "own": own, "g": w}
        yield _copied(GPU, HOST, "accumulated gradients", copied.accumulated_to_host, strategy.dtype, **symbols)
        yield _copied(HOST, GPU, "accumulated gradients", copied.accumulated_from_host, strategy.dtype, **symbols)
    yield _copied(GPU, HOST, FOR_THE_OPTIMIZER, copied.gradients_for_the_optimizer, master,
                  moved=moved, master=DTYPE_BYTES[master])  # fmt: skip
    yield from _of_muon(job, master)
    yield from _unscaling(job, len(flat_groups(job)))
    shares = sum(layout.partition for layout in flat_groups(job))
    yield _copied(HOST, GPU, "updated parameters", copied.updated_parameters, strategy.dtype, moved=shares, w=w)
    if strategy.selective:
        from zeroplan.costs.deepspeed import zenflow

        for source, target, name, rule, dtype, symbols in zenflow.crossings(job):
            yield _copied(source, target, name, rule, dtype, **symbols)


def _stage_3(job: Job) -> Iterator[Copied]:
    if job.strategy.offload_optimizer:
        yield from _gradients(job)
    yield from _parameters(job)
    yield from _files(job)


def _gradients(job: Job) -> Iterator[Copied]:
    """Partitions lie on the host; those of sub-groups that the GPU updates go back to it in the end."""
    strategy, master = job.strategy, job.strategy.master
    kept = {"accum": strategy.grad_accum, "g": DTYPE_BYTES[strategy.accumulation]}
    reduced = to_host(job)
    every = sum(reduced.values())
    names = (PARTITIONS, strategy.accumulation)
    yield _copied(GPU, HOST, names[0], copied.partitions_to_host, names[1], moved=every, **kept)
    yield _copied(HOST, GPU, names[0], copied.partitions_from_host, names[1], moved=every, **kept)
    stays = {index for group in on_gpu(job) for index in group.members}
    moved = sum(elements for index, elements in reduced.items() if index not in stays)
    yield _copied(GPU, HOST, FOR_THE_OPTIMIZER, copied.gradients_for_the_optimizer, master,
                  moved=moved, master=DTYPE_BYTES[master])  # fmt: skip
    if trained_dtype(job) == "float16":
        yield _copied(HOST, GPU, "overflow flag", copied.overflow_flag, "uint8", tensors=1, w=1)
    yield _copied(GPU, HOST, "norms", copied.norms, "float32", tensors=len(sub_groups(job)), w=4)
    yield from _unscaling(job, len(sub_groups(job)) - len(on_gpu(job)))
    yield from _of_muon(job, strategy.communication)


def _unscaling(job: Job, updates: int) -> Iterator[Copied]:
    """Torch's GradScaler lives on the GPU, the gradients of so many updates on the host."""
    if job.strategy.autocast == "fp16":
        yield _copied(GPU, HOST, "loss scale and overflow flag", copied.unscaling, "float32", tensors=2 * updates, w=4)
        yield _copied(HOST, GPU, "overflow flag", copied.unscaled, "float32", tensors=updates, w=4)


def _of_muon(job: Job, momentum: str) -> Iterator[Copied]:
    """Gradients of matrices and their momentum come to the GPU; updates and momentum go back."""
    if not matrices(job):
        return
    from zeroplan.costs.deepspeed import muon_offload

    own, master = muon_offload.own_elements(job), job.strategy.master
    names = (("Muon's updates", copied.muon_updates, master), ("Muon's momentum", copied.muon_momentum, momentum))
    for name, rule, dtype in names:
        yield _copied(HOST, GPU, name, rule, dtype, moved=own, w=DTYPE_BYTES[dtype])
        yield _copied(GPU, HOST, name, rule, dtype, moved=own, w=DTYPE_BYTES[dtype])


def _parameters(job: Job) -> Iterator[Copied]:
    """Whichever side updates them, they end where they are kept; kept on the host, each gather fetches them."""
    strategy, trained = job.strategy, trained_dtype(job)
    here, w = sum(group.elements for group in on_gpu(job)), DTYPE_BYTES[trained]
    updated = copied.updated_parameters
    if not strategy.offload_param:
        yield _copied(HOST, GPU, "updated parameters", updated, trained, moved=sum(sub_groups(job)) - here, w=w)
        return
    yield _copied(GPU, HOST, "updated parameters", updated, trained, moved=here, w=w)
    when, issued = gathers(job)
    sizes, dtypes, shards = tensor_sizes(job), partition_dtypes(job), shard_sizes(job)
    times = strategy.grad_accum if when == MICRO_STEP else 1
    shares, quantized = dict[str, int](), 0
    for gather in issued:  # what is quantized by itself is converted first
        share = gather.elements // gather.ranks
        if strategy.quantized_weights and len(gather.tensors) == 1:
            quantized += share
        else:
            dtype = dtypes[gather.tensors[0]]
            shares[dtype] = shares.get(dtype, 0) + share
    for dtype, share in shares.items():
        yield _copied(HOST, GPU, "parameter partitions", copied.fetched_partitions, dtype,
                      accum=times, moved=share, w=DTYPE_BYTES[dtype])  # fmt: skip
    yield _copied(HOST, GPU, "parameter partitions", copied.fetched_to_quantize, "float16",
                  accum=times, moved=quantized, w=2)  # fmt: skip
    second = sum(
        max(0, min(share, size - rank_of(job) % secondary_ranks(job) * share))  # padding is not copied
        for share, size in zip(transient_secondary_sizes(job), sizes, strict=False)
    )
    yield _copied(GPU, HOST, "secondary partitions", copied.secondary_partitions, trained, moved=second, w=w)
    for dtype, persistent in by_dtype(job, {index: shards[index] for index in persistent_tensors(job)}).items():
        yield _copied(HOST, GPU, "persistent parameters", copied.persistent_partitions, dtype,
                      moved=persistent, w=DTYPE_BYTES[dtype])  # fmt: skip


def _files(job: Job) -> Iterator[Copied]:
    yield from files_of_the_update(job)
    yield from _parameter_files(job)


def files_of_the_update(job: Job) -> Iterator[Copied]:
    """Once a step, whatever passes gather."""
    master = job.strategy.master
    for name, sizes in (("optimizer files", optimizer_files(job)), ("gradient files", gradient_files(job))):
        yield _copied(NVME, HOST, name, copied.files_read, master, size=sum(sizes))
        yield _copied(HOST, NVME, name, copied.files_written, master, size=sum(sizes))
    written = parameter_bytes(job, set(swapped_parameters(job)) - job.model.frozen)
    yield _copied(HOST, NVME, "parameter files", copied.files_written, job.strategy.dtype, size=written)


def _parameter_files(job: Job) -> Iterator[Copied]:
    """Read for the gathers of each micro-step, and after the step for the persistent."""
    strategy, swapped = job.strategy, swapped_parameters(job)
    if not swapped:
        return
    read = micro_steps(job).steady.read
    size = strategy.grad_accum * parameter_bytes(job, read)
    size += parameter_bytes(job, set(swapped) & set(persistent_tensors(job)))
    yield _copied(NVME, HOST, "parameter files", copied.files_read, strategy.dtype, size=size)
