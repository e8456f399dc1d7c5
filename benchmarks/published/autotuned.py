"""What DeepSpeed's autotuner chose by running experiments, beside what zeroplan chooses without one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any, NamedTuple

from benchmarks.published.recommended import RESERVE, published_job
from benchmarks.published.rows import FILE, Row, read
from zeroplan.plan import label, plan
from zeroplan.search import Candidate, evaluate
from zeroplan.specs.job import Job
from zeroplan.units import gib

AUTOTUNING = FILE.with_name("autotuning.csv")
FIXED: dict[str, Any] = {"checkpointing": "none", "offload_optimizer": None, "offload_param": None, "grad_accum": 1}
"""What the tuner leaves as its user had it; stage, micro-batch and DeepSpeed's numbers it tunes."""


class Tuned(NamedTuple):
    row: Row
    published: Candidate
    plan: Candidate | None
    """Of all micro-batches the one with most samples a second."""

    @property
    def is_same(self) -> bool:
        names = ("stage", "micro_batch")
        return self.plan is not None and all(
            getattr(self.plan.strategy, name) == getattr(self.published.strategy, name) for name in names
        )


def rows() -> tuple[list[Row], list[Row]]:
    """Rows that can be asked, and those that are left out with a reason."""
    found = read(AUTOTUNING)
    return [row for row in found if not row.column("left_out")], [row for row in found if row.column("left_out")]


def compare() -> Iterator[Tuned]:
    for row in rows()[0]:
        job = published_job(row)
        yield Tuned(row, evaluate(job, RESERVE), fastest(job))


def fastest(job: Job) -> Candidate | None:
    """Of all micro-batches that fit, without accumulation: the tuner's measure is samples a second."""
    found, fixed = [], FIXED | {"attention": job.strategy.attention}
    for size in count(1):
        chosen = plan(job, fixed | {"micro_batch": size}, reserve=RESERVE).chosen
        if chosen is None:
            break
        found.append(chosen)
    return max(found, key=lambda candidate: candidate.throughput, default=None)


def kept(one: Tuned) -> bool:
    """The same stage and micro-batch; or faster, with a reason."""
    if one.plan is None or not one.plan.fit.accepted:
        return False
    return one.is_same or (one.plan.throughput >= one.published.throughput and bool(one.row.column("otherwise")))


def text(one: Tuned) -> list[str]:
    row, found = one.row, one.plan
    where = f"{row.column('model')}, {row.gpus} × {row.column('gpu_type')}"
    shown = [
        f"{row.name}  {where}: by hand {row.column('hand_tuned')}; best of each stage, samples/s by the tuner's clock:",
        f"             {row.column('stages')}",
        f"  autotuner  {_line(one.published)}",
    ]
    if found:
        faster = found.throughput / one.published.throughput - 1
        shown.append(f"  plan       {_line(found)}  {faster:+.1%}{'' if kept(one) else '  NOT AS PROMISED'}")
    return shown if one.is_same else [*shown, f"             {row.column('otherwise')}"]


def _line(one: Candidate) -> str:
    return f"{label(one):40}{one.throughput:>8.1f} samples/s  needs {gib(one.fit.gpu.needed)}"
