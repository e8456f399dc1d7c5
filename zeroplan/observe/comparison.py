"""Predicted beside observed: what DeepSpeed printed of a run, and the number that zeroplan has for the same thing."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

from zeroplan.clock import Speed
from zeroplan.costs.operations import operations
from zeroplan.costs.timing.network import call
from zeroplan.ledger import FIRST, Ledger, total
from zeroplan.levels import shown_by
from zeroplan.observe.log import CollectiveSummary, Log, Series, Summary
from zeroplan.specs.job import Job

GPU, HOST, TIME = "memory of a GPU", "memory of a node", "time of an optimizer step"
SPEED, COLLECTIVES, FORWARD = "throughput", "collectives", "forward of one micro-batch on one GPU"
MEDIAN, LARGEST, LAST, SUM = "median", "largest", "last", "sum"


class Observed(NamedTuple):
    """One number of the log beside its prediction."""

    group: str
    """What it is of: memory of a GPU, throughput, collectives, ..."""
    name: str
    """The number's name."""
    unit: str
    """bytes, s, samples/s, calls, parameters, MACs or FLOPs."""
    predicted: float | None
    """In that unit; None where nothing is predicted: no card is named, or the model's forward is not written out."""
    observed: float
    """In that unit."""
    half: float
    """How far the printed number may be off: half of its last digit."""
    statistic: str
    """Which of the observations it is."""
    seen: int
    """How many observations there are; of a sum: calls."""
    line: int
    """The line of the log: that of the last observation, or of the largest."""

    @property
    def difference(self) -> float | None:
        """Predicted less observed; 0 where the log's digits do not tell them apart."""
        if self.predicted is None:
            return None
        error = self.predicted - self.observed
        return error if abs(error) > self.half else 0.0


class Predicted(NamedTuple):
    """All that is predicted of a job."""

    job: Job
    ledger: Ledger
    speed: Speed | None


def compared(log: Log, predicted: Predicted, steps: int | None = None) -> list[Observed]:
    """A row for everything that the log has; `steps`: optimizer steps of the whole log, where it does not say."""
    return [
        *_memory(log, predicted), *_time(log, predicted), *_throughput(log, predicted),
        *_collectives(log, predicted, steps), *_forward(log, predicted),
    ]  # fmt: skip


def _row(
    series: Series | None, group: str, name: str, unit: str, predicted: float | None, statistic: str = MEDIAN
) -> Iterator[Observed]:
    """Nothing where the log has nothing."""
    if series is None:
        return
    values, at = series.values, len(series.values) - 1
    value = median(values) if statistic == MEDIAN else values[-1]
    if statistic == LARGEST:
        value = max(values)
        at = values.index(value)
    yield Observed(group, name, unit, predicted, value, series.half, statistic, len(values), series.lines[at])


def _memory(log: Log, predicted: Predicted) -> Iterator[Observed]:
    """Largest ones beside peaks: see_memory_usage resets them with each line, so each is of what ran since the last."""
    series, job = log.series, predicted.job
    gpu = None if job.strategy.backend == "cpu" else predicted.ledger.gpu  # what is printed there is the process's
    held = gpu and total(gpu.resident)
    after = series.get(("MA", "Engine after step"))
    boundaries = _least_of_each(after, job.strategy.micro_steps) if after else None
    yield from _row(boundaries, GPU, "held between steps", "bytes", held)
    yield from _row(series.get(("MemAllocated", "throughput")), GPU, "held between steps (MemAllocated)", "bytes", held)
    if ("Max_MA", "DeepSpeed Engine: Before configure distributed model") in series:
        first = _first(series.get(("Max_MA", "Engine before forward")))
        yield from _row(first, GPU, "initialize, most allocated", "bytes", gpu and total(gpu.worst("init").lines))
    for phase, *others in (("forward", FIRST[0]), ("backward", FIRST[1]), ("step",)):
        most = gpu and max(total(gpu.worst(name).lines) for name in (phase, *others) if name in gpu.phases)
        name = f"{phase}, most allocated"
        yield from _row(series.get(("Max_MA", f"Engine after {phase}")), GPU, name, "bytes", most, LARGEST)
    peak = gpu and total(gpu.peak.lines)
    printed = (_joined(log, "Max_MA"), series.get(("MaxMemAllocated", "throughput")))
    whole = max((one for one in printed if one), key=lambda one: max(one.values), default=None)
    yield from _row(whole, GPU, "most allocated", "bytes", peak, LARGEST)
    levels = {level.name: level.bytes for level in shown_by(job, predicted.ledger)}
    # CA, not Max_CA: that is printed in whole GiB.
    yield from _row(_joined(log, "CA"), GPU, "most reserved", "bytes", levels.get("reserved"), LARGEST)
    host = gpu and total(predicted.ledger.host.peak.lines)
    yield from _row(series.get(("host", "used")), HOST, "in use", "bytes", host, LARGEST)


def _least_of_each(series: Series, size: int) -> Series:
    """One of every `size` micro-steps is the optimizer's, after which gradients are gone: the least of each so many."""
    result = Series(series.half)
    for start in range(0, len(series.values) - size + 1, size):
        window = series.values[start : start + size]
        least = min(window)
        result.add(least, series.lines[start + window.index(least)])
    return result if result.values else series


def _first(series: Series | None) -> Series | None:
    if series is None:
        return None
    result = Series(series.half)
    result.add(series.values[0], series.lines[0])
    return result


def _joined(log: Log, what: str) -> Series | None:
    """One thing wherever it was printed."""
    every = [series for (name, _where), series in log.series.items() if name == what]
    if not every:
        return None
    joined = Series(every[0].half)
    for line, value in sorted(entry for series in every for entry in zip(series.lines, series.values, strict=True)):
        joined.add(value, line)
    return joined


def _time(log: Log, predicted: Predicted) -> Iterator[Observed]:
    """DeepSpeed's timers stop at the end of an optimizer step, summed over its micro-steps."""
    spent = _phases(predicted.speed)
    timers = {"forward": "fwd", "backward": "bwd", "step": "step"}
    recorded = [log.series.get(("time", timer)) for timer in timers.values()]
    for phase, series in zip(timers, recorded, strict=True):
        yield from _row(series, TIME, phase, "s", spent[phase] if spent else None)
    if all(recorded):
        printed = [series for series in recorded if series]
        whole = Series(sum(series.half for series in printed))
        for parts in zip(*(zip(series.values, series.lines, strict=True) for series in printed), strict=False):
            whole.add(sum(value for value, _line in parts), parts[-1][1])
        yield from _row(whole, TIME, "all three", "s", sum(spent.values()) if spent else None)


def _phases(speed: Speed | None) -> dict[str, float] | None:
    """Seconds of forward, backward (with what runs again) and the rest, as terms are named for them."""
    if speed is None:
        return None
    totals = {"forward": 0.0, "backward": 0.0, "step": 0.0}
    for entry in speed.step.terms:
        part = entry.name.rpartition(", ")[2].replace("recomputation", "backward")
        totals[part if part in totals else "step"] += entry.seconds
    return totals


def _throughput(log: Log, predicted: Predicted) -> Iterator[Observed]:
    job, speed = predicted.job, predicted.speed
    rate = speed.tokens / job.workload.seq / speed.step.total if speed else None
    yield from _row(log.series.get(("samples/s", "average")), SPEED, "running average", "samples/s", rate, LAST)
    yield from _row(log.series.get(("samples/s", "current")), SPEED, "of a step", "samples/s", rate)


class _Sent(NamedTuple):
    """Calls and bytes of one collective in one optimizer step."""

    calls: int = 0
    bytes: int = 0
    """As the comms logger counts: of an all-gather, what each rank brings."""
    seconds: float = 0.0
    """Seconds of the calls alone, nothing hidden: the comms logger waits for each."""


def _sent(predicted: Predicted) -> dict[str, _Sent]:
    job = predicted.job
    sent: dict[str, _Sent] = {}
    for entry in predicted.ledger.traffic:
        times = entry.times(job.strategy.micro_steps)
        size = entry.bytes // entry.ranks if entry.collective == "all_gather" else entry.bytes
        spent = entry.calls * call(job.cluster, entry).seconds if predicted.speed else 0.0
        before = sent.get(entry.collective, _Sent())
        sent[entry.collective] = _Sent(
            before.calls + times * entry.calls, before.bytes + times * size, before.seconds + times * spent
        )
    return sent


def _collectives(log: Log, predicted: Predicted, steps: int | None) -> Iterator[Observed]:
    """Collectives of the steps between the last two summaries, or of all up to the only one."""
    if not log.summaries:
        return
    last, first = log.summaries[-1], since(log)
    passed = last.steps - first.steps if first else steps or last.steps
    sent = _sent(predicted)
    for name, summary in last.collectives.items():
        before = first.collectives.get(name, CollectiveSummary(0)) if first else CollectiveSummary(0)
        calls = summary.calls - before.calls
        if not calls and name not in sent:
            continue  # of initialize alone
        expected = sent.get(name, _Sent())
        for unit, of_a_step, seen, half in (
            ("calls", expected.calls, calls, 0.0),
            ("bytes", expected.bytes, summary.bytes - before.bytes, summary.half - before.half),
            ("s", expected.seconds if predicted.speed else None, summary.seconds - before.seconds, 1e-5),
        ):
            whole = passed * of_a_step if passed and of_a_step is not None else None
            yield Observed(COLLECTIVES, name, unit, whole, seen, half, SUM, calls, summary.line)


def since(log: Log) -> Summary | None:
    """The last summary but one, where the log tells of steps after it: initialize is not in what came since."""
    if len(log.summaries) < 2 or log.summaries[-1].steps <= log.summaries[-2].steps:
        return None
    return log.summaries[-2]


def _forward(log: Log, predicted: Predicted) -> Iterator[Observed]:
    """The profiler's MACs are the products'; its FLOPs have what is computed beside them, too."""
    job, counted = predicted.job, operations(predicted.job)
    flops = counted.flops.forward if counted else None
    if job.strategy.stage < 3:  # there it sees what is not partitioned
        params = log.series.get(("profile", "params per GPU"))
        yield from _row(params, FORWARD, "parameters", "parameters", job.model.parameters)
    macs = log.series.get(("profile", "fwd MACs per GPU"))
    yield from _row(macs, FORWARD, "multiply-accumulates", "MACs", flops / 2 if flops else None)
    yield from _row(log.series.get(("profile", "fwd flops per GPU")), FORWARD, "operations", "FLOPs", flops)
