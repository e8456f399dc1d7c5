"""Which tensors Muon takes, and the groups that DeepSpeed makes of them (DeepSpeed 0.19.8).

deepspeed/__init__.py:set_optimizer_flags marks the matrices, runtime/engine.py:_muon_param_groups cuts each group in
two, and MuonWithAuxAdam sorts the matrices by their shapes. Adam, DeepSpeed's own or torch's, takes the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

from zeroplan.arithmetic import ceil_div
from zeroplan.costs.cache import cached
from zeroplan.errors import ContradictionError
from zeroplan.specs.job import Job

GATHER_BUFFERS = "gather buffers"
"""The line of buffers that its gathers keep: residents that come and go in the step."""
LEFT_TO_ADAM = ("embed", "lm_head")
"""Parts of names, in small letters, that leave a matrix to Adam."""


@cached(lambda strategy: strategy.optimizer == "muon")
def matrices(job: Job) -> frozenset[int]:
    """Tensors that Muon updates, stacks of matrices among them; none under another optimizer."""
    if job.strategy.optimizer != "muon":
        return frozenset()
    return frozenset(
        index
        for index, tensor in enumerate(job.model.tensors)
        if tensor.trainable and len(tensor.shape) >= 2 and not any(part in tensor.name.lower() for part in LEFT_TO_ADAM)
    )


def halves(job: Job, members: Sequence[int]) -> list[list[int]]:
    """A group's matrices, largest shape first, then the rest; under zero.Init all shapes are [0] and stay in order, but
    for those of adapters, which are added whole.
    """
    muons, tensors = matrices(job), job.model.tensors
    own = [index for index in members if index in muons]
    if not job.strategy.builds_partitioned:
        own.sort(key=lambda index: tensors[index].shape, reverse=True)
    elif added := frozenset(job.model.added):
        own.sort(key=lambda index: tensors[index].shape if index in added else (0,), reverse=True)
    return [half for half in (own, [index for index in members if index not in muons]) if half]


def gradient_dtype(job: Job) -> str:
    """What Muon reads: contiguous gradients come in the weights' dtype, also where they accumulated in fp32."""
    strategy = job.strategy
    return strategy.accumulation if strategy.stage == 1 and not strategy.contiguous else strategy.dtype


def adam_elements(job: Job) -> int:
    """Elements of the tensors that Adam updates, all but Muon's matrices."""
    muons = matrices(job)
    return sum(job.model.tensors[index].elements for index in job.model.trainable if index not in muons)


def check(job: Job) -> None:
    """Raises `ContradictionError` where DeepSpeed cannot run Muon on these matrices."""
    if reason := refusal(job):
        raise ContradictionError(f"optimizer: {reason}")


def refusal(job: Job) -> str:
    """What DeepSpeed stops at, and what to write instead; empty where it runs."""
    tensors = [job.model.tensors[index] for index in sorted(matrices(job))]
    stacked = [tensor.name for tensor in tensors if len(tensor.shape) != 2]
    if stacked and job.strategy.runs_bf16_optimizer:
        return (
            f"found Muon at stage 1 in bf16 with fp32 accumulation, and {stacked[0]} is a stack of matrices; DeepSpeed "
            'refuses that (runtime/bf16_optimizer.py:66), write "data_types": {"grad_accum_dtype": "bf16"}'
        )
    short = [tensor.name for tensor in tensors if _misses_ranks(tensor.elements, job.ranks)]
    if short and job.strategy.stage == 3 and not job.strategy.offload_optimizer:
        return (
            f"found Muon at stage 3 on {job.ranks} ranks, of which one gets nothing of {short[0]}; DeepSpeed stops "
            "there in its first step (runtime/zero/stage3.py:_muon_update_sub_group), "
            "write stage 2, or another number of GPUs"
        )
    return ""


def _misses_ranks(elements: int, ranks: int) -> bool:
    """Whether a rank's piece begins beyond the tensor's end, by less than a piece: DeepSpeed gets its size wrong."""
    piece = ceil_div(elements, ranks)
    return bool(elements % piece) and ceil_div(elements, piece) < ranks
