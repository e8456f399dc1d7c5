"""Replay of backward at stage 3: gathered parameters, gradients on their way to the bucket, and its reduction.

It follows runtime/zero/stage3.py of DeepSpeed 0.19.8 event by event: reduce_independent_p_g_buckets_and_remove_grads,
__add_grad_to_ipg_bucket, __avg_scatter_grads, __avg_scatter_contiguous_grads, partition_grads; and
runtime/comm/coalesced_collectives.py. Gradients of a leaf module are reduced when its backward is done.
"""

from __future__ import annotations

from collections.abc import Sequence

from zeroplan.arithmetic import ceil_div, round_up
from zeroplan.costs.allocations import END, START, Allocation, AllocationTracker, Variables
from zeroplan.costs.deepspeed.events import MicroStep
from zeroplan.costs.deepspeed.layout import bucket_dtypes, communication_dtypes, rank_of, tensor_sizes
from zeroplan.costs.deepspeed.nvme_swap import kept_on_gpu, swapped_tensors
from zeroplan.costs.deepspeed.partitions import gathered_dtype, own_shares, trained_dtype
from zeroplan.costs.deepspeed.quantized_collectives import quantizes_gradients, reduced, send_codes
from zeroplan.costs.deepspeed.reduction import all_reduced, gradients_by_hook, left_leaves, waiting_in_leaves
from zeroplan.formulas import transient_stage_3
from zeroplan.specs.job import Job

NORM_CHUNK = 250_000_000
"""Elements of which the norm is taken at once (runtime/zero/stage3.py:_constant_buffered_norm2)."""


def replay_backward(job: Job, *run: MicroStep, ends: bool = True) -> Stage3Backward:
    """One backward after the other; `ends`: the last is the optimizer step's last."""
    result = Stage3Backward(job)
    for number, micro_step in enumerate(run, 1):
        result.boundary = ends and number == len(run)
        result.run(micro_step)
    return result


class Stage3Backward:
    """One rank's backward; `tracker` counts what is there beside what is resident."""

    def __init__(self, job: Job) -> None:
        self.job, self.strategy, self.sizes = job, job.strategy, tensor_sizes(job)
        self.dtype, self.gathered_dtype = trained_dtype(job), gathered_dtype(job)
        self.accumulation = job.strategy.accumulation
        self.master, self.ranks, self.own = job.strategy.master, job.ranks, own_shares(job)
        self.tracker = AllocationTracker()
        self.dtypes = communication_dtypes(job)
        self.buckets: dict[str, list[int]] = {dtype: [] for dtype in bucket_dtypes(job)}
        """One for each dtype that gradients travel in."""
        self.filled = dict.fromkeys(self.buckets, 0)
        self.apart: set[int] = set()
        """Gradients in storage of their own: not ready for their bucket yet, or without room in it."""
        self.swapped, self.left_on_gpu = frozenset(swapped_tensors(job)), kept_on_gpu(job)
        self.gathered, self.secondary = 0, 0
        self.ready, self.left_leaves, self.in_leaves = gradients_by_hook(job), left_leaves(job), waiting_in_leaves(job)
        self.when = sorted({*self.ready, *self.left_leaves})
        """Hooks before which gradients are ready, and those that end a leaf module."""
        self.boundary = True
        """The last backward of an optimizer step: what is offloaded goes on to the optimizer."""
        factor, scales = self.strategy.gradient_predivide_factor, not self.strategy.prescale_gradients
        self.divides, self.multiplies = scales and factor != 1, scales and factor != job.ranks  # stage3.py:1923

    def run(self, micro_step: MicroStep) -> None:
        """One micro-step's backward: its gradients, and beside them what is gathered."""
        tracker, forward = self.tracker, micro_step.forward
        self._gather(forward.elements[-1], forward.secondary[-1])
        tracker.mark(START)
        yet = iter([*self.when, END + 1])
        due = next(yet)
        for at, ready, most, elements, secondary in micro_step.backward.rows:
            while due < at:
                self._meet(due)
                due = next(yet)
            if ready != self.gathered:
                self._gather(ready, self.secondary)
            if due == at:
                self._meet(due)
                due = next(yet)
            self._gather(elements, secondary, most)
            tracker.mark(at)
        while due <= END:
            self._meet(due)
            due = next(yet, START)
        for dtype in self.buckets:
            self._flush(dtype)
        tracker.mark(END)
        self._gather(0, 0)  # what is left is partitioned in the step

    def _meet(self, at: int) -> None:
        """Gradients that are ready before a hook, and those of the leaf that it ends."""
        for index in self.ready.get(at, ()):
            self._ready(index, waits=index in self.in_leaves and at != END)
            self.tracker.mark(~index)
        if leaf := self.left_leaves.get(at):
            self._leave(leaf)
            self.tracker.mark(at)

    def _gather(self, elements: int, secondary: int, most: int = 0) -> None:
        """Parameters gathered after an event, and both together at most inside it."""
        before = self.gathered + self.secondary
        kind = (transient_stage_3.gathered_parameters, self.gathered_dtype)
        if most > before:
            self.tracker.transient_peak((*kind, most - before))
        if elements != self.gathered:
            self.tracker.allocate(*kind, elements - self.gathered)
        if secondary != self.secondary:
            apart = secondary - self.secondary
            self.tracker.allocate(transient_stage_3.secondary_partitions, self.gathered_dtype, apart)
        self.gathered, self.secondary = elements, secondary

    def _ready(self, index: int, *, waits: bool) -> None:
        self.tracker.allocate(transient_stage_3.gradients, self.dtype, self.sizes[index])
        self.apart.add(index)
        if not waits:
            self._add(index)

    def _leave(self, tensors: Sequence[int]) -> None:
        """A leaf module's backward ends: its gradients go to the bucket, zeros for experts that no token chose."""
        for index in tensors:
            if index not in self.apart:
                self._ready(index, waits=True)
            self._add(index)

    def _add(self, index: int) -> None:
        size, limit, dtype = self.sizes[index], self.strategy.reduce_bucket_size, self.dtypes[index]
        if self.filled[dtype] and self.filled[dtype] + size > limit:
            self._flush(dtype)
        if self.strategy.contiguous_gradients and self.filled[dtype] + size <= limit:
            self._drop(index)
        self.buckets[dtype].append(index)
        self.filled[dtype] += size

    def _drop(self, index: int) -> None:
        if index in self.apart:
            self.apart.discard(index)
            self.tracker.free(transient_stage_3.gradients, self.dtype, self.sizes[index])

    def _flush(self, dtype: str) -> None:
        """Reduce the bucket and add this rank's partitions to its gradient partitions."""
        bucket, filled = self.buckets[dtype], self.filled[dtype]
        if not bucket:
            return
        if all_reduced(self.strategy, filled):
            self._all_reduce(bucket, dtype, filled)
        elif quantizes_gradients(self.job):
            self._quantize(sorted(bucket), dtype)
        else:
            self._reduce_scatter(bucket, dtype)
        for index in bucket:
            self._drop(index)
        self.buckets[dtype], self.filled[dtype] = [], 0

    def _all_reduce(self, bucket: list[int], sent: str, filled: int) -> None:
        """The buffer is averaged into a copy, converted, and partitions that need padding are copied once more."""
        kept = self.accumulation
        average: list[Allocation] = [(transient_stage_3.averaged_bucket, sent, filled)] if self.multiplies else []
        partitions = average
        if sent != kept:
            partitions = [(transient_stage_3.averaged_bucket, kept, filled)]
            self.tracker.transient_peak(*average, *partitions)
        padded = sum(ceil_div(self.sizes[index], self.ranks) for index in bucket if self._short(index))
        with self.tracker.transient(*partitions, (transient_stage_3.padded_partitions, kept, padded)):
            self._partition(bucket, pads=True)

    def _reduce_scatter(self, bucket: list[int], sent: str) -> None:
        """The partitions of each rank are laid side by side; one tensor that divides evenly is used as it is."""
        kept, ranks = self.accumulation, self.ranks
        bucket.sort()
        sizes = [self.sizes[index] for index in bucket]
        padded = sum([round_up(size, ranks) for size in sizes])
        converted = sum(self.sizes[index] for index in self.apart & set(bucket)) if sent != self.dtype else 0
        copies: list[Allocation] = [(transient_stage_3.copies_in_communication_dtype, sent, converted)]
        shares = sum(ceil_div(size, ranks) for size in sizes)
        if self.divides:
            copies.append((transient_stage_3.divided_gradients, sent, sum(sizes)))
            self.tracker.transient_peak(*copies)
            del copies[0]
        if len(sizes) > 1 or sizes[0] % ranks:
            copies.append((transient_stage_3.interleaved_bucket, sent, padded))
            self.tracker.transient_peak(*copies, (transient_stage_3.padding, sent, padded - sum(sizes)))
        self.tracker.transient_peak(*copies)
        if self.divides and self.multiplies:
            multiplied: Allocation = (transient_stage_3.multiplied_partitions, sent, shares)
            self.tracker.transient_peak(*copies, multiplied)
            copies = [copies[0], multiplied]
        if sent != kept:
            converted_partitions: Allocation = (transient_stage_3.converted_partitions, kept, shares)
            self.tracker.transient_peak(*copies, converted_partitions)
            copies = [converted_partitions]
        if not self.strategy.offload_optimizer:  # added to what is held
            self.tracker.transient_peak(*copies)
            return
        with self.tracker.transient(copies[-1]):
            self._partition(bucket, pads=False)

    def _quantize(self, bucket: list[int], sent: str) -> None:
        """Tensor by tensor: 4-bit codes out and in, or the tensor padded, then this rank's partition."""
        kept, ranks = self.accumulation, self.ranks
        converted = sum(self.sizes[index] for index in self.apart & set(bucket)) if sent != self.dtype else 0
        made: list[Allocation] = [(transient_stage_3.copies_in_communication_dtype, sent, converted)]
        self.tracker.allocate(*made[0])
        variables = Variables(self.tracker)
        for index in bucket:
            size, parts = self.sizes[index], list(reduced(self.job, index))
            if len(parts) > 1:
                send_codes(variables, parts)
                partition: Allocation = (transient_stage_3.quantized_partitions, "float16", size // ranks)
                self.tracker.transient_peak(partition, partition)  # the nodes' are added one to the other
            else:
                padded = round_up(size, ranks)
                partition = (transient_stage_3.interleaved_bucket, sent, padded if padded > size else 0)
                self.tracker.transient_peak(partition, (transient_stage_3.padding, sent, padded - size))
            self.tracker.allocate(*partition)
            made.append(partition)
        variables.leave()
        returned = made[1:]
        if sent != kept:
            shares = sum(ceil_div(self.sizes[index], ranks) for index in bucket)
            returned = [(transient_stage_3.converted_partitions, kept, shares)]
            self.tracker.allocate(*returned[0])
        for copy in made[: len(made) if sent != kept else 1]:
            self.tracker.free(*copy)
        self._partition(bucket, pads=False)
        for copy in returned:
            self.tracker.free(*copy)

    def _short(self, index: int) -> bool:
        """Whether the rank's partition of a tensor reaches beyond its end."""
        share = ceil_div(self.sizes[index], self.ranks)
        return (rank_of(self.job) + 1) * share > self.sizes[index]

    def _partition(self, bucket: list[int], *, pads: bool) -> None:
        """Offloaded, each partition comes back from the host to be added to, and at the end is normed and sent on.

        One that reaches beyond its tensor's end was padded by an all-reduce's path, and is shorter after a scatter.
        """
        strategy = self.strategy
        if not strategy.offload_optimizer:
            return
        written: list[Allocation] = []
        shares = self.own.padded if pads else self.own.cut
        for index in bucket:
            share = shares[index]
            if not share:
                continue  # this rank's partition of it is padding alone
            back: Allocation = (transient_stage_3.partition_from_host, self.accumulation, share)
            if not self.boundary:
                self.tracker.transient_peak(back)
                self._drop(index)
                continue
            norm = transient_stage_3.gradient_for_the_norm, "float64", min(share, NORM_CHUNK)
            self.tracker.transient_peak(back, norm)
            if index in self.swapped:
                copy: Allocation = (transient_stage_3.gradients_for_swapping, self.master, share)
                with self.tracker.transient(back):
                    self.tracker.allocate(*copy)
                written += [copy] if index not in self.left_on_gpu else []
            elif self.accumulation != self.master:
                self.tracker.transient_peak(back, (transient_stage_3.partition_for_host, self.master, share))
            self.tracker.allocate(transient_stage_3.norms, "float64", 1)
            self._drop(index)
        for copy in written:
            self.tracker.free(*copy)
