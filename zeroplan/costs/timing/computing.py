"""Seconds that a GPU computes for one micro-batch: forward, backward, and what checkpointing runs again."""

from __future__ import annotations

from collections.abc import Hashable
from typing import NamedTuple

from zeroplan.clock import COMPUTE, Term, term
from zeroplan.costs.cache import IdentityKey, cached_by
from zeroplan.costs.passes import timeline_request
from zeroplan.costs.timing.rates import Rates, multiplied_in, rates
from zeroplan.costs.timing.work import ForwardWork, work
from zeroplan.formulas import timing
from zeroplan.specs.account import BackwardShare, RecomputedShare
from zeroplan.specs.job import Job
from zeroplan.specs.model import MIN_IDENTICAL_BATCH, TimelineRequest
from zeroplan.specs.software import Software

BACKWARD_PRODUCTS = 2.0
"""Times forward's products: one for the gradient of each operand."""
BACKWARD_ATTENTION = 2.5
"""Five products of fused attention against two: the scores are computed again."""
BACKWARD_SCORES = 2.0
BACKWARD_ELEMENTS = 1.5
PRODUCTS, LOGITS, ATTENTION, SCORES = "matrix products", "logits", "attention", "attention's scores"
ADAPTERS, UNPACKED = "adapters' element-wise operators", "weights unpacked"
LOSS_FORWARD = 1 / 3
"""Share of the loss's bytes that forward moves."""


class ComputePass(NamedTuple):
    """Terms of one pass over one micro-batch."""

    terms: tuple[Term, ...]

    @property
    def seconds(self) -> float:
        return sum(entry.seconds for entry in self.terms)


class Computing(NamedTuple):
    forward: ComputePass
    backward: ComputePass
    """With what runs again."""


def _what_computes(job: Job, software: Software, *, traced: bool = True) -> tuple[Hashable, ...]:
    """All that `computing` reads; a search asks for the same under many buckets and thresholds."""
    card, code = IdentityKey(job.cluster.gpu), IdentityKey(software)
    return job.model, card, code, timeline_request(job), multiplied_in(job), traced


@cached_by(_what_computes, max_size=1024)
def computing(job: Job, software: Software, *, traced: bool = True) -> Computing:
    """Time the operators of one micro-batch; not `traced`: of what is recomputed only what needs no trace."""
    forward_work, at, share = work(job), rates(job), backward_share(job)
    layers = _layers(forward_work, at, software)
    forward = _pass("forward", forward_work, at, software, layers)
    backward = _pass("backward", forward_work, at, software, _layers(forward_work, at, software, share), share)
    recomputed = recomputed_shares(job) if traced else RecomputedShare(0.0, 0.0)
    return Computing(forward, ComputePass((*backward.terms, *_again(job, layers, recomputed))))


def backward_share(job: Job) -> BackwardShare:
    """What of backward runs: of a product the gradient of its input where something before it trains, and the gradient
    of its weight where that trains.
    """
    share = job.model.profile.backward_share(any_batch(job)) if job.model.frozen else None
    return share or BackwardShare(BACKWARD_PRODUCTS, BACKWARD_PRODUCTS, 1.0)


def any_batch(job: Job) -> TimelineRequest:
    """The request in a batch whose shares are those of all; in its own where images are recorded for some alone."""
    request = timeline_request(job)
    return request if job.model.images else request._replace(batch=MIN_IDENTICAL_BATCH)


def recomputed_shares(job: Job) -> RecomputedShare:
    """What checkpointing runs again: products and attention as the model's trace says, else whole layers.

    The shares are the same for any micro-batch. Stage 3's own linear function keeps its operands once it has run, so at
    least as much runs again with it as with torch's.
    """
    recomputed_layers = layers_again(job)
    if job.strategy.recomputing.attention:
        return RecomputedShare(0.0, 1.0)
    result = (
        job.model.profile.recomputed_share(any_batch(job))
        if recomputed_layers
        else None
    ) or RecomputedShare(recomputed_layers, recomputed_layers)
    return result._replace(attention=0.0) if job.strategy.recomputing.keeps_products else result


def layers_again(job: Job) -> float:
    """The share of layers that are checkpointed."""
    every, count = job.strategy.recomputing.every, job.model.shape.layers
    return -(-count // every) / count if every else 0.0


def _again(job: Job, layers: tuple[Term, ...], recomputed: RecomputedShare) -> list[Term]:
    """The share of the layers' forward terms that runs again in backward."""
    scores = layers_again(job) or recomputed.attention
    shares = {PRODUCTS: recomputed.products, ATTENTION: recomputed.attention, SCORES: scores}
    return [
        entry._replace(
            name=entry.name.replace("forward", "recomputation"), seconds=share * entry.seconds,
            times=share * entry.times,
        )
        for entry in layers
        for share in [shares.get(entry.name.partition(",")[0], layers_again(job))]
        if share
    ]  # fmt: skip


def _layers(
    forward_work: ForwardWork, at: Rates, software: Software, share: BackwardShare | None = None
) -> tuple[Term, ...]:  # fmt: skip
    """Terms of the layers: of forward, or of backward with so much of it."""
    way = "backward" if share else "forward"
    products = share.products if share else 1.0
    runs = share.layers if share else 1.0
    terms = [
        _products(f"{PRODUCTS}, {way}", at, products, forward_work.layers.flops, forward_work.layers.touched),
        term(COMPUTE, f"element-wise operators, {way}", timing.streamed, at.memory, software.passes,
             times=BACKWARD_ELEMENTS * runs if share else 1.0, touched=software.passes.value * forward_work.elements,
             bandwidth=at.memory.value),
    ]  # fmt: skip
    for name, touched in ((ADAPTERS, forward_work.adapters), (UNPACKED, forward_work.unpacked)):
        if touched:
            terms.append(
                term(COMPUTE, f"{name}, {way}", timing.streamed, at.memory, times=runs, touched=touched,
                     bandwidth=at.memory.value)
            )  # fmt: skip
    if forward_work.scores:
        factor, times = (BACKWARD_SCORES * runs, BACKWARD_PRODUCTS * runs) if share else (1.0, 1.0)
        terms += [
            _products(f"{ATTENTION}, {way}", at, times, forward_work.attention, 0.0),
            term(COMPUTE, f"{SCORES}, {way}", timing.streamed, at.memory, times=factor,
                 touched=forward_work.scores, bandwidth=at.memory.value),
        ]  # fmt: skip
    else:
        factor = BACKWARD_ATTENTION * runs if share else 1.0
        terms.append(
            term(COMPUTE, f"{ATTENTION}, {way}", timing.attention, at.attention, times=factor,
                 flops=forward_work.attention, rate=at.attention.value)
        )  # fmt: skip
    return tuple(terms)


def _products(name: str, at: Rates, times: float, flops: float, touched: float) -> Term:
    return term(COMPUTE, name, timing.products, at.products, at.memory, times=times, flops=flops,
                rate=at.products.value, touched=touched, bandwidth=at.memory.value)  # fmt: skip


def _pass(
    way: str, forward_work: ForwardWork, at: Rates, software: Software, layers: tuple[Term, ...],
    backward: BackwardShare | None = None,
) -> ComputePass:  # fmt: skip
    """The layers, the head and the loss; the pass is not shorter than starting its kernels takes."""
    products, share, starts = 1.0, LOSS_FORWARD, 1
    if backward:
        products, share, starts = backward.head, 1 - LOSS_FORWARD, 2
    head = _products(f"{LOGITS}, {way}", at, products, forward_work.head.flops, forward_work.head.touched)
    loss = term(
        COMPUTE, f"loss, {way}", timing.streamed, at.memory, software.logit_bytes,
        touched=share * software.logit_bytes.value * forward_work.logits, bandwidth=at.memory.value,
    )  # fmt: skip
    terms = (*layers, head, loss)
    symbols = {"kernels": float(starts * forward_work.kernels), "start": at.start.value}
    waiting = timing.launches(**symbols) - sum(entry.seconds for entry in terms)
    if waiting <= 0:
        return ComputePass(terms)
    idle = term(COMPUTE, f"waiting for kernels to start, {way}", timing.launches, at.start, **symbols)
    return ComputePass((*terms, idle._replace(seconds=waiting, times=waiting / idle.seconds)))
