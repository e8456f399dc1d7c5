"""`--json`: one documented shape for every command. Bytes are integers, times are seconds.

estimate, and each element of recommend's `plan` and `rejected`:
  model {name, family, parameters, source, inferred, architecture (its class), approximate (share by which its memory
  may be off), unread[] (keys of its config.json)}; cluster {nodes, gpus_per_node, gpus, gpu};
  workload {seq, global_batch (sequences of a step; null: nobody asked for a number)}; strategy;
  not_counted[] (what no number here has in it); accounting; memory.{gpu,host,nvme} = {lines[], resident, phases,
  peak}; memory.gpu.letters = {letter: {value, unit, meaning}}, those of lines whose formula is in the model's own sizes
  (one stage asked); memory.gpu.outside[] (the CUDA context and NCCL's buffers, not in the peak); memory.gpu.levels =
  {allocated, reserved, nvidia-smi}, each {bytes, low, high, evidence, reason}; memory.gpu.activations = {saved,
  forward_peak, backward_peak} (bytes of the model alone over what is held before forward; saved: when forward has
  returned and only the loss is kept); under the paper's accounting memory.gpu.closed_forms[] (activations as
  Korthikanti and ZeRO-Infinity count them); traffic[] (collectives); copies[] (between gpu, host and nvme, of one rank
  in a step); compute (null where no forward is written out) = {flops {forward, backward, recomputed}, flops_causal,
  convention}: operations of matrix products of one micro-batch on one GPU; time (null where no card is named) = {step,
  interval {low, high, reason}, tokens, tokens_per_s_per_gpu, utilisation[] {convention, value}, groups {compute,
  communication, offload, optimizer}, terms[] {group, name, seconds, times, formula, symbols, source, evidence,
  figures[]}}: seconds of one optimizer step, a term's `seconds` those of all its `times` together; fit {capacity,
  needed, most (of a card that such runs took; host: of a node's memory with memory.host.beside[]), headroom, fits,
  verdict {fits, tight, does_not_fit; null: no capacity is known}, host, nvme}; with --timeline also timeline[] {phase,
  place, held, beside, activations, bytes}:
  moments of a step in order.
every command: scope {trains, model, loss, tokens_per_sequence, excluded[], unplanned[] {what, effect, instead},
  line}: the job that the numbers are of. estimate with --partial where a part of the job is not planned: held {gpu,
  host, nvme: {bytes, lines[]}} in place of memory, traffic and copies; fit and time are null.
recommend, and with --headroom also estimate, compare's rows[] and matrix: kept_free {share, bytes}: of each card, which
  fit.capacity is without.
compare: model; rows[] {changed {option: value}, stage, gpus, strategy, fit, time, assumed[]}, or {changed, reason} of a
  combination that cannot run.
recommend: searched {stood_for, timed, counted, proven (false where the search stopped after its limit of work),
  bound_seconds or bound_bytes (what no other strategy can be under)}; with_code, as one of rejected, where lines in the
  training script would gain (--allow code).
recommend where flash_attention_2 would gain and no attention was asked for, also flash_attention_2: as one of rejected.
recommend where nothing fits also ways_out_complete (false where the searches for them stopped after their limit).
recommend with --gpus auto also fewest {gpus (null: nothing fits), smaller, lack, proven}; with several cards cards[]
  {gpu, gpu_mem or cluster: as written, gpus, plan, lack, fewest, assumed[]}; with --max-params largest {row:
  {parameters, plan, next_size, lack, proven (false where a search stopped, and a larger one may fit)}, or null}.
  lack {tier, bytes, name}: of the strategy nearest to fitting, null where one fits.
  With --tokens or --price also run {tokens, steps, seconds (low, high: by the interval of a step), gpu_hours,
  deadline_seconds, late_seconds (less than 0: to spare), in_time, price {amount (of a GPU-hour), currency}, cost,
  cost_per_million_tokens}, null where it was not asked for; where the deadline is missed in_time, as fewest: the fewest
  GPUs that make it; fewest.late_seconds: of the next smaller number, where it has room.
  With --why also why[] {what, is_plan, reason, lack, proven, seconds_slower (of a step; null beside no plan),
  bytes_more (of a GPU; null but with --objective least-memory), seconds[] and bytes[] {name, plan, alternative,
  difference} (lines that differ; bytes of the place `of`: gpu, host or nvme), alternative (as `plan`; null: that is the
  plan, or nothing is)}.
matrix: rows[] {model, strategies {name: {stage, micro_batch, grad_accum, checkpointing, offload_optimizer,
  offload_param, gpus, held, peak, needed, capacity, host_needed, nvme_needed, fits, sent, step, tokens_per_s_per_gpu,
  headroom}, or {reason} of what cannot run}}; assumed[].
diff: files[]; changes[] {keys[] {key, a, b (as DeepSpeed reads them, defaults filled in), in_a, in_b (whether it is
  written)}, alone, last, refused_alone, nothing[] (why it changes no number; null where it does)}; with a model also
  model, a, b {as matrix's strategies, calls, copied}, together, sum: effects {needed, peak, held (of a GPU), host,
  nvme, calls, sent, copied, step, tokens_per_s_per_gpu}: what the second config has more than the first, a change alone
  made to the first, and as the last one towards the second; null where DeepSpeed refuses that.
check: files[]; findings[] {rule, severity, file, line, column, end_column (behind the key), path, message, write, link,
  edits[] {start, end, text} (what --fix would do, in letters from the file's beginning)}.
observe: log; lines; runs (that the log holds: the last is observed), first_line (of it); steps (optimizer steps that it
  tells of, 0: none); model; contradictions[] (where its run is another than that predicted); observed[] {group, name,
  unit, predicted (null where nothing is), observed, half (of the last printed digit), statistic {median, largest, last,
  sum}, seen, line, difference (predicted less observed, 0 within `half`)}; notes[].
calibrate: date; machine; gpu (the card's preset or null); gpus_per_node (null without a GPU); figures[] {field, value,
  unit, how}; observations[]; left_out[]; written (the file, or null).
gpus, clusters, models: a list under the command's name; keys end in the unit (memory_bytes, link_bytes_per_s,
  peak_flops_per_s {precision: value}), null where no preset states a number.
`lines[]` summed over those that name a phase in `phases` give that phase's peak, and `resident` likewise;
`first_forward` and `first_backward` are there when the run's first step needs more than the later ones.
host and nvme are per node, gpu is per GPU.
"""

from __future__ import annotations

import json
from typing import Any

from zeroplan.clock import GROUPS, Speed, Term
from zeroplan.costs.operations import operations
from zeroplan.costs.passes import alone
from zeroplan.costs.step_timeline import Instant
from zeroplan.deepspeed.write_zero import BUFFERS, with_defaults
from zeroplan.fit import Fit, TierFit
from zeroplan.ledger import Copied, Ledger, Line, Tier, Transfer, less_activations, total
from zeroplan.levels import Level, shown_by
from zeroplan.report.letters import letters
from zeroplan.specs.headroom import Headroom
from zeroplan.specs.job import Job
from zeroplan.specs.model import Model
from zeroplan.specs.scope import EXCLUDED, TRAINS, Scope
from zeroplan.specs.strategy import Strategy
from zeroplan.symbols import SYMBOLS

SCHEMA_VERSION = 1


def dumps(content: dict[str, Any]) -> str:
    return json.dumps({"schema_version": SCHEMA_VERSION, **content}, indent=2)


def strategy_object(job: Job, ledger: Ledger, verdict: Fit, speed: Speed | None = None) -> dict[str, Any]:
    """Everything about one strategy."""
    return {
        **_subject(job, ledger),
        "memory": {
            "gpu": {
                **_tier(ledger.gpu),
                "letters": letters(job, (entry for entry, _phases in ledger.gpu.lines())),
                "activations": _activations(job, ledger),
                **({"closed_forms": [unphased(entry) for entry in ledger.closed_forms]} if ledger.closed_forms else {}),
                "outside": [unphased(entry) for entry in verdict.outside],
                "levels": {level.name: _level(level) for level in shown_by(job, ledger)},
            },
            "host": {**_tier(ledger.host), "beside": [unphased(entry) for entry in verdict.beside]},
            "nvme": _tier(ledger.nvme),
        },
        "compute": _compute(job),
        "time": time_object(speed) if speed else None,
        "traffic": [_transfer(transfer) for transfer in ledger.traffic],
        "copies": [_copied(entry) for entry in ledger.copies],
        "fit": fit_object(verdict),
    }


def _subject(job: Job, ledger: Ledger) -> dict[str, Any]:
    """What the numbers are of."""
    cluster = job.cluster
    return {
        "model": model_object(job.model),
        "cluster": {
            "name": cluster.name or None,
            "nodes": cluster.nodes,
            "gpus_per_node": cluster.gpus_per_node,
            "gpus": cluster.gpus,
            "gpu": cluster.gpu.name if cluster.gpu else None,
        },
        "workload": job.workload._asdict(),
        "strategy": strategy_fields(job.strategy),
        "not_counted": list(job.strategy.not_counted),
        "accounting": ledger.accounting,
    }


def _activations(job: Job, ledger: Ledger) -> dict[str, int] | None:
    """Of the model alone."""
    found = alone(job) if ledger.accounting == "deepspeed" else None
    return found._asdict() if found else None


def fit_object(verdict: Fit) -> dict[str, Any]:
    """Needed against capacity, tier by tier."""
    found = {**_fit(verdict.gpu), "fits": verdict.fits, "verdict": verdict.verdict}
    return {**found, "host": _fit(verdict.host), "nvme": _fit(verdict.nvme)}


def scope_object(scope: Scope) -> dict[str, Any]:
    """The job that the numbers are of."""
    unplanned = [one._asdict() for one in scope.unplanned]
    return {
        "trains": TRAINS, "model": scope.model, "loss": scope.loss, "tokens_per_sequence": scope.seq,
        "excluded": list(EXCLUDED), "unplanned": unplanned, "line": scope.line,
    }  # fmt: skip


def held_object(job: Job, ledger: Ledger) -> dict[str, Any]:
    """What still holds of a job of which a part is not planned: bytes held between steps."""
    tiers = {"gpu": ledger.gpu, "host": ledger.host, "nvme": ledger.nvme}
    return {
        **_subject(job, ledger),
        "held": {
            name: {"bytes": total(tier.resident), "lines": [unphased(entry) for entry in tier.resident]}
            for name, tier in tiers.items()
        },
        "fit": None,
        "time": None,
    }


def kept_free(headroom: Headroom | None, capacity: int | None) -> dict[str, Any]:
    """`kept_free` {share, bytes} of each card, which `fit.capacity` is without; nothing where nobody asked for it."""
    if headroom is None or capacity is None:
        return {}
    return {"kept_free": {"share": headroom.reserve(capacity), "bytes": headroom.of(capacity)}}


def timeline(course: list[Instant]) -> list[dict[str, Any]]:
    """`timeline[]`: moments of a step in order, each {phase, place, held, beside, activations, bytes}."""
    return [{**instant._asdict(), "bytes": instant.bytes} for instant in course]


def _compute(job: Job) -> dict[str, Any] | None:
    found = operations(job)
    if found is None:
        return None
    convention = (
        "2·m·n·k a product; backward without what checkpointing runs again; flops: attention over all pairs of tokens, "
        "as torch's FlopCounterMode counts; flops_causal: fused causal kernels over a token and those before it"
    )
    return {"flops": found.flops._asdict(), "flops_causal": found.causal._asdict(), "convention": convention}


def time_object(speed: Speed) -> dict[str, Any]:
    """Seconds of a step, and where they go."""
    step, interval = speed.step, speed.interval
    return {
        "step": step.total,
        "interval": interval._asdict(),
        "tokens": speed.tokens,
        "tokens_per_s_per_gpu": speed.tokens_per_gpu,
        "utilisation": [{"convention": used.convention, "value": used.value} for used in speed.utilisation],
        "groups": {group: step.of(group) for group in GROUPS},
        "terms": [term_object(entry) for entry in step.terms],
    }


def term_object(entry: Term) -> dict[str, Any]:
    """A term with its formula, values and rates."""
    provenance = entry.provenance
    return {
        "group": entry.group,
        "name": entry.name,
        "seconds": entry.seconds,
        "times": entry.times,
        "formula": provenance.equation,
        "symbols": {SYMBOLS[name].letter: value for name, value in entry.symbols.items()},
        "source": provenance.cited,
        "evidence": entry.evidence,
        "figures": [figure._asdict() for figure in entry.figures],
    }


def _level(level: Level) -> dict[str, Any]:
    found = level._asdict()
    del found["name"]
    return found


def strategy_fields(strategy: Strategy) -> dict[str, Any]:
    """A strategy by its fields, and each part that has fields of its own by those: what is on NVMe with the path and
    the buffers that its ds_config.json states, whether or not it was read from one.
    """
    fields = strategy._asdict()
    for name in BUFFERS:
        if (offload := fields[name]) and offload.device == "nvme":
            fields[name] = with_defaults(offload, name)
    return {name: part._asdict() if hasattr(part, "_asdict") else part for name, part in fields.items()}


def model_object(model: Model) -> dict[str, Any]:
    return {
        "name": model.name,
        "family": model.family,
        "parameters": model.parameters,
        "source": model.source,
        "inferred": model.inferred,
        "architecture": model.architecture or None,
        "approximate": model.approximate,
        "unread": list(model.unread),
    }


def _tier(tier: Tier) -> dict[str, Any]:
    peak = tier.peak
    return {
        "lines": [_line(entry, phases) for entry, phases in tier.lines()],
        "resident": total(tier.resident),
        "phases": {phase: total(tier.worst(phase).lines) for phase in tier.phases},
        "phases_less_activations": {
            phase: less_activations(tier, phase) for phase in tier.phases if any(m.phase == phase for m in tier.moments)
        },
        "peak": {
            "bytes": total(peak.lines),
            "phase": peak.phase,
            "place": peak.place,
            "layer": peak.layer,
            "largest": [{"name": entry.name, "bytes": entry.bytes} for entry in peak.largest],
        },
    }


def _line(entry: Line, phases: list[str]) -> dict[str, Any]:
    return {
        "name": entry.name,
        "bytes": entry.bytes,
        "dtype": entry.dtype,
        "phases": phases,
        "formula": entry.formula,
        "symbols": entry.symbols,
        "source": entry.source,
        "evidence": entry.evidence,
    }


def unphased(entry: Line) -> dict[str, Any]:
    """A line without a phase to count in."""
    found = _line(entry, [])
    del found["phases"]
    return found


def _transfer(transfer: Transfer) -> dict[str, Any]:
    return {
        "when": transfer.when,
        "collective": transfer.collective,
        "dtype": transfer.dtype,
        "calls": transfer.calls,
        "bytes": transfer.bytes,
        "wire_bytes": transfer.wire_bytes,
        "group": transfer.group,
        "ranks": transfer.ranks,
        "formula": transfer.formula,
        "source": transfer.source,
    }


def _copied(entry: Copied) -> dict[str, Any]:
    return {"from": entry.source, "to": entry.target, **unphased(entry.line)}


def _fit(tier: TierFit) -> dict[str, Any]:
    return {
        "capacity": tier.capacity, "needed": tier.needed, "most": tier.most, "headroom": tier.headroom,
        "fits": tier.fits, "verdict": tier.verdict,
    }  # fmt: skip
