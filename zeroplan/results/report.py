"""What `report` comes to: a plan with all that is said of it, as a page, as Markdown, and chart by chart."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from zeroplan import __version__
from zeroplan.costs.ledger import tiers
from zeroplan.costs.passes import timeline_of
from zeroplan.costs.step_timeline import step_timeline
from zeroplan.errors import ContradictionError, QuantityError, printable, shown
from zeroplan.fit import DOES_NOT_FIT
from zeroplan.ledger import Detail
from zeroplan.page import content as page
from zeroplan.page.content import MEMORY
from zeroplan.plan import label
from zeroplan.report.depth import BRIEF
from zeroplan.results.recommend import Recommendation
from zeroplan.results.result import Result
from zeroplan.results.what_if import GRIDS, NEAR, Cell, Grid, command, what_if, words
from zeroplan.search import Candidate
from zeroplan.sources import DEEPSPEED
from zeroplan.specs.target import HF

if TYPE_CHECKING:
    from zeroplan.report.rendered import Screen
    from zeroplan.schema.json_object import JsonDocument

HTML, MARKDOWN, SVG, PNG = FORMATS = ("html", "markdown", "svg", "png")
USUAL_NAMES = {HTML: "plan.html", MARKDOWN: "plan.md", SVG: "memory.svg", PNG: "memory.png"}
ENDINGS = {".html": HTML, ".htm": HTML, ".md": MARKDOWN, ".markdown": MARKDOWN, ".svg": SVG, ".png": PNG}
MOST_BARS = 9
"""Of the chart of time."""


class Report(Result):
    """A plan as a page to pass around, with other settings to try; as Markdown; and its charts, each by its name.

    >>> import zeroplan
    >>> page = zeroplan.Report(zeroplan.recommend(params="350M", gpus=2, gpu_mem=24, stage=2, micro_batch=1))
    >>> page.html().startswith("<!doctype html>"), page.markdown().splitlines()[0]
    (True, '# zeroplan: 350M on 2 GPUs')

    `write("plan.html")` writes it; in a notebook it shows itself. `grid`: "near" or "wide", as --grid has them. Raises
    `ZeroplanError` for what cannot be meant, such as a recommendation of several cards.
    """

    def __init__(self, recommendation: Recommendation, grid: str = NEAR) -> None:
        if grid not in GRIDS:
            raise QuantityError(f"--grid: found {shown(grid)}, expected {' or '.join(GRIDS)}; write --grid {NEAR}")
        if recommendation.stated is None:
            raise ContradictionError("report is of one plan; write one card, and name one method")
        self.recommendation, self._stated, self._grid = recommendation, recommendation.stated, grid

    @property
    def verdict(self) -> str | None:
        return self.recommendation.verdict

    def screen(self, level: int = BRIEF) -> Screen:
        self.recommendation.typed = self.typed
        return self.recommendation.screen(level)

    def content(self) -> JsonDocument:
        return self.recommendation.content()

    @cached_property
    def _content(self) -> page.Content:
        return _content(self.recommendation, self._stated, self._grid)

    def html(self) -> str:
        """One page that opens offline."""
        from zeroplan.page.html import html

        return html(self._content)

    def markdown(self) -> str:
        """The page's tables."""
        from zeroplan.page.markdown import markdown

        return markdown(self._content)

    def svg(self, chart: str) -> str:
        """A chart by its name. Raises `QuantityError` for another, `ContradictionError` without vl-convert."""
        from zeroplan.page.pictures import svg

        return svg(self._content, chart)

    def png(self, chart: str) -> bytes:
        """The same as a bitmap."""
        from zeroplan.page.pictures import png

        return png(self._content, chart)

    def write(
        self, path: str | os.PathLike[str], *, form: str | None = None, chart: str = MEMORY, force: bool = False
    ) -> None:
        """Write it, whole or not at all; an existing file stays unless `force`.

        `form`: html, markdown, svg or png; without it, as the file's ending says. `chart`: of the last two.
        """
        from zeroplan.deepspeed.files import check_output, write_whole

        form, written = form_of(os.fspath(path), form), os.fspath(path)
        if written != "-":
            check_output(written, force=force, usual=USUAL_NAMES[form])
        pieces: dict[str, Callable[[], str | bytes]] = {
            HTML: self.html, MARKDOWN: self.markdown, SVG: lambda: self.svg(chart), PNG: lambda: self.png(chart)
        }
        write_whole(written, pieces[form](), force=force)

    def _repr_mimebundle_(self, **_which: object) -> dict[str, str]:
        """For IPython: the page in a frame of its own."""
        from html import escape

        frame = f'<iframe srcdoc="{escape(self.html())}" width="100%" height="720" style="border:0"></iframe>'
        return {"text/plain": str(self), "text/html": frame}


def form_of(path: str, form: str | None) -> str:
    """What is written to a file: as --format says, or as the file's ending does. Raises `QuantityError`."""
    if form is None:
        return ENDINGS.get(os.path.splitext(path)[1].lower(), HTML)
    if form not in FORMATS:
        raise QuantityError(f"--format: found {shown(form)}, expected {', '.join(FORMATS)}; write --format {HTML}")
    return form


def _content(result: Recommendation, stated: Mapping[str, Any], extent: str) -> page.Content:
    """All that a page shows of a plan, or of what is nearest to fitting."""
    from zeroplan.report.settings import plan_rows
    from zeroplan.report.speed import trust as step_trust
    from zeroplan.report.subject import trust
    from zeroplan.report.timeline import notes

    plan = result.search_result
    chosen = plan.chosen or plan.nearest[0].candidate
    job, fits = chosen.job, result.verdict != DOES_NOT_FIT
    chosen = replace(chosen, held=tiers(job, detail=Detail.EQUATIONS))
    grid = what_if(stated, chosen, extent)
    speed, capacity = chosen.speed, chosen.fit.gpu.capacity
    name = label(chosen)
    return page.Content(
        title=printable(f"zeroplan: {result.scope.model} on {job.ranks:,} GPU{'s' if job.ranks > 1 else ''}"),
        answer=result.answer,
        verdict=page.VERDICT_WORDS[result.verdict],
        scope=(result.scope.line, *result.scope.not_planned),
        command=f"{command('recommend', stated)}{f' --for {result.target}' * (result.target != HF)} --dir plan",
        version=f"zeroplan {__version__}, counted as DeepSpeed {DEEPSPEED} does it.",
        settings=(("plan" if fits else "nearest to fitting", name), *plan_rows(chosen)),
        capacity=page.size(capacity) if capacity is not None else None,
        memory=tuple(_memory(chosen, grid)),
        course=page.course(step_timeline(job)),
        course_notes=tuple(notes(chosen.ledger, whole=timeline_of(job) is not None)),
        time=tuple(_time(chosen, result)) if speed else (),
        tokens=chosen.sequences * job.ranks * job.workload.seq,
        points=tuple(_points(chosen, grid, result)) if speed else (),
        scaling=tuple(_scaling(grid)),
        traffic=page.traffic(job, chosen.ledger),
        tiers=tuple(page.tiers(chosen.ledger, chosen.fit)),
        rejected=tuple((one.change, one.reason) for one in plan.rejected),
        rejected_title="Why the others lost" if plan.chosen else "Nearest to fitting",
        outside=tuple(f"With {one.change} this plan {one.reason}." for one in result.outside),
        ways_out=tuple(way.change for way in result.suggestions),
        files=_files(chosen, result) if plan.chosen and fits else {},
        lines=page.formulas([*chosen.ledger.gpu.peak.lines, *chosen.fit.outside]),
        terms=page.terms(speed) if speed else (),
        assumed=tuple(map(printable, result.assumed)),
        trust=tuple(map(str, [*trust(job), *([step_trust(job, speed)] if speed else [])])),
        axes=tuple(
            page.AxisRow(
                axis.name, tuple(one.text for one in axis.settings),
                tuple(shlex.join(words(one.options)) for one in axis.settings), axis.plan,
            )
            for axis in grid.axes
        ),
        cells=tuple(map(_cell, grid.cells)),
        base=command("estimate", grid.base),
    )  # fmt: skip


def _memory(chosen: Candidate, grid: Grid) -> Iterator[page.Bar]:
    yield page.memory_bar("the plan", chosen.ledger, chosen.fit)
    for cell in grid.along("stage", "trains"):
        if cell.estimated:
            own = grid.text(cell, "stage")
            trains = grid.text(cell, "trains")
            name = own if cell.at[-1] == grid.plan[-1] else f"{trains}, {own}"
            yield page.memory_bar(name, cell.estimated.ledger, cell.estimated.fit)


def _time(chosen: Candidate, result: Recommendation) -> Iterator[page.Bar]:
    yield page.time_bar("the plan", chosen.time.groups)
    fitting = [one for one in result.search_result.rejected if one.candidate.fit.accepted]
    for one in fitting[: MOST_BARS - 1]:
        yield page.time_bar(one.change, one.candidate.time.groups, chosen.sequences / one.candidate.sequences)


def _points(chosen: Candidate, grid: Grid, result: Recommendation) -> Iterator[page.Point]:
    """Seconds of as many sequences as a step of the plan has."""
    tokens = chosen.sequences * chosen.job.ranks * chosen.job.workload.seq
    yield _point(chosen, label(chosen), chosen.time.total, is_plan=True)
    for one in result.search_result.rejected:
        other = one.candidate
        seconds = chosen.sequences / other.sequences * other.time.total
        yield _point(other, f"{label(other)}; {one.change}", seconds)
    for cell in grid.along("stage", "offload", "checkpointing", "micro-batch"):
        if (counted := cell.estimated) and counted.speed:
            candidate = Candidate(counted.job, counted.ledger.held, counted.fit)
            yield _point(candidate, label(candidate), tokens / counted.speed.tokens * counted.speed.step.total)


def _point(one: Candidate, settings: str, seconds: float, *, is_plan: bool = False) -> page.Point:
    return page.Point(
        settings, page.size(one.fit.gpu.needed), page.duration(seconds), f"ZeRO-{one.strategy.stage}",
        one.strategy.checkpointing, page.VERDICT_WORDS[one.fit.verdict], is_plan,
    )  # fmt: skip


def _scaling(grid: Grid) -> Iterator[page.Scale]:
    for cell in sorted(grid.along("GPUs", "stage"), key=lambda one: (one.at[0], one.at[-2])):
        if (counted := cell.estimated) and (speed := counted.speed):
            tokens = page.Quantity(speed.tokens_per_gpu, f"{speed.tokens_per_gpu:,.0f} tokens/s per GPU")
            yield page.Scale(
                counted.job.ranks, f"ZeRO-{counted.job.strategy.stage}", tokens, page.size(counted.fit.gpu.needed),
                page.VERDICT_WORDS[counted.fit.verdict],
            )  # fmt: skip


def _files(chosen: Candidate, result: Recommendation) -> dict[str, str]:
    from zeroplan.emit.folder import plan_files

    return plan_files(chosen, result.target, "plan", given=result.given, assumed=result.assumed)


def _cell(cell: Cell) -> page.CellRow:
    counted = cell.estimated
    if counted is None:
        return page.CellRow(cell.at, cell.batch, "", None, None, (), cell.refused)
    speed = counted.speed
    return page.CellRow(
        cell.at, cell.batch, page.VERDICT_WORDS[counted.fit.verdict],
        page.memory_bar("", counted.ledger, counted.fit),
        page.time_bar("", speed.step.groups) if speed else None,
        tuple(page.figures(counted.job, counted.ledger, counted.fit, speed)), "",
    )  # fmt: skip
