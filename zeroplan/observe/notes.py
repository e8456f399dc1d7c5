"""What to know before a difference is believed: each said only where it applies to the log at hand."""

from __future__ import annotations

from collections.abc import Iterator

from zeroplan.observe.comparison import Predicted, since
from zeroplan.observe.log import Log


def contradictions(log: Log, predicted: Predicted) -> Iterator[str]:
    """What the log says of its run, where that is not what was predicted."""
    job = predicted.job
    said: dict[str, int | str] = {
        "world size": job.ranks, "batch size per GPU": job.strategy.micro_batch,
        "accumulation": job.strategy.micro_steps, "ZeRO stage": job.strategy.stage, "dtype": job.strategy.dtype,
    }  # fmt: skip
    for name, expected in said.items():
        if log.job.get(name, expected) != expected:
            yield f"The log's run had {name} {log.job[name]}, predicted is {expected}: state the run's own options."


def notes(log: Log, predicted: Predicted, steps: int | None) -> Iterator[str]:
    """Sentences on how the log was made, and on what it covers."""
    job, series, timed = predicted.job, log.series, ("time", "fwd") in log.series
    if job.strategy.backend == "cpu":
        yield "On the CPU DeepSpeed prints the process's memory for a GPU's: neither that nor time has a prediction."
    elif predicted.speed is None:
        yield "No time is predicted: name the card, as in --gpu a100-80gb or --cluster dgx-a100."
    if timed and ("MA", "Engine before backward") in series:
        yield (
            "memory_breakdown collects garbage twice inside the timer of backward (runtime/engine.py:3135, 3175): "
            "time a run without it."
        )
    if timed and log.summaries:
        yield "comms_logger waits for every collective, so none is hidden behind work: time a run without it."
    if log.summaries:
        yield _covered(log, steps)
    if job.strategy.runs_zero_linear and ("profile", "fwd MACs per GPU") in series:
        yield "At stage 3 the flops profiler counts the products of nn.Linear twice (memory_efficient_linear)."
    if ("host", "used") in series:
        yield "Of a node's memory the log has everything: the system, Python and its libraries, page cache left out."


def _covered(log: Log, steps: int | None) -> str:
    last, first = log.summaries[-1], since(log)
    if first:
        return f"Collectives: of {last.steps - first.steps} optimizer steps, between the log's last two summaries."
    if passed := steps or last.steps:
        return (
            f"Collectives: of {passed} optimizer steps, and of initialize and the first step's own gathers, which are "
            "not predicted; two summaries, steps apart, would leave those out."
        )
    return "Collectives: the log does not say of how many optimizer steps; write --steps."
