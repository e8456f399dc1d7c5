"""What a phase holds beside what is resident, and the moments of a step that both make together with activations."""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from zeroplan.costs.activations import ClosedFormActivations
from zeroplan.costs.allocations import PassProfile, Snapshots, as_lines
from zeroplan.costs.passes import at_work, pass_peak, timeline_of
from zeroplan.formulas import transient
from zeroplan.ledger import DTYPE_BYTES, Detail, Line, Moment, line
from zeroplan.specs.execution import PassTimeline
from zeroplan.specs.job import Job
from zeroplan.specs.model import IDS, OF_TOKENS, VALUES, ModelInput


class FirstStep(NamedTuple):
    """What the passes of the run's first optimizer step have alive, where they need more than the later ones."""

    forward: tuple[Line, ...] = ()
    backward: tuple[Line, ...] = ()
    forward_pass: PassProfile | None = None
    """Event by event."""
    backward_pass: PassProfile | None = None


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
    first_step: Callable[[], FirstStep] = FirstStep
    """Replays the passes of the run's first optimizer step; by default they need no more than the later ones."""
    forward_pass: PassProfile | None = None
    """What DeepSpeed has alive event by event, where that changes in forward; likewise `backward_pass`."""
    backward_pass: PassProfile | None = None
    counted_in_passes: tuple[str, ...] = ()
    """Names of residents that forward and backward themselves count, as they go there."""


MADE_BY_THE_STEP = ("optimizer states", "norm and flags", "chosen columns")
"""Residents that the first optimizer step makes."""
NOTHING = PhaseMemory((), (), (), ())


def _passes(
    job: Job, resident: tuple[Line, ...], phase_memory: PhaseMemory, alive: ClosedFormActivations, *, detail: Detail
) -> Iterator[Moment]:
    """Where forward and backward have most alive: all together, and of DeepSpeed's own."""
    result = timeline_of(job)
    if result is None:
        yield Moment("forward", "loss", (*resident, *phase_memory.forward, *alive.forward))
        yield Moment("backward", "loss", (*resident, *phase_memory.loss, *alive.loss_backward))
        yield Moment("backward", "gradients", (*resident, *phase_memory.backward, *alive.layer_backward))
        return
    yield Moment("backward", "gradients", (*resident, *phase_memory.backward))
    yield _moment(
        job, "backward", result.backward, resident, phase_memory.loss, phase_memory.backward_pass, detail=detail
    )
    yield Moment("forward", "parameters", (*resident, *phase_memory.forward))
    yield _moment(
        job, "forward", result.forward, resident, phase_memory.forward, phase_memory.forward_pass, detail=detail
    )


def _first(
    job: Job, resident: tuple[Line, ...], first: FirstStep, alive: ClosedFormActivations, *, detail: Detail
) -> Iterator[Moment]:
    """Passes of the run's first step, where it needs more."""
    passes = timeline_of(job)
    for phase, lines, there, profile, of_model in (
        ("first_forward", first.forward, alive.forward, first.forward_pass, passes and passes.forward),
        ("first_backward", first.backward, alive.layer_backward, first.backward_pass, passes and passes.backward),
    ):
        if not lines:
            continue
        if of_model is None:
            yield Moment(phase, "first step", (*resident, *lines, *there))
        else:
            yield Moment(phase, "first step, parameters", (*resident, *lines))
            yield _moment(job, phase, of_model, resident, lines, profile, detail=detail)


def _moment(
    job: Job, phase: str, model: PassTimeline, resident: tuple[Line, ...], still: tuple[Line, ...],
    profile: PassProfile | None, *, detail: Detail,
) -> Moment:  # fmt: skip
    """`still` is what DeepSpeed has alive throughout, where no events of its own are known."""
    peak = pass_peak(profile.snapshots if profile else Snapshots(), model)
    of_deepspeed = (*profile.concurrent, *as_lines(profile.tracker.kinds(peak.elements))) if profile else still
    place, of_model = at_work(job, peak, backward=phase.endswith("backward"), detail=detail)
    return Moment(phase, place, (*resident, *of_deepspeed, *of_model))


def moments(
    job: Job, resident: list[Line], phase_memory: PhaseMemory, alive: ClosedFormActivations,
    init: tuple[Line, ...] = (), *, detail: Detail = Detail.WHOLE,
) -> Iterator[Moment]:  # fmt: skip
    """The moments of one GPU at which most may be alive, those of the run's first step last; by `detail`, activations
    are told apart by what keeps them.

    `init`: all that is alive where `initialize` has most.
    """
    trained = (*resident, line("token ids", transient.token_ids, "int64", t=job.tokens), *beside_token_ids(job))
    updated = tuple(entry for entry in trained if entry.name not in phase_memory.away_in_the_step)
    unborn = (*phase_memory.away_in_the_step, *MADE_BY_THE_STEP)
    started = tuple(entry for entry in trained if entry.name not in unborn)
    passed = tuple(entry for entry in trained if entry.name not in phase_memory.counted_in_passes)
    yield Moment("init", "inside initialize", init)
    yield Moment("step", "begins", (*passed, *phase_memory.before_step))
    yield Moment("step", "optimizer", (*updated, *phase_memory.step))
    yield Moment("step", "parameters gathered again", (*trained, *phase_memory.gathering))
    yield from _passes(job, passed, phase_memory, alive, detail=detail)
    yield from _first(job, started, phase_memory.first_step(), alive, detail=detail)


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
