"""A published run beside the plan for the same request, both counted and timed by zeroplan."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, NamedTuple

from benchmarks.published.engines import predict
from benchmarks.published.levels import needed
from benchmarks.published.rows import Row
from benchmarks.published.shapes import shape
from benchmarks.published.timing.jobs import NO_DROPOUT, timed
from benchmarks.published.transformers import model_for
from zeroplan.clock import StepTime
from zeroplan.plan import plan, sequences_per_gpu
from zeroplan.search import Candidate, Space, evaluate, space
from zeroplan.search.neighbours import words
from zeroplan.specs.job import Job
from zeroplan.specs.model import Model
from zeroplan.units import GiB, gib, seconds

RESERVE = 0.05
"""Share of a card kept free, as `zeroplan recommend` keeps it."""
SOURCES = ("llm-foundry", "ml-engineering")
MODEL = ("model", "params", "hidden", "layers", "heads", "kv_heads", "ffn", "vocab", "seq")
MPT = {**NO_DROPOUT, "activation_function": "gelu"}
"""llm-foundry's MPT as a GPT-2: no dropout, and GELU in one operator rather than GPT-2's own in eight."""
OPEN: dict[str, Any] = {
    "stage": 0, "micro_batch": 1, "grad_accum": 1, "checkpointing": "none", "offload_optimizer": None,
    "offload_param": None, "overlap_comm": None,
}  # fmt: skip
"""What a request leaves open."""
CHOICES = ("stage", "checkpointing", "offload_optimizer", "offload_param", "hpz_partition_size")
NUMBERS = (
    "overlap_comm", "contiguous_gradients", "reduce_bucket_size", "prefetch_bucket_size", "max_live_parameters",
    "max_reuse_distance", "param_persistence_threshold",
)  # fmt: skip
SHOWN = 0.001
"""Share of a step from which on a line is named."""


class Beside(NamedTuple):
    row: Row
    published: Candidate
    plan: Candidate | None
    inside: bool
    """The published configuration lies in the space that was searched."""

    @property
    def comparable(self) -> bool:
        """The plan may not be slower: the search could have chosen what was published."""
        return self.inside and self.published.fit.accepted

    @property
    def gain(self) -> float:
        """Share of the published configuration's predicted step that the plan saves; negative where it is slower."""
        return 1 - self.plan.time.total / self.published.time.total if self.plan else -1.0


def is_asked(row: Row) -> bool:
    return any(source in row.column("source") for source in SOURCES)


def published_job(row: Row) -> Job:
    """The published configuration as DeepSpeed runs it: FSDP by the stage that shards alike, numbers by default.

    Of what the Trainer fills in, parameters below ten hidden sizes stay whole at stage 3. Raises `UncomputableError`.
    """
    job = timed(row).job
    changes: dict[str, Any] = {
        "stage": row.stage, "overlap_comm": row.stage == 3, "memory_efficient_linear": True, "zero_init": None,
        "kernels": "liger" if row.liger else "transformers",
    }  # fmt: skip
    if row.stage == 3:
        changes["param_persistence_threshold"] = 10 * job.model.shape.hidden
    if "pure" in row.lower("precision"):
        changes |= {"master_dtype": "bf16", "states_as_master": True}
    model = _model(tuple((name, row.column(name)) for name in MODEL))
    batch = job.strategy.micro_batch * job.strategy.grad_accum * job.ranks
    return job._replace(model=model, workload=job.workload._replace(global_batch=batch)).at(**changes)


@cache
def _model(columns: tuple[tuple[str, str], ...]) -> Model:
    """One for all rows that run it, so that it is traced once."""
    row = Row(dict(columns))
    return model_for(row, shape(row), **(MPT if "mpt" in row.lower("model") else {}))


def compare(rows: Iterable[Row]) -> Iterator[Beside]:
    """One request is asked once."""
    plans: dict[Any, Candidate | None] = {}
    for row in rows:
        job = published_job(row)
        request = job.at(**OPEN)
        key = request.model, repr(request.cluster), request.workload, request.strategy
        if key not in plans:
            plans[key] = plan(request, _settled(request), reserve=RESERVE).chosen
        yield Beside(row, evaluate(job, RESERVE), plans[key], is_inside(job))


def is_inside(job: Job) -> bool:
    """Whether the search for its request could choose this very configuration."""
    return _has(space(job.at(**OPEN), _settled(job), sequences_per_gpu(job, {})), job)


def _settled(job: Job) -> dict[str, Any]:
    """What a request keeps of the published configuration beside the job's own fields."""
    return {"attention": job.strategy.attention}


def _has(found: Space, job: Job) -> bool:
    own = job.strategy
    return own.micro_batch in found.sizes and any(
        all(getattr(own, name) == value for name, value in variant.choice.items())
        and all(getattr(own, name) in values for name, values in variant.numbers.items())
        for variant in found.variants
    )


def changed(published: Job, chosen: Job) -> str:
    """What the plan does otherwise, in words; empty where all choices are the same."""
    one, other = published.strategy, chosen.strategy
    found = [words(name, getattr(other, name)) for name in CHOICES if getattr(one, name) != getattr(other, name)]
    if one.micro_batch != other.micro_batch:
        found.append(f"micro-batch {other.micro_batch} × {other.grad_accum} for {one.micro_batch} × {one.grad_accum}")
    if not found:
        found = [
            f"{name} {getattr(other, name)}"
            for name in NUMBERS if other.stage and getattr(one, name) != getattr(other, name)
        ]  # fmt: skip
    return ", ".join(found)


def parts(time: StepTime) -> dict[str, float]:
    """Seconds of a step by line."""
    again = sum(term.seconds for term in time.terms if term.name.endswith("recomputation"))
    return {
        "recomputation": again, "compute": time.compute - again, "communication": time.exposed_communication,
        "offload": time.offload, "optimizer": time.optimizer,
    }  # fmt: skip


def lines(one: Beside) -> dict[str, float]:
    """Seconds by which the plan is faster, by line, the largest first; those that say something."""
    if one.plan is None:
        return {}
    before, after = parts(one.published.time), parts(one.plan.time)
    saved = {name: before[name] - after[name] for name in before}
    kept = {name: value for name, value in saved.items() if abs(value) >= SHOWN * one.published.time.total}
    return dict(sorted(kept.items(), key=lambda entry: -entry[1]))


def reason(one: Beside) -> str:
    """Why the plan is faster, or slower, than what was published."""
    if one.plan is None:
        return "nothing fits"
    what = changed(one.published.job, one.plan.job)
    if not what:
        return "the published configuration"
    told = [f"{seconds(abs(value))} {'less' if value > 0 else 'more'} {name}" for name, value in lines(one).items()]
    return f"{what}: {', '.join(told) or 'as fast, within a thousandth'}"


def own_code_needs(row: Row) -> float:
    """GiB that the run's own code needs, as benchmarks/published_memory.py counts it. Raises `UncomputableError`."""
    return needed(predict(row))


def shortage(one: Beside) -> str:
    """Why the published configuration does not fit, and why it ran; empty where it fits."""
    fit = one.published.fit
    if fit.accepted:
        return ""
    text = fit.shortage
    card = one.published.job.cluster.capacity or 0
    if fit.gpu.needed <= card:
        return f"{text}; it fits without the {RESERVE:.0%} kept free"
    own = int(own_code_needs(one.row) * GiB)
    return f"{text} under transformers and DeepSpeed; {_engine(one.row)}'s own code needs {gib(own)}"


def _engine(row: Row) -> str:
    return re.sub(r"^.*/|@.*$", "", row.column("source").split(" ")[0])
