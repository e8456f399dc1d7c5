"""Replay of gradients at stages 1 and 2: what is alive from their birth in backward to the optimizer's step.

It follows runtime/zero/stage_1_and_2.py of DeepSpeed 0.19.8 event by event: process_gradients,
reduce_independent_p_g_buckets_and_remove_grads, reduce_ipg_grads, average_tensor, copy_grads_in_partition,
independent_gradient_partition_epilogue. What is held between steps is not in it.
"""

from __future__ import annotations

from zeroplan.costs.allocations import END, START, AllocationTracker
from zeroplan.costs.deepspeed.layout import (
    PartitionSlice,
    bucket_dtypes,
    communication_dtypes,
    flat_groups,
    fp32_groups,
    own_matrices,
    own_pieces,
    tensor_sizes,
)
from zeroplan.costs.deepspeed.reduction import reduction
from zeroplan.formulas import transient
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Strategy


def gradient_dtype(strategy: Strategy) -> str:
    """Stage 1 turns each gradient into the accumulation dtype as it is born; stage 2 only what it keeps."""
    return strategy.accumulation if strategy.stage == 1 else strategy.dtype


def users_of_the_buffer(job: Job) -> set[int]:
    """Groups of which the step reads gradients in the buffer of own gradients: Adam's, unless they lie in fp32.

    Where gradients accumulate apart (stage 1), Muon's stay as well until the step has read the updates.
    """
    groups = {piece.group for piece in own_pieces(job).values()} - fp32_groups(job)
    return groups if job.strategy.stage == 1 and job.strategy.keeps_fp32_partition else groups - set(own_matrices(job))


def buffer_elements(job: Job) -> int:
    """Elements of the buffers for gradients: one for each dtype that they travel in, two where it overlaps."""
    strategy = job.strategy
    if not strategy.contiguous:
        return 0
    return (2 if strategy.overlaps else 1) * strategy.reduce_bucket_size * len(bucket_dtypes(job))


class Stages12Backward:
    """Gradients of one rank; `tracker` counts them, `micro_step` runs a backward."""

    def __init__(self, job: Job) -> None:
        self.job, self.strategy = job, job.strategy
        self.sizes, self.groups = tensor_sizes(job), flat_groups(job)
        self.own, self.fp32, self.muon = own_pieces(job), fp32_groups(job), own_matrices(job)
        self.reached = frozenset(job.execution.gradients)
        """Tensors that get a gradient."""
        self.own_whole = sum(self.sizes[index] for index in self.own)
        self.reduction, self.tracker = reduction(job), AllocationTracker()
        self.dtype, self.gradient_dtype = job.strategy.dtype, gradient_dtype(job.strategy)
        self.converts = self.gradient_dtype != self.dtype
        self.contiguous, self.scatters = job.strategy.contiguous, self.reduction.scatters
        self.born: dict[int, str] = {}
        """Gradients in storage of their own, and its dtype."""
        self.sent = communication_dtypes(job)
        self.buckets: dict[str, list[int]] = {dtype: [] for dtype in bucket_dtypes(job)}
        """One for each dtype that gradients travel in."""
        self.filled = dict.fromkeys(self.buckets, 0)
        self.buffers = 0
        self.flushes = 0
        self.partitions: set[int] = set()
        """Groups whose gradient partition in the accumulation dtype is there."""
        self.kept = 0
        """Elements in the buffer of own whole tensors' gradients."""
        self.stored: set[int] = set()
        """Own tensors whose gradients are kept one by one, without contiguous_gradients."""
        self.waiting: list[int] = []
        """Gradients that the next reduction may free."""
        self.is_boundary = False

    def micro_step(self, *, boundary: bool) -> None:
        """One backward, and what DeepSpeed does at its end; `boundary` closes the accumulation."""
        strategy, self.is_boundary = self.strategy, boundary
        reduces = boundary or strategy.reduces_every_micro_step
        kept_before = self.kept
        self.kept = 0
        self.tracker.mark(START)
        for index in self.job.execution.gradients:
            self._ready(index)
            if strategy.stage == 2 or (strategy.overlaps and reduces):
                self._reduce(index, boundary)
            self.tracker.mark(~index)
        if reduces:
            if strategy.stage == 1 and not strategy.overlaps:
                for layout in self.groups:
                    for index in filter(self.reached.__contains__, layout.order):
                        self._reduce(index, boundary)
            for dtype in self.buckets:
                self._flush(dtype, boundary)
            self._end(kept_before, boundary)
        self.tracker.mark(END)

    def _ready(self, index: int) -> None:
        tracker, size, dtype = self.tracker, self.sizes[index], self.dtype
        accumulated = index in self.born
        if not accumulated or self.converts:
            tracker.allocate(transient.gradients, dtype, size)
        if self.contiguous and not self.buffers:
            self.buffers = buffer_elements(self.job)
            tracker.allocate(transient.reduce_bucket, self.gradient_dtype, self.buffers)
        if self.converts:
            tracker.allocate(transient.gradients, self.gradient_dtype, size)
            tracker.free(transient.gradients, dtype, size)
            if accumulated:
                tracker.free(transient.gradients, self.gradient_dtype, size)
        self.born[index] = self.gradient_dtype

    def drop(self, index: int) -> None:
        """The gradient's own storage goes; one that lies in the bucket's buffer has none."""
        if dtype := self.born.pop(index, None):
            self.tracker.free(transient.gradients, dtype, self.sizes[index])

    def _reduce(self, index: int, boundary: bool) -> None:
        size, limit, dtype = self.sizes[index], self.strategy.reduce_bucket_size, self.sent[index]
        if self.filled[dtype] + size > limit:
            self._flush(dtype, boundary)
        if self.contiguous and size <= limit:
            self._copied_to_bucket(index)
            self.drop(index)
        elif self.contiguous and self.strategy.offload_optimizer:
            self._cloned_for_the_host(index)
        self.buckets[dtype].append(index)
        self.filled[dtype] += size

    def _copied_to_bucket(self, index: int) -> None:
        """Into the buffer, as it is."""

    def _cloned_for_the_host(self, index: int) -> None:
        self.tracker.transient_peak((transient.clone_of_a_large_gradient, self.gradient_dtype, self.sizes[index]))

    def _flush(self, dtype: str, boundary: bool) -> None:
        """Reduce what the bucket holds, then keep or free each of its gradients."""
        if not self.buckets[dtype]:
            return
        bucket, self.buckets[dtype], self.filled[dtype] = self.buckets[dtype], [], 0
        self.flushes += 1
        self._average(bucket, dtype)
        for index in bucket:
            own = index in self.own
            if own and self.contiguous:
                self._keep(index, boundary)
            elif self.strategy.stage == 2 and not own:
                if self.strategy.overlaps and not self.contiguous:
                    self.waiting.append(index)
                else:
                    self.drop(index)

    def _average(self, bucket: list[int], dtype: str) -> None:
        """Copies made for the collectives of one bucket, one collective after the other."""
        strategy, made = self.strategy, self.gradient_dtype
        scatters, added = self.scatters, []
        if self.fp32:
            added = [self.own[index] for index in bucket if index in self.own and self.own[index].group in self.fp32]
        for piece in added if scatters else ():
            self._partition_of(piece.group)
        for collective in self.reduction.of(tuple(bucket)):
            if strategy.overlaps:
                self._free_waiting()
            joined = [(transient.joined_slices, made, collective.elements)] if collective.pieces > 1 else []
            sent = joined
            if dtype != made:
                sent = [(transient.copy_in_communication_dtype, dtype, collective.elements)]
                self.tracker.transient_peak(*joined, *sent)
            converts = strategy.keeps_fp32_partition and dtype != strategy.accumulation
            if scatters and converts:
                sent = [*sent, (transient.gradient_for_the_partition, strategy.accumulation, collective.kept)]
            self.tracker.transient_peak(*sent)
            if added and not scatters:  # all of it is reduced before the first is added
                with self.tracker.transient(*sent):
                    self._add_to_partitions(added, converts=converts)

    def _add_to_partitions(self, pieces: list[PartitionSlice], *, converts: bool) -> None:
        """A group's partition is made for its first piece."""
        for piece in pieces:
            self._partition_of(piece.group)
            if converts:
                self.tracker.transient_peak(
                    (transient.gradient_for_the_partition, self.strategy.accumulation, piece.elements)
                )

    def _partition_of(self, group: int) -> None:
        if group not in self.partitions:
            self.partitions.add(group)
            size = self.groups[group].partition
            self.tracker.allocate(transient.gradient_partition, self.strategy.accumulation, size)

    def _keep(self, index: int, boundary: bool) -> None:
        """A reduced gradient of a tensor that this rank owns a piece of."""
        strategy, piece = self.strategy, self.own[index].elements
        if strategy.offload_optimizer:
            if boundary:
                self._to_host(index, piece)
        elif self.own[index].group in self.fp32:
            if self.converts:
                self.drop(index)
        else:
            if not self.kept:
                self.tracker.allocate(transient.own_gradients, strategy.dtype, self.own_whole)
            self.kept = self.own_whole
            self.drop(index)

    def padding(self, group: int) -> int:
        """Elements of this rank's partition that no tensor reaches."""
        covered = sum(piece.elements for piece in self.own.values() if piece.group == group)
        return self.groups[group].partition - covered

    def padding_dtype(self, group: int) -> str:
        return self.strategy.accumulation if group in self.muon else self.strategy.dtype

    def _to_host(self, index: int, piece: int) -> None:
        self.tracker.transient_peak((transient.gradient_for_the_norm, "float64", piece))
        gradient_dtype_kept = "float32" if self.strategy.keeps_fp32_partition else self.gradient_dtype
        if gradient_dtype_kept != self.strategy.master:
            self.tracker.transient_peak((transient.gradient_for_the_host, self.strategy.master, piece))
        self.drop(index)

    def _free_waiting(self) -> None:
        for index in self.waiting:
            self.drop(index)
        self.waiting = []

    def _end(self, kept_before: int, boundary: bool) -> None:
        """The epilogue: accumulate into what earlier micro-steps kept, free buffers and gradients."""
        strategy, tracker = self.strategy, self.tracker
        self._free_waiting()
        if not strategy.offload_optimizer:
            self._fill_unreached()
        if boundary and not strategy.offload_optimizer:
            self._fill_partitions()
        if kept_before and self.kept:
            tracker.free(transient.own_gradients, strategy.dtype, self.kept)
            self.kept = kept_before
        if boundary and self.muon and self.kept and not users_of_the_buffer(self.job):
            tracker.free(transient.own_gradients, strategy.dtype, self.kept)  # nothing but the updates is read
            self.kept = 0
        if self.converts and len(self.own) < len(self.job.model.trainable):
            self._free_unused()
            return  # other ranks' gradients keep the buffers they lie in until the step
        self.free_buffers()
        for index in list(self.born):
            group = self.own[index].group if index in self.own else -1
            if self.converts and group in self.muon:
                continue  # it stays until the step has read the update
            self.drop(index)
            apart = strategy.contiguous or group in self.fp32 or (boundary and group in self.muon)
            if group >= 0 and not apart and index not in self.stored:
                self.stored.add(index)
                tracker.allocate(transient.own_gradients, strategy.dtype, self.sizes[index])

    def _free_unused(self) -> None:
        """The second buffer goes where one held all gradients."""
        if self.flushes < 2 and self.strategy.overlaps:
            self.tracker.free(transient.reduce_bucket, self.gradient_dtype, self.buffers // 2)
            self.buffers //= 2

    def free_buffers(self) -> None:
        self.tracker.free(transient.reduce_bucket, self.gradient_dtype, self.buffers)
        self.buffers = 0

    def _fill_unreached(self) -> None:
        """Zeros, whole tensors of them, where no gradient reaches an own tensor (get_all_grad_tensors)."""
        for index, piece in self.own.items():
            if index not in self.reached and index not in self.stored and piece.group not in self.fp32:
                self.stored.add(index)
                self.tracker.allocate(transient.own_gradients, self.strategy.dtype, self.sizes[index])

    def _fill_partitions(self) -> None:
        """Each group's partition is complete for the step: zeros where no gradient reaches, and Muon's updates."""
        for group in range(len(self.groups)):
            if group in self.fp32:
                self._partition_of(group)
                continue
            if group in self.muon:
                from zeroplan.costs.deepspeed.muon_update import orthogonalize

                orthogonalize(self.job, self.tracker, self.muon[group])
            self.tracker.allocate(transient.padding, self.padding_dtype(group), self.padding(group))
            for index in self.stored.intersection(self.muon.get(group, ())):
                self.stored.discard(index)
                self.tracker.free(transient.own_gradients, self.strategy.dtype, self.sizes[index])
