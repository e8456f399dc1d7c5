"""What `explain` has of a word as the dataclasses of its `--json`."""

from __future__ import annotations

from collections.abc import Sequence

from zeroplan.autograd.equation import equation
from zeroplan.costs.closed_forms import LayerComparison, compared, counted, peaks
from zeroplan.costs.paper import closed_forms
from zeroplan.costs.timing.step import step_time
from zeroplan.deepspeed.key_cost import KeyCostRow
from zeroplan.deepspeed.keys.key import Key
from zeroplan.ledger import less_activations, provenance, total
from zeroplan.levels import Level
from zeroplan.quantities import Quantity
from zeroplan.report import json_objects
from zeroplan.report.activations import symbols_of
from zeroplan.report.explain import Lines, distinct
from zeroplan.schema import explain as schema
from zeroplan.specs.account import SavedByOperator
from zeroplan.specs.execution import AllocatedActivations
from zeroplan.specs.job import Job
from zeroplan.sums import Sum
from zeroplan.symbols import SYMBOLS


def entries(pairs: Lines) -> list[schema.EntryObject]:
    """Lines and collectives."""
    return [
        schema.EntryObject(
            stage=job.strategy.stage,
            name=entry.name,
            bytes=entry.bytes,
            formula=entry.formula,
            worked=entry.worked,
            symbols=entry.symbols,
            source=entry.source,
            note=provenance(entry.rule).note,
        )
        for job, entry in distinct(pairs)
    ]


def key(known: Key, costs: Sequence[KeyCostRow]) -> schema.CostedKey:
    """A key, and what its values cost."""
    return schema.CostedKey(known=known, costs=[_cost(row) for row in costs])


def _cost(row: KeyCostRow) -> schema.KeyCost | schema.RefusedValue:
    if row.ledger is None:
        return schema.RefusedValue(value=row.value, refused=row.refused)
    gpu = row.ledger.gpu
    return schema.KeyCost(
        value=row.value,
        gpu=total(gpu.resident),
        host=total(row.ledger.host.resident),
        nvme=total(row.ledger.nvme.resident),
        copied=sum(entry.line.bytes for entry in row.ledger.copies),
        step=step_time(row.job, row.ledger).total if row.job and row.job.cluster.gpu else None,
        phases_less_activations={phase: less_activations(gpu, phase) for phase in gpu.phases},
        traffic=[json_objects.collective(transfer) for transfer in row.ledger.traffic],
    )


def quantity(job: Job, entry: Quantity) -> schema.QuantityObject:
    """What tables sum up by a formula."""
    return schema.QuantityObject(
        stage=job.strategy.stage,
        name=entry.name,
        unit=entry.unit,
        value=entry.value,
        formula=entry.origin.equation,
        worked=entry.worked,
        symbols={SYMBOLS[name].letter: value for name, value in entry.symbols.items()},
        source=entry.origin.cited,
        evidence=entry.evidence,
        note=entry.origin.note,
        said=entry.said,
    )


def sum_of(job: Job, one: Sum) -> schema.SumObject:
    """A row of a table with its parts."""
    return schema.SumObject(
        stage=job.strategy.stage,
        name=one.name,
        unit="s" if one.unit == "s" else "bytes",
        value=one.value,
        meaning=one.meaning,
        parts=[schema.PartObject(name=name, value=value) for name, value in one.parts],
        evidence=one.evidence,
        said=one.said,
    )


def stage_level(job: Job, level: Level) -> schema.StageLevel:
    """What an instrument shows."""
    return schema.StageLevel(**vars(json_objects.level_object(level)), stage=job.strategy.stage, name=level.name)


def activations(job: Job) -> schema.ExplainedActivations:
    """Closed forms, and makes of layers, their operators, each part beside Korthikanti's, and peaks."""
    forms, saved = [json_objects.line_object(entry) for entry in closed_forms(job)], counted(job)
    if saved is None:
        return schema.ExplainedActivations(stage=job.strategy.stage, closed_forms=forms, counted=None)
    whole = schema.CountedActivations(
        saved=int(saved.bytes),
        symbols=symbols_of(saved),
        layers=[_layer(one) for one in compared(job, saved)],
        rest=[_saved(each) for each in saved.rest],
        peaks={phase: _peak(at) for phase, at in peaks(job).items()},
    )
    return schema.ExplainedActivations(stage=job.strategy.stage, closed_forms=forms, counted=whole)


def _layer(one: LayerComparison) -> schema.SavedByLayerObject:
    beside = [
        schema.KorthikantiPart(
            part=part.name, bytes=int(part.counted), published=part.published.bytes,
            because=[schema.ReasonObject(text=reason.text, bytes=reason.bytes) for reason in part.reasons],
        )
        for part in one.parts
    ]  # fmt: skip
    return schema.SavedByLayerObject(
        path=one.make.path, layers=one.make.layers, bytes=int(one.make.bytes), formula=equation(one.make.bytes),
        kept=[_saved(each) for each in one.make.kept], beside_korthikanti=beside,
    )  # fmt: skip


def _saved(each: SavedByOperator) -> schema.SavedByOperatorObject:
    return schema.SavedByOperatorObject(
        module=each.module, operator=each.operator, part=each.part, bytes=int(each.bytes), formula=equation(each.bytes)
    )


def _peak(at: AllocatedActivations) -> schema.ActivationPeak:
    kinds = [
        schema.ActivationKind(name=name, bytes=int(size), formula=equation(size)) for name, size in at.kinds.items()
    ]
    return schema.ActivationPeak(place=at.module, kinds=kinds)
