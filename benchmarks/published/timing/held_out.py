"""Each source predicted with constants fitted without it: what is promised of rows and clusters never seen."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from typing import NamedTuple

from benchmarks.published.timing.measures import ComparedStep
from zeroplan.costs.timing.step import step_time
from zeroplan.specs.cluster import Gpu, SourcedValue

GRIDS: dict[str, tuple[float, ...]] = {
    "a100": (215e12, 230e12, 240e12, 250e12, 260e12, 271e12), "h100": (560e12, 590e12, 625e12, 660e12, 700e12, 794e12),
    "other": (0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2), "attention": (0.7, 0.85, 1.0, 1.15, 1.3),
    "shown": (0.0, 0.15, 0.3, 0.5), "shown_at_stage_3": (0.0, 0.25, 0.5, 0.75, 1.0), "passes": (0.7, 1.0, 1.3, 1.6),
    "logits": (12.0, 24.0, 36.0),
}  # fmt: skip
"""What each constant may be: sustained matmul on A100 and H100, that of other cards, attention and element-wise passes
as a share of the shipped, what shows under FSDP and under DeepSpeed's stage 3, and bytes of a logit."""
START = {name: sorted(values)[len(values) // 2] for name, values in GRIDS.items()}
"""The fit begins in the middle of each grid, not at what is shipped."""
ROUNDS = 2


class HeldOut(NamedTuple):
    chosen: dict[str, dict[str, float]]
    """For each source, without it."""
    errors: list[float]


def held_out(compared: Sequence[ComparedStep]) -> HeldOut:
    """Coordinate descent on the mean absolute error of the other sources' rows."""
    chosen: dict[str, dict[str, float]] = {}
    errors: list[float] = []
    for source in sorted({one.row.family for one in compared}):
        others = [one for one in compared if one.row.family != source]
        best = fitted(others)
        chosen[source] = best
        errors += [error(one, best) for one in compared if one.row.family == source]
    return HeldOut(chosen, errors)


def fitted(compared: Sequence[ComparedStep]) -> dict[str, float]:
    best = dict(START)
    for _round in range(ROUNDS):
        for name, values in GRIDS.items():
            best[name] = min(values, key=lambda value: miss(compared, {**best, name: value}))
    return best


def miss(compared: Sequence[ComparedStep], constants: dict[str, float]) -> float:
    """Mean over rows and mean over sources, so that one large source does not decide alone."""
    by_source: dict[str, list[float]] = {}
    for one in compared:
        by_source.setdefault(one.row.family, []).append(abs(error(one, constants)))
    return mean(mean(found) for found in by_source.values()) + mean(
        value for found in by_source.values() for value in found
    )


def error(one: ComparedStep, constants: dict[str, float]) -> float:
    """Of one row, under these constants."""
    job, ledger, software, _row = one.timed
    cluster = job.cluster._replace(gpu=_card(job.cluster.gpu, constants))
    stage_3 = constants["shown_at_stage_3" if "DeepSpeed" in software.name else "shown"]
    software = software._replace(
        exposed_share=_set(software.exposed_share, constants["shown"]),
        exposed_share_at_stage_3=_set(software.exposed_share_at_stage_3, stage_3),
        passes=_set(software.passes, constants["passes"] * software.passes.value),
        logit_bytes=_set(software.logit_bytes, constants["logits"] / 24.0 * software.logit_bytes.value),
    )  # fmt: skip
    return step_time(job._replace(cluster=cluster), ledger, software).total / one.measured - 1


def _card(card: Gpu | None, constants: dict[str, float]) -> Gpu | None:
    if card is None or card.sustained_matmul is None:
        return card
    rate = {"a100-80gb": constants["a100"], "a100-40gb": constants["a100"], "h100-80gb": constants["h100"],
            "h200": constants["h100"]}.get(card.name)  # fmt: skip
    wide = card.memory_bandwidth and card.memory_bandwidth.value < 2.5e12 and card.name == "h100-80gb"
    if rate is None or wide:
        rate = constants["other"] * card.sustained_matmul.value
    return card._replace(
        sustained_matmul=_set(card.sustained_matmul, rate),
        attention={
            kernel: _set(figure, constants["attention"] * figure.value) for kernel, figure in card.attention.items()
        },
    )


def _set(figure: SourcedValue, value: float) -> SourcedValue:
    return figure._replace(value=value)
