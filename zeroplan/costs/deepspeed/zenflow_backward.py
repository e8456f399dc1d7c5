"""Replay of ZenFlow's micro-steps and step: columns chosen, their gradients sent, their weights updated at once.

It follows DeepSpeed 0.19.8's runtime/zenflow/zenflow_stage_1_and_2.py (average_tensor, update_selected_channels,
_process_selected_fp32_groups_grad) and ops/adam/zenflow_torch_adam.py (group_step, temp_copy_param), on top of the
reduction that stages 1 and 2 share. Moments and columns are residents; only the run's first step makes them.
"""

from __future__ import annotations

from zeroplan.costs.allocations import Allocation, PassProfile
from zeroplan.costs.deepspeed.layout import rank_of
from zeroplan.costs.deepspeed.stages_1_2_backward import Stages12Backward
from zeroplan.costs.deepspeed.zenflow import SelectedColumns, chosen, indices, resident, rows, transposes
from zeroplan.costs.memory import FirstStep, PhaseMemory
from zeroplan.formulas import transient, zenflow
from zeroplan.ledger import total
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import ZenFlow


class ZenFlowBackward(Stages12Backward):
    """`first`: the run's first step, in which nothing is there yet; it always begins with choosing."""

    def __init__(self, job: Job, flow: ZenFlow, *, first: bool = False) -> None:
        super().__init__(job)
        self.flow, self.first, self.rank = flow, first, rank_of(job)
        self.chosen = chosen(job)
        self.group_of = {index: number for number, group in enumerate(self.groups) for index in group.order}
        self.chooses = False
        """Whether this micro-step does."""
        self.waits: dict[int, int] = {}
        """Tensors whose chosen gradients wait for the step, and their elements."""
        self.made: set[int] = set()
        """Tensors that have moments, in the first step."""

    def step(self, *, choosing: bool) -> None:
        """The micro-steps up to the host's update; then the chosen columns', group by group."""
        for micro in range(self.flow.update_interval):
            self.chooses = choosing and micro == 0
            self.micro_step(boundary=micro == self.flow.update_interval - 1)

    def update(self) -> None:
        """The optimizer's step, after the host's part of it, which lets fp32 gradients go."""
        for number in self.partitions:
            self.tracker.free(transient.gradient_partition, self.strategy.accumulation, self.groups[number].partition)
        self.partitions = set()
        for number in range(len(self.groups)):
            waiting = [index for index in self.groups[number].order if index in self.waits]
            if self.flow.offload:
                self._update_in_buckets(waiting)
                continue
            self._make_moments(waiting)
            self.tracker.transient_peak(self._weights(waiting), self._roots(waiting))
            self.tracker.free(zenflow.chosen_weights, self.strategy.dtype, self._elements(waiting))
            self._forget(waiting)

    # Gradients on their way to the bucket

    def _copied_to_bucket(self, index: int) -> None:
        if transposes(self.job, index):
            self.tracker.transient_peak((zenflow.transposed_matrices, self.strategy.dtype, self.sizes[index]))

    _cloned_for_the_host = _copied_to_bucket

    # One bucket, once it is reduced

    def _average(self, bucket: list[int], dtype: str) -> None:
        super()._average(bucket, dtype)
        if self.chooses:
            self._choose([index for index in bucket if len(self.job.model.tensors[index].shape) > 1])
        self._send(bucket)

    def _partition_of(self, group: int) -> None:
        """Not filled by the reduction: fp32 gradients are zeros, made when the host asks for them."""

    def _keep(self, index: int, boundary: bool) -> None:
        if boundary and self.strategy.keeps_fp32_partition:
            super()._partition_of(self.own[index].group)
        super()._keep(index, boundary)

    def _choose(self, matrices: list[int]) -> None:
        """The owner of each piece sums its gradient's columns; all keep what it finds."""
        tracker, dtype = self.tracker, self.strategy.dtype
        picked = [piece.picked for index in matrices for piece in self.chosen[index]]
        buffer: Allocation = (zenflow.chosen_columns, "int32", sum(picked))
        with tracker.transient(buffer):
            for index in matrices:
                for piece in self._own(index):
                    sums = piece.columns * rows(self.job.model.tensors[index]) + piece.columns
                    tracker.transient_peak((zenflow.columns_sums, dtype, sums))
            for index in matrices:
                pieces = self.chosen[index]
                largest = max(piece.picked for piece in pieces)
                sorting: Allocation = (zenflow.chosen_columns, "int64", largest)
                tracker.transient_peak((zenflow.chosen_columns, "int32", 2 * largest), sorting)
                if self.first:
                    tracker.allocate(zenflow.chosen_columns, "int32", indices(pieces))

    def _own(self, index: int) -> list[SelectedColumns]:
        return [piece for piece in self.chosen[index] if piece.owner == self.rank]

    def _send(self, bucket: list[int]) -> None:
        """Each owner's pieces through one buffer, then copied out of it; updated at once, or kept for the step."""
        tracker, dtype = self.tracker, self.strategy.dtype
        with tracker.transient((zenflow.gradient_buffer, dtype, self._elements(bucket))):
            self._fill(bucket)
            left = self._take(bucket)
            if self.is_boundary:
                self._set_aside(bucket)
            else:
                self._update_now(bucket)
            tracker.free(zenflow.chosen_gradients, dtype, left)

    def _fill(self, bucket: list[int]) -> None:
        """Own pieces are picked out of the gradient one after the other; the last goes when all are sent."""
        before = 0
        for index in bucket:
            for piece in self._own(index):
                picked = piece.elements if piece.columns else 0
                self.tracker.allocate(zenflow.chosen_gradients, self.strategy.dtype, picked)
                self.tracker.free(zenflow.chosen_gradients, self.strategy.dtype, before)
                before = picked
        self.tracker.free(zenflow.chosen_gradients, self.strategy.dtype, before)

    def _take(self, bucket: list[int]) -> int:
        """Gradients out of the buffer, pieces joined; what a name still holds of the last piece is given back."""
        tracker, dtype, selected = self.tracker, self.strategy.dtype, 0
        for index in bucket:
            joined = 0
            for number, piece in enumerate(self.chosen[index]):
                tracker.allocate(zenflow.chosen_gradients, dtype, piece.elements)
                tracker.free(zenflow.chosen_gradients, dtype, selected)
                selected = 0
                if number:
                    tracker.allocate(zenflow.chosen_gradients, dtype, joined + piece.elements)
                    tracker.free(zenflow.chosen_gradients, dtype, joined)
                    selected = piece.elements
                joined += piece.elements
        return selected

    def _set_aside(self, bucket: list[int]) -> None:
        """At the boundary the chosen weights are copied, before the host's update overwrites them: columns are picked
        out of their matrix, then copied. With the moments on the host, so are these.
        """
        tracker, before = self.tracker, 0
        for index in bucket:
            aside: Allocation = (zenflow.chosen_weights, self.strategy.dtype, self._elements([index]))
            with tracker.transient(self._weights([index])):
                tracker.allocate(*aside)
            if self.flow.offload:
                tracker.free(*aside[:2], before)
                before = aside[2]
            self.waits[index] = self._elements([index])
        tracker.free(zenflow.chosen_weights, self.strategy.dtype, before)

    def _update_now(self, bucket: list[int]) -> None:
        """Group by group; the names of one group's copies hold them until the next's replace them."""
        tracker, before = self.tracker, list[Allocation]()
        for number in dict.fromkeys(self.group_of[index] for index in bucket):
            members = [index for index in bucket if self.group_of[index] == number]
            fetched: list[Allocation] = [self._fetched(members)] if self.flow.offload else []
            for copy in fetched:
                tracker.allocate(*copy)
            for copy in before:
                tracker.free(*copy)
            self._make_moments(members)
            weights = self._weights(members)
            tracker.allocate(*weights)
            tracker.transient_peak(self._roots(members))
            gradients: Allocation = (zenflow.chosen_gradients, self.strategy.dtype, self._elements(members))
            before = [*fetched, weights, gradients]
        for copy in before:
            tracker.free(*copy)

    # The update itself

    def _update_in_buckets(self, waiting: list[int]) -> None:
        """With the moments on the host: tensors until allgather_bucket_size is reached, then those; what was set aside
        comes back one by one, and the last stays with its columns.
        """
        bucket: list[int] = []
        for index in waiting:
            bucket.append(index)
            if sum(self.sizes[i] for i in bucket) >= self.strategy.allgather_bucket_size or index == waiting[-1]:
                aside: Allocation = (zenflow.chosen_weights, self.strategy.dtype, self._elements([index]))
                fetched = (aside, self._weights([index]), self._fetched(bucket))
                self.tracker.transient_peak(*fetched, self._weights(bucket), self._roots(bucket))
                self._forget(bucket)
                bucket = []

    def _make_moments(self, members: list[int]) -> None:
        """The run's first update of a tensor makes its moments, and a step counter."""
        if not self.first:
            return
        new = [index for index in members if index not in self.made]
        self.made |= set(new)
        if not self.flow.offload:
            self.tracker.allocate(zenflow.chosen_moments, self.strategy.dtype, 2 * self._elements(new))
        self.tracker.allocate(zenflow.chosen_moments, "float32", len(new))

    def _fetched(self, members: list[int]) -> Allocation:
        return zenflow.chosen_moments, self.strategy.dtype, 2 * self._elements(members)

    def _weights(self, members: list[int]) -> Allocation:
        """Columns are copied out of their matrix; vectors are updated where they are."""
        matrices = [index for index in members if len(self.job.model.tensors[index].shape) > 1]
        return zenflow.chosen_weights, self.strategy.dtype, self._elements(matrices)

    def _roots(self, members: list[int]) -> Allocation:
        return zenflow.chosen_moments, self.strategy.dtype, self._elements(members)

    def _elements(self, members: list[int]) -> int:
        return sum(piece.elements for index in members for piece in self.chosen[index])

    def _forget(self, members: list[int]) -> None:
        for index in members:
            self.tracker.free(zenflow.chosen_gradients, self.strategy.dtype, self.waits.pop(index))


def phase_memory(job: Job, flow: ZenFlow) -> PhaseMemory:
    """A step that chooses no columns, unless every step does; one that does stands for the run's first.

    Where columns are chosen again later, that step has the moments of the one before beside it.
    """
    steady = ZenFlowBackward(job, flow)
    steady.step(choosing=flow.chooses_in_every_step)
    before, backward, together = steady.tracker.lines(), steady.tracker.peak_lines(), PassProfile(steady.tracker)
    steady.tracker.reset_peak()
    steady.update()
    first = ZenFlowBackward(job, flow, first=True)
    first.step(choosing=True)
    needed = [(first.tracker.peak_lines(), PassProfile(first.tracker))]
    if flow.select_interval and not flow.chooses_in_every_step:
        chosen_again = ZenFlowBackward(job, flow)
        chosen_again.step(choosing=True)
        needed.append(
            ((*chosen_again.tracker.peak_lines(), *resident(job)), PassProfile(chosen_again.tracker, resident(job)))
        )
    most, of_first = max(needed, key=lambda lines: total(lines[0]))
    more = total(most) > total(backward) + total(resident(job))  # which the first step has to make
    return PhaseMemory(
        (), (), backward, steady.tracker.peak_lines(), before_step=before,
        first_step=lambda: FirstStep(backward=most, backward_pass=of_first) if more else FirstStep(),
        backward_pass=together,
    )  # fmt: skip
