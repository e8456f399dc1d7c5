"""What a phase holds beside the residents, and the timeline of a step that it makes together with activations."""

from __future__ import annotations

from typing import NamedTuple

from zeroplan.costs.activations import Activations
from zeroplan.formulas import moments
from zeroplan.ledger import Line, Moment, Tier, line
from zeroplan.specs.job import Job


class Working(NamedTuple):
    """Lines beside what is held, where most of them are alive; those of `init` are everything then alive."""

    init: tuple[Line, ...]
    forward: tuple[Line, ...]
    loss: tuple[Line, ...]
    """As backward starts."""
    backward: tuple[Line, ...]
    step: tuple[Line, ...]
    partitioned: tuple[str, ...] = ()
    """Residents that are not there while the optimizer runs."""
    gathering: tuple[Line, ...] = ()
    """As they come back after it."""


NOTHING = Working((), (), (), (), ())


def timeline(job: Job, held: list[Line], working: Working, alive: Activations) -> Tier:
    """Residents and moments of one GPU."""
    trained = (*held, line("token ids", moments.token_ids, "int64", t=job.tokens))
    updated = tuple(entry for entry in trained if entry.name not in working.partitioned)
    return Tier(
        tuple(held),
        (
            Moment("init", "inside initialize", working.init),
            Moment("forward", "loss", (*trained, *working.forward, *alive.forward)),
            Moment("backward", "loss", (*trained, *working.loss, *alive.loss_backward)),
            Moment("backward", "gradients", (*trained, *working.backward, *alive.layer_backward)),
            Moment("step", "optimizer", (*updated, *working.step)),
            Moment("step", "parameters gathered again", (*trained, *working.gathering)),
        ),
    )
