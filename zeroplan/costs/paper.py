"""The ZeRO paper's accounting: model states in closed form, and the volume of section 7."""

from __future__ import annotations

from zeroplan.costs.activations import Activations
from zeroplan.costs.closed_forms import closed_forms
from zeroplan.formulas import states, volume
from zeroplan.ledger import PHASES, Ledger, Line, Moment, Rule, Tier, Transfer, line
from zeroplan.specs.job import Job
from zeroplan.specs.optimizer import paper_state_bytes


def model_states(job: Job) -> tuple[Line, Line, Line]:
    """Parameters, gradients and optimizer states on one GPU: 16Ψ in all with Adam in 16 bit at stage 0."""
    psi, w, strategy = job.model.parameters, job.strategy.element_bytes, job.strategy
    k = paper_state_bytes(strategy.optimizer, strategy.precision)
    return (
        line("parameters", states.parameters, psi=psi, w=w, n_d=strategy.shards(3, job.ranks)),
        line("gradients", states.gradients, psi=psi, g=w, n_d=strategy.shards(2, job.ranks)),
        line("optimizer states", states.optimizer_states, psi=psi, k=k, n_d=strategy.shards(1, job.ranks)),
    )


def traffic(job: Job) -> tuple[Transfer, ...]:
    """2Ψ elements a step up to stage 2, 3Ψ at stage 3 (section 7); gathers come with every micro-step."""
    psi, strategy = job.model.parameters, job.strategy
    reduced = {"psi": psi, "g": strategy.element_bytes}
    gathered = {"psi": psi, "w": strategy.element_bytes}

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


def ledger(job: Job, activations: Activations) -> Ledger:
    """Model states held throughout, activations beside them; the paper counts no buffers."""
    held = model_states(job)
    extra = {
        "forward": [activations.forward],
        "backward": [activations.loss_backward, activations.layer_backward],
    }
    moments = [Moment(phase, phase, (*held, *lines)) for phase in PHASES for lines in extra.get(phase, [()])]
    return Ledger("paper", Tier(held, tuple(moments)), traffic=traffic(job), closed_forms=closed_forms(job))
