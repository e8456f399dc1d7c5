"""What a phase holds beside what is resident, and the timeline of a step that both make together with activations."""

from typing import NamedTuple

from zeroplan.costs.activations import ClosedFormActivations
from zeroplan.costs.allocations import PassProfile, Snapshots, as_lines
from zeroplan.costs.passes import at_work, pass_peak, timeline_of
from zeroplan.formulas import transient
from zeroplan.ledger import DTYPE_BYTES, Detail, Line, Moment, Tier, line
from zeroplan.specs.execution import PassTimeline
from zeroplan.specs.job import Job
from zeroplan.specs.model import IDS, OF_TOKENS, VALUES, ModelInput


class PhaseMemory(NamedTuple):
    """What an engine has alive in each phase beside what is resident, where most of it is."""

    forward: tuple[Line, ...]
    loss: tuple[Line, ...]
    """As backward starts."""
    backward: tuple[Line, ...]
    step: tuple[Line, ...]
    away_in_the_step: tuple[str, ...] = ()
    """Names of residents that are not there while the optimizer runs."""
    before_step: tuple[Line, ...] = ()
    """While they still are."""
    gathering: tuple[Line, ...] = ()
    """As they come back after it."""
    first_forward: tuple[Line, ...] = ()
    """Lines of the first optimizer step, where it needs more than the later ones; likewise `first_backward`."""
    first_backward: tuple[Line, ...] = ()
    forward_pass: PassProfile | None = None
    """What DeepSpeed has alive event by event, where that changes in forward; likewise `backward_pass`."""
    backward_pass: PassProfile | None = None
    first_forward_pass: PassProfile | None = None
    first_backward_pass: PassProfile | None = None
    counted_in_passes: tuple[str, ...] = ()
    """Names of residents that forward and backward themselves count, as they go there."""


MADE_BY_THE_STEP = ("optimizer states", "norm and flags", "chosen columns")
"""Residents that the first optimizer step makes."""
NOTHING = PhaseMemory((), (), (), ())


def _passes(
    job: Job, resident: tuple[Line, ...], phase_memory: PhaseMemory, alive: ClosedFormActivations, *, detail: Detail
) -> list[Moment]:
    """Where forward and backward have most alive: all together, and of DeepSpeed's own."""
    result = timeline_of(job)
    if result is None:
        return [
            Moment("forward", "loss", (*resident, *phase_memory.forward, *alive.forward)),
            Moment("backward", "loss", (*resident, *phase_memory.loss, *alive.loss_backward)),
            Moment("backward", "gradients", (*resident, *phase_memory.backward, *alive.layer_backward)),
        ]
    return [
        Moment("forward", "parameters", (*resident, *phase_memory.forward)),
        _moment(
            job, "forward", result.forward, resident, phase_memory.forward, phase_memory.forward_pass, detail=detail
        ),
        Moment("backward", "gradients", (*resident, *phase_memory.backward)),
        _moment(
            job, "backward", result.backward, resident, phase_memory.loss, phase_memory.backward_pass, detail=detail
        ),
    ]


def _first(
    job: Job, resident: tuple[Line, ...], phase_memory: PhaseMemory, alive: ClosedFormActivations, *, detail: Detail
) -> list[Moment]:
    """Passes of the run's first step, where it needs more."""
    passes, moments_ = timeline_of(job), []
    model = (passes.forward, passes.backward) if passes else (None, None)
    for phase, lines, there, profile, of_model in (
        ("first_forward", phase_memory.first_forward, alive.forward, phase_memory.first_forward_pass, model[0]),
        (
            "first_backward",
            phase_memory.first_backward,
            alive.layer_backward,
            phase_memory.first_backward_pass,
            model[1],
        ),
    ):
        if not lines:
            continue
        if of_model is None:
            moments_.append(Moment(phase, "first step", (*resident, *lines, *there)))
        else:
            moments_.append(Moment(phase, "first step, parameters", (*resident, *lines)))
            moments_.append(_moment(job, phase, of_model, resident, lines, profile, detail=detail))
    return moments_


def _moment(
    job: Job, phase: str, model: PassTimeline, resident: tuple[Line, ...], still: tuple[Line, ...],
    profile: PassProfile | None, *, detail: Detail,
) -> Moment:  # fmt: skip
    """`still` is what DeepSpeed has alive throughout, where no events of its own are known."""
    peak = pass_peak(profile.snapshots if profile else Snapshots(), model)
    of_deepspeed = (*profile.concurrent, *as_lines(profile.tracker.kinds(peak.elements))) if profile else still
    place, of_model = at_work(job, peak, backward=phase.endswith("backward"), detail=detail)
    return Moment(phase, place, (*resident, *of_deepspeed, *of_model))


def timeline(
    job: Job, resident: list[Line], phase_memory: PhaseMemory, alive: ClosedFormActivations,
    init: tuple[Line, ...] = (), *, detail: Detail = Detail.WHOLE,
) -> Tier:  # fmt: skip
    """Residents and moments of one GPU; by `detail`, activations are told apart by what keeps them.

    `init`: all that is alive where `initialize` has most.
    """
    trained = (*resident, line("token ids", transient.token_ids, "int64", t=job.tokens), *beside_token_ids(job))
    updated = tuple(entry for entry in trained if entry.name not in phase_memory.away_in_the_step)
    unborn = (*phase_memory.away_in_the_step, *MADE_BY_THE_STEP)
    started = tuple(entry for entry in trained if entry.name not in unborn)
    passed = tuple(entry for entry in trained if entry.name not in phase_memory.counted_in_passes)
    return Tier(
        tuple(resident),
        (
            *_first(job, started, phase_memory, alive, detail=detail),
            Moment("init", "inside initialize", init),
            *_passes(job, passed, phase_memory, alive, detail=detail),
            Moment("step", "begins", (*passed, *phase_memory.before_step)),
            Moment("step", "optimizer", (*updated, *phase_memory.step)),
            Moment("step", "parameters gathered again", (*trained, *phase_memory.gathering)),
        ),
    )


def beside_token_ids(job: Job) -> tuple[Line, ...]:
    """A classifier's, and what a model takes beside the token ids."""
    return (*_of_classifier(job), *(_input(job, each) for each in job.model.inputs))


def _input(job: Job, of: ModelInput) -> Line:
    dtype = job.strategy.dtype if of.dtype == "training" else of.dtype
    count = job.strategy.micro_batch * of.per_sequence + job.tokens * of.per_token
    return line(of.name, transient.labels, dtype, alive=count, w=DTYPE_BYTES[dtype])


def _of_classifier(job: Job) -> tuple[Line, ...]:
    labels = job.model.labels
    if labels == IDS:
        return ()
    count = job.tokens if labels == OF_TOKENS else job.strategy.micro_batch
    if labels == VALUES:
        return (line("labels", transient.labels, job.strategy.dtype, alive=count, w=job.strategy.element_bytes),)
    return (line("labels", transient.labels, "int64", alive=count, w=8),)
