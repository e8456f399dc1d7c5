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
    before_step: tuple[Line, ...] = ()
    """While they still are."""
    gathering: tuple[Line, ...] = ()
    """As they come back after it."""
    first_forward: tuple[Line, ...] = ()
    """Of the first optimizer step, where it needs more than the later ones; likewise `first_backward`."""
    first_backward: tuple[Line, ...] = ()


MADE_BY_THE_STEP = ("optimizer states", "norm and flags", "chosen columns")
"""Residents that the first optimizer step makes."""
NOTHING = Working((), (), (), (), ())


def timeline(job: Job, held: list[Line], working: Working, alive: Activations) -> Tier:
    """Residents and moments of one GPU."""
    trained = (*held, line("token ids", moments.token_ids, "int64", t=job.tokens))
    updated = tuple(entry for entry in trained if entry.name not in working.partitioned)
    unborn = (*working.partitioned, *MADE_BY_THE_STEP)
    started = tuple(entry for entry in trained if entry.name not in unborn)
    first = [
        Moment(phase, "first step", (*started, *lines, *there))
        for phase, lines, there in (
            ("first_forward", working.first_forward, alive.forward),
            ("first_backward", working.first_backward, alive.layer_backward),
        )
        if lines
    ]
    return Tier(
        tuple(held),
        (
            *first,
            Moment("init", "inside initialize", working.init),
            Moment("forward", "loss", (*trained, *working.forward, *alive.forward)),
            Moment("backward", "loss", (*trained, *working.loss, *alive.loss_backward)),
            Moment("backward", "gradients", (*trained, *working.backward, *alive.layer_backward)),
            Moment("step", "begins", (*trained, *working.before_step)),
            Moment("step", "optimizer", (*updated, *working.step)),
            Moment("step", "parameters gathered again", (*trained, *working.gathering)),
        ),
    )
