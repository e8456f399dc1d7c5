"""Rows of `compare`, `matrix` and `diff` as the dataclasses of their `--json`."""

from __future__ import annotations

from zeroplan.deepspeed.effect import ConfigChange, Counted
from zeroplan.outcome import Outcome, outcome
from zeroplan.report import json_objects
from zeroplan.report.compare import Combination, Failed
from zeroplan.schema import comparisons as schema


def compare_row(row: Combination | Failed) -> schema.CompareRow | schema.FailedRow:
    if isinstance(row, Failed):
        return schema.FailedRow(changed=row.changed, reason=row.reason)
    return schema.CompareRow(
        changed=row.changed,
        stage=row.job.strategy.stage,
        gpus=row.job.ranks,
        strategy=json_objects.strategy_object(row.job.strategy),
        fit=json_objects.fit_object(row.fit),
        time=json_objects.time_object(row.speed),
        assumed=row.assumed,
        kept_free=json_objects.kept_free(row.headroom, row.job.cluster.capacity),
    )


def matrix_cell(cell: Outcome | str) -> schema.MatrixCell | schema.FailedCell:
    if isinstance(cell, str):
        return schema.FailedCell(reason=cell)
    return schema.MatrixCell(outcome=cell, headroom=cell.headroom)


def counted_config(end: Counted) -> schema.CountedConfig:
    whole, numbers = outcome(end.job, end.ledger, end.fit, end.speed), end.numbers
    return schema.CountedConfig(outcome=whole, headroom=whole.headroom, calls=numbers.calls, copied=numbers.copied)


def diff_keys(change: ConfigChange) -> list[schema.DiffKey]:
    return [
        schema.DiffKey(key=one.path, a=one.a, b=one.b, in_a=one.stated[0], in_b=one.stated[1])
        for one in change.differences
    ]


def diff_change(change: ConfigChange) -> schema.DiffChange:
    return schema.DiffChange(
        keys=diff_keys(change), alone=change.alone, last=change.last, refused_alone=change.refused or None,
        nothing=change.reasons if change.nothing else None,
    )  # fmt: skip
