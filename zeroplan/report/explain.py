"""The screen of `zeroplan explain`: formula, symbols with their values, source and assumptions."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType
from rich.text import Text

from zeroplan.categories import Category
from zeroplan.costs.timing.step import step_time
from zeroplan.deepspeed.key_cost import UNCOUNTED, KeyCostRow, differ
from zeroplan.deepspeed.keys.key import Key
from zeroplan.ledger import Ledger, Line, Transfer, less_activations, provenance, total
from zeroplan.report.console import heading, table
from zeroplan.report.letters import letters_in
from zeroplan.report.subject import gpus, title
from zeroplan.sources import DEEPSPEED, SOURCES
from zeroplan.specs.job import Job
from zeroplan.symbols import BY_LETTER, SYMBOLS, Symbol
from zeroplan.units import gb, gib, seconds

Lines = list[tuple[Job, Line | Transfer]]


def screen(entries: Lines, keys: list[Key], costs: dict[str, list[KeyCostRow]], job: Job) -> list[Any]:
    """Each formula once, with what it gives at each stage; then the keys of that name, and what they cost."""
    parts: list[Any] = []
    for rule in dict.fromkeys(entry.rule for _job, entry in entries):
        group = [(job, entry) for job, entry in entries if entry.rule is rule]
        parts += _formula(group)
    for known in keys:
        parts += _key(known)
        if rows := costs.get(known.path):
            parts += _costs(job, known, rows)
    return parts


def _formula(group: Lines) -> list[RenderableType]:
    _job, first = group[0]
    origin = provenance(first.rule)
    written = "" if _equations(group) else origin.equation
    source = SOURCES[origin.source]
    parts: list[RenderableType] = [
        heading(f"{first.name} = {written}" if written else first.name),
        Text(f"  {origin.meaning}"),
    ]
    grid = table(["", "at", "worked out", "bytes", ""])
    for index in (1, 2):
        grid.columns[index].justify = "left"
        grid.columns[index].no_wrap = False
    for job, entry in distinct(group):
        size = gb(entry.bytes) if source.kind == "paper" else gib(entry.bytes)
        grid.add_row("", f"ZeRO-{job.strategy.stage}", entry.worked, f"{entry.bytes:,}", size)
    parts.append(grid)
    if isinstance(first.rule, Category) and not _equations(group):
        parts.append(Text(f"  counted: {first.formula}"))
    parts += [Text(f"  {one.letter}  {one.meaning}{f' [{one.unit}]' if one.unit else ''}") for one in _symbols(group)]
    parts.append(Text(f"  source: {origin.cited} ({source.address})"))
    parts.append(Text(f"  evidence: {source.kind}"))
    if origin.note:
        parts.append(Text(f"  note: {origin.note}"))
    return [*parts, ""]


def _equations(group: Lines) -> list[str]:
    """In the model's sizes, one for each model and stage, where bytes were counted operator by operator."""
    return [entry.equation for _job, entry in group if isinstance(entry, Line) and entry.equation]


def _symbols(group: Lines) -> list[Symbol]:
    """The letters that the formula, or each line's own equation, is written in."""
    first = group[0][1]
    if not (equations := _equations(group)):
        return [] if isinstance(first.rule, Category) else [SYMBOLS[name] for name in first.symbols]
    used = letters_in(equations)
    return [symbol for letter, symbol in BY_LETTER.items() if letter in used]


def distinct(group: Lines) -> Lines:
    seen: set[tuple[int, int, str]] = set()
    kept = []
    for job, entry in group:
        mark = (job.strategy.stage, entry.bytes, str(entry.symbols))
        if mark not in seen:
            seen.add(mark)
            kept.append((job, entry))
    return kept


def _key(known: Key) -> list[RenderableType]:
    unit = f" {known.unit}" if known.unit else ""
    parts: list[RenderableType] = [
        heading(known.path),
        Text(f"  {known.meaning}"),
        Text(f"  {known.kind}, default {_value(known.default)}{unit}"),
    ]
    if known.choices:
        parts.append(Text(f"  one of {', '.join(known.choices)}"))
    if known.stages != (0, 1, 2, 3):
        stages = ", ".join(map(str, known.stages)) or "none"
        parts.append(Text(f"  has an effect at ZeRO stage {stages}"))
    if known.auto:
        parts.append(Text(f'  "auto": the Trainer fills {known.auto}'))
    if known.aliases:
        parts.append(Text(f"  also written {', '.join(known.aliases)}"))
    if known.deprecated:
        parts.append(Text(f"  deprecated: write {known.deprecated}"))
    return [*parts, Text(f"  source: DeepSpeed {DEEPSPEED} {known.place}"), ""]


def _costs(job: Job, known: Key, rows: list[KeyCostRow]) -> list[RenderableType]:
    """The key's values side by side for one model."""
    counted = [(row.value, row.ledger, row.job or job) for row in rows if row.ledger is not None]
    stops = [Text(f"  DeepSpeed stops at {_value(row.value)}: {row.refused}") for row in rows if row.ledger is None]
    if not differ(rows):
        nothing = "no byte and no call of this model's depends on it here"
        uncounted = "it moves bytes that this version does not count"
        return [*stops, Text(f"  {uncounted if known.name in UNCOUNTED else nothing}"), ""]
    grid = table(["", *(_value(value) for value, _ledger, _job in counted)])
    quantities = [_quantities(changed, ledger) for _stated, ledger, changed in counted]
    same = []
    for name, first in quantities[0].items():
        shown = [one[name] for one in quantities]
        if len(set(shown)) > 1:
            grid.add_row(name, *shown)
        else:
            same += [f"{name} {first}"] * (not first.startswith("0 "))
    what = f"  for {title(job.model)} on {gpus(job)}, ZeRO-{rows[0].stage}, per step (peaks less activations):"
    alike = [Text(f"  alike: {'; '.join(same)}", style="dim")] if same else []
    return [Text(what), grid, *alike, *stops, ""]


def _quantities(job: Job, ledger: Ledger) -> dict[str, str]:
    """All that a key may change, of one GPU or rank, or of a node."""
    times = [(t, t.times(job.strategy.micro_steps)) for t in ledger.traffic]
    step = {"a step": seconds(step_time(job, ledger).total)} if job.cluster.gpu else {}
    phases = {f"GPU, {phase}": gib(less_activations(ledger.gpu, phase)) for phase in ("forward", "backward", "step")}
    return {
        "GPU, held": gib(total(ledger.gpu.resident)), **phases,
        "host": gib(total(ledger.host.resident)), "NVMe": gib(total(ledger.nvme.resident)),
        "collectives": f"{sum(n * t.calls for t, n in times):,}",
        "sent by one rank": gb(sum(n * t.wire_bytes for t, n in times)),
        "copied over PCIe": gb(sum(c.line.bytes for c in ledger.copies if "gpu" in (c.source, c.target))),
        "read and written": gb(sum(c.line.bytes for c in ledger.copies if "nvme" in (c.source, c.target))), **step,
    }  # fmt: skip


def _value(value: object) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "none"}[value]
    return f"{value:,}" if isinstance(value, int) else str(value)
