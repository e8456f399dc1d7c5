"""Which pieces ZenFlow chooses of the flat groups, and what follows from that between steps (stages 1 and 2).

DeepSpeed 0.19.8 runtime/zenflow/zenflow_stage_1_and_2.py: update_selected_channels and
_process_selected_fp32_groups_grad. A matrix lies transposed in its flat group, so a column is `rows` neighbours there;
each rank chooses among the columns that lie whole in its piece. Vectors are chosen whole.

ZenFlow's overlap_step: the host's update in a process of its own, on memory that both share (stages 1 and 2).

DeepSpeed 0.19.8 runtime/zenflow/zenflow_utils.py: start_optimizer_process, zenflow_optimizer_process;
zenflow_stage_1_and_2.py: ZenFlowZeroOptimizerParallel. What is shared is page-locked no longer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from zeroplan.costs.allocations import Allocation
from zeroplan.costs.cache import cached
from zeroplan.costs.deepspeed.layout import flat_groups, layout_key
from zeroplan.costs.deepspeed.nvme_swap import HostAllocation
from zeroplan.costs.deepspeed.quantized_collectives import CollectiveCall
from zeroplan.errors import ContradictionError
from zeroplan.formulas import states, zenflow
from zeroplan.ledger import DTYPE_BYTES, Line, Rule, line
from zeroplan.specs.job import Job
from zeroplan.specs.model import ParameterSpec


class SelectedColumns(NamedTuple):
    """The columns selected in one rank's slice of a tensor."""

    owner: int
    columns: int
    """Whole columns in the piece; 0 for vectors."""
    picked: int
    """Columns picked among them."""
    elements: int
    """Picked, in all rows."""


def rows(tensor: ParameterSpec) -> int:
    """Elements of a column; 1 for vectors, which have none."""
    return tensor.shape[0] if len(tensor.shape) == 2 else 1


@cached(lambda strategy: (layout_key(strategy), strategy.selective))
def chosen(job: Job) -> dict[int, tuple[SelectedColumns, ...]]:
    """Tensor -> its pieces, from its start to its end. Raises `ContradictionError` where DeepSpeed stops."""
    flow, result = job.strategy.selective, {}
    ratio = flow.topk_ratio if flow else 0.0
    for layout in flat_groups(job):
        for index, pieces in layout.pieces.items():
            tensor = job.model.tensors[index]
            _check_shape(tensor)
            result[index] = tuple(_pieces(tensor, pieces, ratio))
    return result


def _check_shape(tensor: ParameterSpec) -> None:
    """Experts fused into one tensor have three dimensions; a matrix of one row is taken for a vector, and is none."""
    if len(tensor.shape) > 2 or (len(tensor.shape) == 2 and tensor.shape[0] == 1):
        raise ContradictionError(
            f"zero_optimization.zenflow: found {tensor.name} of shape {list(tensor.shape)}, expected vectors and "
            "matrices of several rows; DeepSpeed stops (runtime/zenflow/zenflow_stage_1_and_2.py:232), leave it out"
        )


def _pieces(tensor: ParameterSpec, pieces: list[tuple[int, int]], ratio: float) -> Iterator[SelectedColumns]:
    start, height = 0, rows(tensor)
    for owner, elements in pieces:
        if len(tensor.shape) == 1:
            yield SelectedColumns(owner, 0, 0, elements)
            continue
        first = 0 if not start else (start - 1) // height + 1
        columns = (start + elements) // height - first
        if columns < 0:
            raise ContradictionError(
                f"zero_optimization.zenflow: found {tensor.name} cut over the ranks into less than a column of "
                f"{height:,}; DeepSpeed stops (runtime/zenflow/zenflow_stage_1_and_2.py:230), write fewer GPUs"
            )
        picked = max(1, int(columns * ratio)) if columns else 0
        yield SelectedColumns(owner, columns, picked, picked * height)
        start += elements


def elements(job: Job) -> int:
    """Chosen in all tensors, the same on every rank."""
    return sum(piece.elements for pieces in chosen(job).values() for piece in pieces)


def indices(pieces: tuple[SelectedColumns, ...]) -> int:
    """Columns of a tensor as they are kept: together, and each piece's if there are several."""
    return sum(piece.picked for piece in pieces) * (1 if len(pieces) == 1 else 2)


def resident(job: Job) -> list[Line]:
    """On the GPU, between steps."""
    flow, dtype, w = job.strategy.selective, job.strategy.dtype, job.strategy.element_bytes
    if flow is None:
        return []
    result = [line("optimizer states", states.scalars, "float32", tensors=len(chosen(job)), w=4)]
    if not flow.offload:
        result.append(line("optimizer states", zenflow.moments, dtype, chosen=elements(job), w=w))
    kept = sum(indices(pieces) for pieces in chosen(job).values())
    return [*result, line("chosen columns", zenflow.columns, "int32", indices=kept)]


def on_host(job: Job) -> list[int]:
    """Elements of each moment that is kept on the host."""
    flow = job.strategy.selective
    if flow is None or not flow.offload:
        return []
    return [sum(piece.elements for piece in pieces) for pieces in chosen(job).values() for _moment in range(2)]


def sent(job: Job) -> list[CollectiveCall]:
    """In every micro-step the owner of each piece sends its chosen gradients, piece by piece."""
    if job.strategy.selective is None:
        return []
    return [
        CollectiveCall("broadcast", piece.elements, job.strategy.dtype, job.ranks)
        for pieces in chosen(job).values()
        for piece in pieces
    ]


def sent_to_choose(job: Job) -> list[CollectiveCall]:
    """And which columns they are, where every step begins with choosing them."""
    flow = job.strategy.selective
    if flow is None or not flow.chooses_in_every_step:
        return []
    return [
        CollectiveCall("broadcast", piece.picked, "int32", job.ranks)
        for index, pieces in chosen(job).items()
        if len(job.model.tensors[index].shape) > 1
        for piece in pieces
    ]


Crossing = tuple[str, str, str, Rule, str, dict[str, int]]
"""From, to, name, formula, dtype and symbols."""


def crossings(job: Job) -> Iterator[Crossing]:
    """What a step copies between GPU and host beyond what other offload does."""
    flow, strategy = job.strategy.selective, job.strategy
    if flow is None:
        return
    if flow.chooses_in_every_step:
        shares = sum(layout.partition for layout in flat_groups(job))
        yield "gpu", "host", "master weights", zenflow.master_from_gpu, strategy.master, {"moved": shares, "master": 4}
    if flow.offload:
        each, dtype, w = elements(job), strategy.dtype, strategy.element_bytes
        updates, aside = {"moved": flow.update_interval * each, "w": w}, {"moved": each, "w": w}
        for ends in (("host", "gpu"), ("gpu", "host")):
            yield *ends, "chosen moments", zenflow.moments_on_host, dtype, updates
            yield *ends, "chosen weights", zenflow.chosen_weights_moved, dtype, aside


def transposes(job: Job, index: int) -> bool:
    """Whether a tensor is copied to lie column by column: not where one dimension is 1."""
    shape = job.model.tensors[index].shape
    return job.strategy.selective is not None and len(shape) == 2 and min(shape) > 1


def transposed(job: Job, members: Iterable[int]) -> Allocation:
    """Those copies of a group's tensors."""
    elements = sum(job.model.tensors[index].elements for index in members if transposes(job, index))
    return zenflow.transposed_matrices, job.strategy.dtype, elements


CONTROL = 21_592
"""Bytes of the block through which the two processes talk (csrc/adam/cpu_adam_impl.cpp: ZenControl)."""


def shared(job: Job) -> Iterator[HostAllocation]:
    """One gradient is filled while the other is read, and each has its own states."""
    master = job.strategy.master
    shares = [DTYPE_BYTES[master] * layout.partition for layout in flat_groups(job)]
    yield HostAllocation("master weights", master, tuple(shares))
    yield HostAllocation("gradients for the optimizer", master, tuple(2 * share for share in shares))
    yield HostAllocation("updated weights", master, tuple(shares))
    yield HostAllocation("optimizer states", master, tuple(4 * share for share in shares))
    yield HostAllocation("control block", "uint8", (CONTROL,))
