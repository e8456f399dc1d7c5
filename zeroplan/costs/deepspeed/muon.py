"""Which tensors Muon takes, and the groups that DeepSpeed makes of them (DeepSpeed 0.19.8).

deepspeed/__init__.py:set_optimizer_flags marks the matrices, runtime/engine.py:_muon_param_groups cuts each group in
two, and MuonWithAuxAdam sorts the matrices by their shapes. Adam, DeepSpeed's own or torch's, takes the rest.
"""

from __future__ import annotations

from collections.abc import Sequence

from zeroplan.costs.deepspeed.once import once
from zeroplan.specs.job import Job

LEFT_TO_ADAM = ("embed", "lm_head")
"""Parts of names, in small letters, that leave a matrix to Adam."""


@once(lambda strategy: strategy.optimizer == "muon")
def matrices(job: Job) -> frozenset[int]:
    """Tensors that Muon updates, stacks of matrices among them; none under another optimizer."""
    if job.strategy.optimizer != "muon":
        return frozenset()
    return frozenset(
        index
        for index, tensor in enumerate(job.model.tensors)
        if len(tensor.shape) >= 2 and not any(part in tensor.name.lower() for part in LEFT_TO_ADAM)
    )


def halves(job: Job, members: Sequence[int]) -> list[list[int]]:
    """A group's matrices, largest shape first, then the rest; under zero.Init all shapes are [0] and stay in order."""
    muons = matrices(job)
    own = [index for index in members if index in muons]
    if not job.strategy.builds_partitioned:
        own.sort(key=lambda index: job.model.tensors[index].shape, reverse=True)
    return [half for half in (own, [index for index in members if index not in muons]) if half]


def by_adam(job: Job) -> int:
    """Elements of the tensors that Adam updates, all but Muon's matrices."""
    muons = matrices(job)
    return sum(tensor.elements for index, tensor in enumerate(job.model.tensors) if index not in muons)
