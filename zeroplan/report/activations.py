"""The screen of `zeroplan explain activations`: what forward keeps, beside two papers' closed forms."""

from __future__ import annotations

from typing import Any

from rich.console import RenderableType
from rich.text import Text

from zeroplan.autograd.equation import equation, letters_of, terms
from zeroplan.costs.closed_forms import LayerComparison, compared, counted, peaks
from zeroplan.costs.paper import closed_forms
from zeroplan.ledger import Line, provenance
from zeroplan.report.console import heading, table
from zeroplan.report.letters import valued
from zeroplan.report.subject import title, trust
from zeroplan.sources import SOURCES
from zeroplan.specs.account import SavedActivations, SavedByOperator
from zeroplan.specs.execution import AllocatedActivations
from zeroplan.specs.job import Job
from zeroplan.symbols import BY_LETTER, SYMBOLS
from zeroplan.units import gib


def screen(job: Job) -> list[Any]:
    """Totals, then one layer part by part with reasons, then every operator with its equation."""
    saved, strategy = counted(job), job.strategy
    how = f"{strategy.precision}, {strategy.attention}, checkpointing {strategy.checkpointing}"
    parts: list[Any] = [
        heading("What forward keeps for backward"),
        Text(f"  {title(job.model)}, {strategy.micro_batch} × {job.workload.seq:,} tokens a GPU, {how}"),
        _totals(job, saved),
    ]
    if saved is None:
        text = "No equation: this family's forward is not written out."
        return [*parts, *_where(job, {}), Text(f"  {text}"), *_sources(job), ""]
    for one in compared(job, saved):
        if one.parts:
            parts += ["", heading(f"A layer beside Korthikanti's ({one.make.path}, {one.make.layers} of its make)")]
            parts += [_parts(one), *_reasons(one)]
    for make in saved.makes:
        parts += ["", heading(f"A layer, operator by operator ({make.path})"), _kept(make.kept)]
    parts += ["", heading("Outside of the layers, and shared by them"), _kept(saved.rest)]
    for phase, at in peaks(job).items():
        parts += ["", heading(f"The largest moment of {phase} ({at.module or 'loss'}), DeepSpeed aside"), _kinds(at)]
    return [*parts, *_spares(job, saved), *_where(job, symbols_of(saved)), *trust(job), *_sources(job), ""]


def _spares(job: Job, saved: SavedActivations) -> list[RenderableType]:
    """What selective checkpointing is worth here: a fused kernel keeps no scores to be spared."""
    plain = counted(job, recomputed=True) if job.strategy.recomputing.attention else None
    if plain is None:
        return []
    spared = plain.bytes - saved.bytes
    text = f"Selective checkpointing keeps {spared:,} bytes less, of {plain.bytes:,} ({spared / plain.bytes:.1%})"
    if job.strategy.attention != "eager":
        text += (
            f". {job.strategy.attention} keeps no scores: only the log-sum-exp of each query and head can go, and "
            "repeated keys, values and masks where the kernel takes no fewer heads or a mask"
        )
    return ["", Text(f"  {text}.")]


def _totals(job: Job, saved: SavedActivations | None) -> RenderableType:
    layer, layers, checkpoints, working = closed_forms(job)
    grid = table(["", "bytes", "", "counted less it", "formula"])
    grid.columns[4].justify = "left"
    grid.columns[4].no_wrap = False

    def row(name: str, size: int, beside: int | None = None, formula: str = "") -> None:
        grid.add_row(name, f"{size:,}", gib(size), "" if beside is None else f"{beside - size:+,}", formula)

    inside = None
    if saved is not None:
        inside = sum(make.layers * make.bytes for make in saved.makes)
        for make in saved.makes:
            row(f"counted: a layer ({make.layers}×)", make.bytes, None, equation(make.bytes))
        row("  all layers", inside)
        row("  the rest", sum(each.bytes for each in saved.rest))
        row("  in all", saved.bytes)
        if job.strategy.recomputing.attention and (plain := counted(job, recomputed=True)):
            for make in plain.makes:
                row(f"  without selective: a layer ({make.layers}×)", make.bytes, None, equation(make.bytes))
    of_one = saved.makes[0].bytes if saved is not None else None
    row("Korthikanti: a layer", layer.bytes, of_one, layer.formula)
    row("  all layers", layers.bytes, inside, layers.formula)
    if job.strategy.recomputing.every == 1:
        row("ZeRO-Infinity: checkpoints", checkpoints.bytes, inside, checkpoints.formula)
        again = counted(job, recomputed=True)
        most = max((make.bytes for make in again.makes), default=0) if again else None
        if most is not None:
            row("counted: a layer run again", most, None, "")
        row("ZeRO-Infinity: working memory", working.bytes, most, working.formula)
    return grid


def _parts(one: LayerComparison) -> RenderableType:
    grid = table(["", "counted", "", "Korthikanti", "", "difference"])
    for index in (1, 3):
        grid.columns[index].justify = "left"
        grid.columns[index].no_wrap = False
    for part in one.parts:
        amounts = f"{part.counted:,}", part.published.formula, f"{part.published.bytes:,}", f"{part.difference:+,}"
        grid.add_row(part.name, equation(part.counted) or "0", *amounts)
    whole = sum(part.published.bytes for part in one.parts)
    grid.add_row("a layer", "", f"{one.make.bytes:,}", "", f"{whole:,}", f"{one.make.bytes - whole:+,}", style="bold")
    return grid


def _reasons(one: LayerComparison) -> list[RenderableType]:
    grid = table(["because of", "", "bytes"])
    grid.columns[1].justify = "left"
    grid.columns[1].no_wrap = False
    rows = [(part.name, reason) for part in one.parts for reason in part.reasons]
    for name, reason in rows:
        grid.add_row(name, reason.text, f"{reason.bytes:+,}")
    return [grid] if rows else []


def _kept(kept: tuple[SavedByOperator, ...]) -> RenderableType:
    grid = table(["module", "operator", "keeps", "bytes"])
    for index in (1, 2):
        grid.columns[index].justify = "left"
        grid.columns[index].no_wrap = False
    for each in kept:
        grid.add_row(each.module, each.operator or "(a result)", equation(each.bytes), f"{each.bytes:,}")
    return grid


def _kinds(at: AllocatedActivations) -> RenderableType:
    grid = table(["what keeps it", "keeps", "bytes"])
    grid.columns[1].justify = "left"
    grid.columns[1].no_wrap = False
    for name, size in sorted(at.kinds.items(), key=lambda entry: -entry[1]):
        grid.add_row(name, equation(size), f"{size:,}")
    return grid


def symbols_of(saved: SavedActivations) -> dict[str, int]:
    """The letters of all its equations, with their values."""
    used: set[str] = set()
    for each in (*saved.rest, *(each for make in saved.makes for each in make.kept)):
        used |= letters_of(terms(each.bytes))
    return valued(used, saved.sizes)


def _shown(job: Job) -> tuple[Line, ...]:
    """The closed forms on the screen: ZeRO-Infinity's are of checkpoints."""
    forms = closed_forms(job)
    return forms if job.strategy.checkpointing == "full" else forms[:2]


def _where(job: Job, sizes: dict[str, int]) -> list[RenderableType]:
    """The letters of all equations on the screen."""
    published = {SYMBOLS[name].letter: size for entry in _shown(job) for name, size in entry.symbols.items()}
    return [
        Text(f"  {letter} = {size:,}  {BY_LETTER[letter].meaning} [{BY_LETTER[letter].unit}]")
        for letter, size in (published | sizes).items()
    ]


def _sources(job: Job) -> list[RenderableType]:
    named = dict.fromkeys(provenance(entry.rule).source for entry in _shown(job))
    return [Text(f"  source: {SOURCES[name].title} ({SOURCES[name].address})") for name in named]
