"""Results as the dataclasses of `--json` (`zeroplan.schema`), and those as text."""

from __future__ import annotations

import json
from typing import Any

from zeroplan.clock import Speed, Term
from zeroplan.costs.operations import operations
from zeroplan.costs.passes import alone
from zeroplan.costs.step_timeline import Instant
from zeroplan.deepspeed.write_zero import BUFFERS, with_defaults
from zeroplan.fit import Fit, TierFit
from zeroplan.ledger import Activations, Copied, Ledger, Line, Moment, Tier, Transfer, less_activations, total
from zeroplan.levels import Level, shown_by
from zeroplan.report.letters import letters
from zeroplan.schema import estimate, job, memory, step_time
from zeroplan.schema.json_object import JsonDocument, as_json, copied
from zeroplan.specs.headroom import Headroom
from zeroplan.specs.job import Job
from zeroplan.specs.model import Model
from zeroplan.specs.scope import Scope
from zeroplan.specs.strategy import Strategy
from zeroplan.symbols import BY_LETTER, SYMBOLS


def dumps(document: JsonDocument) -> str:
    return json.dumps(as_json(document), indent=2)


def strategy_estimate(of: Job, ledger: Ledger, verdict: Fit, speed: Speed | None = None) -> estimate.StrategyEstimate:
    """Everything about one strategy."""
    return estimate.StrategyEstimate(
        **vars(_job_object(of, ledger)),
        memory=memory.MemoryObject(
            gpu=_gpu_memory(of, ledger, verdict),
            host=memory.HostMemory(**vars(_tier(ledger.host)), beside=[line_object(one) for one in verdict.beside]),
            nvme=_tier(ledger.nvme),
        ),
        compute=_compute(of),
        time=time_object(speed) if speed else None,
        traffic=[_transfer(transfer) for transfer in ledger.traffic],
        copies=[_copied(entry) for entry in ledger.copies],
        fit=fit_object(verdict),
    )


def _gpu_memory(of: Job, ledger: Ledger, verdict: Fit) -> memory.GpuMemory:
    valued = letters(of, (entry for entry, _phases in ledger.gpu.lines()))
    return memory.GpuMemory(
        **vars(_tier(ledger.gpu)),
        letters={letter: _letter(letter, value) for letter, value in valued.items()},
        activations=_activations(of, ledger),
        closed_forms=[line_object(entry) for entry in ledger.closed_forms] or None,
        outside=[line_object(entry) for entry in verdict.outside],
        levels={level.name: level_object(level) for level in shown_by(of, ledger)},
    )


def _letter(letter: str, value: int) -> memory.Letter:
    return memory.Letter(value=value, unit=BY_LETTER[letter].unit, meaning=BY_LETTER[letter].meaning)


def _job_object(of: Job, ledger: Ledger) -> job.JobObject:
    cluster = of.cluster
    return job.JobObject(
        model=model_object(of.model),
        cluster=job.ClusterObject(
            name=cluster.name or None,
            nodes=cluster.nodes,
            gpus_per_node=cluster.gpus_per_node,
            gpus=cluster.gpus,
            gpu=cluster.gpu.name if cluster.gpu else None,
        ),
        workload=of.workload,
        strategy=strategy_object(of.strategy),
        not_counted=of.strategy.not_counted,
        accounting=ledger.accounting,
    )


def _activations(of: Job, ledger: Ledger) -> Activations | None:
    """Activations of the model alone."""
    return alone(of) if ledger.accounting == "deepspeed" else None


def fit_object(verdict: Fit) -> memory.FitObject:
    """Needed against capacity, tier by tier."""
    gpu = {**vars(_tier_fit(verdict.gpu)), "fits": verdict.fits, "verdict": verdict.verdict}
    return memory.FitObject(**gpu, host=_tier_fit(verdict.host), nvme=_tier_fit(verdict.nvme))


def scope_object(scope: Scope) -> job.ScopeObject:
    """The job that the numbers are of."""
    return job.ScopeObject(
        trains=scope.trains, model=scope.model, loss=scope.loss, tokens_per_sequence=scope.seq, excluded=scope.excluded,
        unplanned=scope.unplanned, line=scope.line,
    )  # fmt: skip


def held_estimate(of: Job, ledger: Ledger) -> estimate.HeldEstimate:
    """What still holds of a job of which a part is not planned: bytes held between steps."""
    held = memory.Held(gpu=_held(ledger.gpu), host=_held(ledger.host), nvme=_held(ledger.nvme))
    return estimate.HeldEstimate(**vars(_job_object(of, ledger)), held=held, fit=None, time=None)


def _held(tier: Tier) -> memory.HeldTier:
    return memory.HeldTier(bytes=total(tier.resident), lines=[line_object(entry) for entry in tier.resident])


def kept_free(headroom: Headroom | None, capacity: int | None) -> job.KeptFree | None:
    """What of each card is kept free; None without --headroom."""
    if headroom is None or capacity is None:
        return None
    return job.KeptFree(share=headroom.reserve(capacity), bytes=headroom.of(capacity))


def timeline(course: list[Instant]) -> list[step_time.TimelineMoment]:
    """Moments of a step in order."""
    return [step_time.TimelineMoment(instant=instant, bytes=instant.bytes) for instant in course]


def _compute(of: Job) -> step_time.Compute | None:
    counted = operations(of)
    if counted is None:
        return None
    convention = (
        "2·m·n·k a product; backward without what checkpointing runs again; flops: attention over all pairs of tokens, "
        "as torch's FlopCounterMode counts; flops_causal: fused causal kernels over a token and those before it"
    )
    return step_time.Compute(flops=counted.flops, flops_causal=counted.causal, convention=convention)


def time_object(speed: Speed) -> step_time.StepTimeObject:
    """Seconds of a step, and where they go."""
    step = speed.step
    return step_time.StepTimeObject(
        step=step.total,
        interval=speed.interval,
        tokens=speed.tokens,
        tokens_per_s_per_gpu=speed.tokens_per_gpu,
        utilisation=[copied(step_time.UtilisationObject, one) for one in speed.utilisation],
        groups=step.groups,
        terms=[term_object(entry) for entry in step.terms],
    )


def term_object(entry: Term) -> step_time.TermObject:
    """A term with its formula, values and rates."""
    provenance = entry.provenance
    return step_time.TermObject(
        group=entry.group,
        name=entry.name,
        seconds=entry.seconds,
        times=entry.times,
        formula=provenance.equation,
        symbols={SYMBOLS[name].letter: value for name, value in entry.symbols.items()},
        source=provenance.cited,
        evidence=entry.evidence,
        figures=entry.figures,
    )


def level_object(level: Level) -> memory.MemoryLevel:
    return copied(memory.MemoryLevel, level)


def strategy_object(strategy: Strategy) -> Strategy:
    """With the path and the buffers that its ds_config.json states of what is on NVMe, whether or not it was read from
    one.
    """
    parts: dict[str, Any] = {name: getattr(strategy, name) for name in BUFFERS}
    stated = {name: with_defaults(part, name) for name, part in parts.items() if part and part.device == "nvme"}
    return strategy._replace(**parts | stated)


def model_object(model: Model) -> job.ModelObject:
    packed = sum(each.elements for each in model.packed) if model.quantization else None
    return copied(
        job.ModelObject, model, architecture=model.architecture or None, parameters=model.products,
        packed_elements=packed,
    )  # fmt: skip


def _tier(tier: Tier) -> memory.MemoryTier:
    return memory.MemoryTier(
        lines=[memory.PhasedLine(**vars(line_object(entry)), phases=phases) for entry, phases in tier.lines()],
        resident=total(tier.resident),
        phases={phase: total(tier.worst(phase).lines) for phase in tier.phases},
        phases_less_activations={
            phase: less_activations(tier, phase) for phase in tier.phases if any(m.phase == phase for m in tier.moments)
        },
        peak=_moment(tier.peak),
    )


def _moment(peak: Moment) -> memory.MomentObject:
    return memory.MomentObject(
        bytes=total(peak.lines),
        phase=peak.phase,
        place=peak.place,
        layer=peak.layer,
        largest=[memory.NamedBytes(name=entry.name, bytes=entry.bytes) for entry in peak.largest],
    )


def line_object(entry: Line) -> memory.LineObject:
    return copied(memory.LineObject, entry)


def collective(transfer: Transfer) -> memory.Collective:
    return copied(memory.Collective, transfer)


def _transfer(transfer: Transfer) -> memory.TransferObject:
    return copied(memory.TransferObject, transfer)


def _copied(entry: Copied) -> memory.CopiedObject:
    return memory.CopiedObject(**vars(line_object(entry.line)), from_=entry.source, to=entry.target)


def _tier_fit(tier: TierFit) -> memory.TierFitObject:
    return copied(memory.TierFitObject, tier)
