"""What an optimizer step updates, and where, for the clock (DeepSpeed 0.19.8); bytes: `stages_1_2`, `stage_3`.

Muon makes whole matrices orthogonal. At stage 0, and with an offloaded optimizer, every rank does so for every matrix
(runtime/zero/muon/muon_optimizer.py:step, _apply_muon_updates_cpu_offload); at stages 1 and 2 those that touch its
partition (stage_1_and_2.py:get_flat_partition, bf16_optimizer.py:_prepare_muon_updates); at stage 3 one of each round
(stage3.py:_muon_update_sub_group). The others wait for the rank that has most of them.
"""

from __future__ import annotations

from collections.abc import Iterable

from zeroplan.arithmetic import ceil_div
from zeroplan.costs.cache import cached, order_free_key
from zeroplan.costs.deepspeed.layout import flat_groups
from zeroplan.costs.deepspeed.muon import matrices
from zeroplan.costs.deepspeed.nvme_swap import on_gpu
from zeroplan.costs.deepspeed.optimizer_states import state_bytes, state_dtype
from zeroplan.costs.engine import MatrixProducts, OptimizerUpdate
from zeroplan.ledger import DTYPE_BYTES
from zeroplan.specs.job import Job


def update(job: Job) -> OptimizerUpdate:
    """One step of the optimizer: its states and weights are read and written, its gradient widened, weights written."""
    strategy, single, w = job.strategy, DTYPE_BYTES["float32"], job.strategy.element_bytes
    on_host = updated_by_cpus(job) if strategy.offload_optimizer else 0
    states = 2 * (DTYPE_BYTES[strategy.master] + state_bytes(job, state_dtype(job)))
    narrow = 2 * single + w if w < single else single  # the gradient widened, the weights written; or the gradient
    clipped = 2 * single if strategy.gradient_clipping else 0
    return OptimizerUpdate(
        on_gpu=job.model.trainable_parameters / strategy.shards(1, job.ranks) - on_host, moved=states + narrow,
        norm=w + clipped if strategy.compute_grad_norm or strategy.gradient_clipping else 0, on_host=on_host,
        products=newton_schulz(job) if matrices(job) else None, tensors=visited(job),
    )  # fmt: skip


def visited(job: Job) -> int:
    """Tensors of which one rank updates some: at stages 1 and 2, whose partitions are cut along the tensors, its share;
    elsewhere all. At stage 0 in fp32 there is no wrapper that goes through them, but the optimizer alone.
    """
    if job.strategy.stage == 0 and job.strategy.dtype == "float32":
        return 0
    trained = len(job.model.tensors) - len(job.model.frozen)
    return ceil_div(trained, job.ranks) if job.strategy.stage in (1, 2) else trained


def updated_by_cpus(job: Job) -> int:
    """One rank's parameters that the CPUs update; stage 3 may leave whole sub-groups to the GPU (`ratio`)."""
    share = job.model.trainable_parameters // job.ranks
    if job.strategy.stage == 3:
        share -= sum(group.elements for group in on_gpu(job))
    return max(0, share)


@cached(order_free_key)
def newton_schulz(job: Job) -> MatrixProducts:
    """Products of the rank that has most."""
    from zeroplan.costs.deepspeed.muon_update import COMPUTED

    flops, touched = _most_products(job)
    return MatrixProducts(COMPUTED[job.strategy.ns_method], flops, touched)


def _most_products(job: Job) -> tuple[int, int]:
    from zeroplan.costs.deepspeed import muon_gather

    strategy = job.strategy
    if strategy.stage == 0 or strategy.offload_optimizer:
        return _sum(_of(job, index) for index in matrices(job))
    if strategy.stage == 3:
        rounds = (tensors for chunk in muon_gather.chunks(job) for tensors in muon_gather.rounds(job, chunk))
        return _sum(max(_of(job, index) for index in tensors) for tensors in rounds)
    shares: dict[int, set[int]] = {}
    for layout in flat_groups(job):
        for index, pieces in layout.pieces.items() if layout.muon else ():
            for owner, _elements in pieces:
                shares.setdefault(owner, set()).add(index)
    return max(_sum(_of(job, index) for index in share) for share in shares.values())


def _of(job: Job, index: int) -> tuple[int, int]:
    from zeroplan.costs.deepspeed.muon_update import products

    return products(job.model.tensors[index].shape, job.strategy.ns_method)


def _sum(each: Iterable[tuple[int, int]]) -> tuple[int, int]:
    flops, touched = zip(*each, strict=True)
    return sum(flops), sum(touched)
