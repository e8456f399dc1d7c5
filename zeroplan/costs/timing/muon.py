"""Seconds of Muon's Newton-Schulz products, on the rank that has most of them: the others wait for its updates.

DeepSpeed 0.19.8: at stage 0, and with an offloaded optimizer, every rank orthogonalizes every matrix
(runtime/zero/muon/muon_optimizer.py:step, _apply_muon_updates_cpu_offload); at stages 1 and 2 those that touch its
partition (stage_1_and_2.py:get_flat_partition, bf16_optimizer.py:_prepare_muon_updates); at stage 3 one of each round
(stage3.py:_muon_update_sub_group).
"""

from __future__ import annotations

from collections.abc import Iterable

from zeroplan.clock import OPTIMIZER, Term, term
from zeroplan.costs.deepspeed import muon_gather
from zeroplan.costs.deepspeed.layout import flat_groups
from zeroplan.costs.deepspeed.muon import matrices
from zeroplan.costs.deepspeed.muon_update import COMPUTED, ProductFlops, products
from zeroplan.costs.timing.rates import products_in, rates
from zeroplan.formulas import timing
from zeroplan.specs.job import Job

PRECISIONS = {"float16": "fp16", "bfloat16": "bf16"}


def muon_terms(job: Job) -> list[Term]:
    """Where there are matrices."""
    result = _slowest(job)
    rate, memory = products_in(job, PRECISIONS[COMPUTED[job.strategy.ns_method]]), rates(job).memory
    return [
        term(OPTIMIZER, "Newton-Schulz products", timing.products, rate, memory, flops=result.flops, rate=rate.value,
             touched=result.touched, bandwidth=memory.value)
    ]  # fmt: skip


def _slowest(job: Job) -> ProductFlops:
    strategy = job.strategy
    if strategy.stage == 0 or strategy.offload_optimizer:
        return _together(job, matrices(job))
    if strategy.stage == 3:
        rounds = (tensors for chunk in muon_gather.chunks(job) for tensors in muon_gather.rounds(job, chunk))
        return _sum(max(_of(job, index) for index in tensors) for tensors in rounds)
    shares: dict[int, set[int]] = {}
    for layout in flat_groups(job):
        for index, pieces in layout.pieces.items() if layout.muon else ():
            for owner, _elements in pieces:
                shares.setdefault(owner, set()).add(index)
    return max(_together(job, share) for share in shares.values())


def _of(job: Job, index: int) -> ProductFlops:
    return products(job.model.tensors[index].shape, job.strategy.ns_method)


def _together(job: Job, tensors: Iterable[int]) -> ProductFlops:
    return _sum(_of(job, index) for index in tensors)


def _sum(found: Iterable[ProductFlops]) -> ProductFlops:
    every = list(found)
    return ProductFlops(sum(one.flops for one in every), sum(one.touched for one in every))
