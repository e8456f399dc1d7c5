"""The ZeRO paper's accounting: model states in closed form, the volume of section 7, and activations as two more papers
count them.
"""

from __future__ import annotations

from zeroplan.arithmetic import ceil_div
from zeroplan.formulas import korthikanti, states, volume, zero_infinity
from zeroplan.ledger import DTYPE_BYTES, PHASES, Ledger, Line, Moment, Rule, Tier, Transfer, line
from zeroplan.specs.job import Job
from zeroplan.specs.optimizer import paper_state_bytes

ONE_BY_ONE = 1
"""Layers from one checkpoint to the next, as transformers checkpoints."""


def model_states(job: Job) -> tuple[Line, Line, Line]:
    """Parameters, gradients and optimizer states on one GPU: 16Ψ in all with Adam in 16 bit at stage 0, where all
    parameters train.
    """
    psi, w, strategy = job.model.trainable_parameters, job.strategy.element_bytes, job.strategy
    k = paper_state_bytes(strategy.optimizer, strategy.precision)
    return (
        line("parameters", states.parameters, psi=held_elements(job), w=w, n_d=strategy.shards(3, job.ranks)),
        line("gradients", states.gradients, psi=psi, g=w, n_d=strategy.shards(2, job.ranks)),
        line("optimizer states", states.optimizer_states, psi=psi, k=k, n_d=strategy.shards(1, job.ranks)),
    )


def held_elements(job: Job) -> int:
    """Parameters, as elements of the training precision: packed bits may lie in others, which fill more or fewer."""
    apart = [tensor for tensor in job.model.packed if tensor.dtype]
    held = sum(tensor.elements * DTYPE_BYTES[tensor.dtype] for tensor in apart)
    return job.model.parameters - sum(each.elements for each in apart) + ceil_div(held, job.strategy.element_bytes)


def traffic(job: Job) -> tuple[Transfer, ...]:
    """2Ψ elements a step up to stage 2, 3Ψ at stage 3 (section 7); gathers come with every micro-step."""
    strategy, gathers = job.strategy, job.strategy.stage == 3  # what does not change is whole elsewhere
    psi = job.model.trainable_parameters
    reduced = {"psi": psi, "g": strategy.element_bytes}
    gathered = {"psi": held_elements(job) if gathers else psi, "w": strategy.element_bytes}

    def transfer(when: str, collective: str, rule: Rule, symbols: dict[str, int], calls: int = 1) -> Transfer:
        size = calls * rule(**symbols)
        return Transfer(when, collective, strategy.dtype, calls, size, job.ranks, "dp", rule, symbols)

    if job.ranks == 1:
        return ()
    if strategy.stage == 0:
        return (transfer("step", "all_reduce", volume.paper_reduce, reduced),)
    if strategy.stage < 3:
        return (
            transfer("step", "reduce_scatter", volume.paper_reduce, reduced),
            transfer("step", "all_gather", volume.paper_gather, gathered),
        )
    return (
        transfer("micro_step", "all_gather", volume.paper_gather, gathered, calls=2),
        transfer("micro_step", "reduce_scatter", volume.paper_reduce, reduced),
    )


def of_a_layer(job: Job) -> Line:
    """Korthikanti's row of Table 2 for this job: on one GPU, with its checkpointing."""
    sizes = {"b": job.strategy.micro_batch, "s": job.workload.seq, "h": job.model.shape.hidden}
    name, heads = "a layer's activations", job.model.shape.heads
    if job.strategy.recomputing.every == 1 and not job.strategy.recomputing.keeps_products:
        return line(name, korthikanti.full_recomputation, **sizes)
    if job.strategy.recomputing.attention:
        return line(name, korthikanti.tensor_parallel_selective, **sizes, tp=1)
    return line(name, korthikanti.no_parallelism, **sizes, a=heads)


def closed_forms(job: Job) -> tuple[Line, ...]:
    """Both papers' forms for this job."""
    layer, shape = of_a_layer(job), job.model.shape
    sizes = {"b": job.strategy.micro_batch, "s": job.workload.seq, "h": shape.hidden, "interval": ONE_BY_ONE}
    return (
        layer,
        line("all layers' activations", korthikanti.all_layers, layer_bytes=layer.bytes, layers=shape.layers),
        line("activation checkpoints", zero_infinity.activation_checkpoints, **sizes, layers=shape.layers),
        line("activation working memory", zero_infinity.activation_working_memory, **sizes, a=shape.heads),
    )


def ledger(job: Job) -> Ledger:
    """Model states held throughout, and beside them activations as papers count them; no buffers, no logits.

    All layers' by Korthikanti's form; where they run again, ZeRO-Infinity's working memory of one in backward.
    """
    resident, forms = model_states(job), closed_forms(job)
    _layer, layers, _checkpoints, working = forms
    extra = {"forward": (layers,), "backward": (layers, working) if job.strategy.recomputing.every else (layers,)}
    moments = tuple(Moment(phase, phase, (*resident, *extra.get(phase, ()))) for phase in PHASES)
    return Ledger("paper", Tier(resident, moments), traffic=traffic(job), closed_forms=forms)
