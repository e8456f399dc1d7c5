"""A whole training run in words: how long it takes, what it costs, and whether it ends in time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zeroplan.units import count, duration, money

if TYPE_CHECKING:
    from zeroplan.sizing import Fewest
    from zeroplan.training import TrainingRun


def clause(run: TrainingRun) -> str:
    """Sentence for the summary."""
    if not run.wanted.tokens:
        return f"{_per_million(run)}."
    cost = f", {_cost(run)}" if run.cost is not None else ""
    return f"{count(run.wanted.tokens)} tokens take {duration(run.seconds)} ({_hours(run)}{cost})."


def missed(run: TrainingRun) -> str:
    """That the fastest plan ends after its deadline."""
    assert run.wanted.tokens
    assert run.wanted.deadline
    assert run.late
    return (
        f"no plan trains {count(run.wanted.tokens)} tokens in {duration(run.wanted.deadline)}: the fastest takes "
        f"{duration(run.seconds)}, {duration(run.late)} too long"
    )


def in_time(fewest: Fewest) -> str:
    """How many GPUs end in time."""
    if fewest.gpus is None:
        return f"None of up to {fewest.smaller:,} GPUs ends in time."
    return f"{fewest.gpus:,} GPUs of this kind end in time (--gpus {fewest.gpus})."


def rows(run: TrainingRun) -> list[tuple[str, str]]:
    """Rows for the table of the plan."""
    pairs: list[tuple[str, str]] = []
    if run.wanted.tokens:
        low, high = duration(run.low), duration(run.high)
        what = f"{count(run.wanted.tokens)} tokens in {run.steps:,} steps"
        pairs.append(("run", f"{what}: {duration(run.seconds)}, from {low} to {high}; {_hours(run)}"))
    if run.late is not None and run.wanted.deadline:
        left = f"{duration(-run.late)} to spare" if run.in_time else f"missed by {duration(run.late)}"
        pairs.append(("deadline", f"{duration(run.wanted.deadline)}: {left}"))
    if run.wanted.price:
        whole = f"{_cost(run)}; " if run.cost is not None else ""
        each = money(run.wanted.price.amount, run.wanted.price.currency)
        pairs.append(("cost", f"{whole}{_per_million(run)}, at {each} a GPU-hour"))
    return pairs


def columns(run: TrainingRun) -> list[str]:
    """Heads of the columns in a table with a row for each card."""
    return ["takes"] * bool(run.wanted.tokens) + _costs(run, "cost", "per 1M tokens")


def cells(run: TrainingRun) -> list[str]:
    takes = [duration(run.seconds) + ("" if run.in_time else " (late)")] if run.wanted.tokens else []
    price = run.wanted.price
    return takes + _costs(run, _cost(run), money(run.cost_per_million or 0.0, price.currency) if price else "")


def _costs(run: TrainingRun, whole: str, each: str) -> list[str]:
    """The head of a cost: of the run where its tokens are known, else of a million."""
    return [] if not run.wanted.price else [whole if run.wanted.tokens else each]


def _cost(run: TrainingRun) -> str:
    return money(run.cost, run.wanted.price.currency) if run.cost is not None and run.wanted.price else ""


def _per_million(run: TrainingRun) -> str:
    assert run.wanted.price
    assert run.cost_per_million is not None
    return f"{money(run.cost_per_million, run.wanted.price.currency)} a million tokens"


def _hours(run: TrainingRun) -> str:
    hours = run.gpu_hours
    return f"{hours:,.{0 if hours >= 100 else 1}f} GPU-hours"
