"""The page itself: one file that opens offline, with its charts, tables, files and the grid in it.

Everything of the user's is text: escaped in HTML, and JSON in which no tag can end its element.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from html import escape
from importlib.resources import files
from string import Template
from typing import Any

from zeroplan.clock import GROUPS
from zeroplan.page import charts
from zeroplan.page.content import Bar, CellRow, Content, Formula
from zeroplan.units import GiB, seconds

Drawn = Mapping[str, charts.Chart]
LIBRARY = ("vega", "vega-lite", "vega-embed")
MOMENTS = 20
"""Of a step in its table."""
ON_SCREENS = ("files", "formulas")
"""Sections that are not printed."""
STATES = {"fits": "fits", "tight": "tight", "does not fit": "not"}


@cache
def _resource(name: str) -> str:
    return files("zeroplan.page").joinpath(*name.split("/")).read_text(encoding="utf-8")


def html(content: Content) -> str:
    """The page as text."""
    drawn = {name: chart(content) for name, chart in charts.charts(content).items()}
    if content.cells:
        drawn |= _cell_charts(content)
    sections = [section for section in _sections(content, drawn) if section[2]]
    license_text = _resource("vega/LICENSE").replace("*/", "* /")
    return Template(_resource("page.html")).substitute(
        title=escape(content.title),
        style=_resource("page.css"),
        state=STATES.get(content.verdict, ""),
        answer=escape(content.answer),
        scope="".join(f'<p class="scope">{escape(line)}</p>' for line in content.scope),
        contents="".join(f'<li><a href="#{name}">{escape(title)}</a></li>' for name, title, _body in sections),
        sections="".join(_section(*section) for section in sections),
        version=escape(content.version),
        charts=_json(drawn),
        grid=_json(_grid(content)),
        license=f"/* {license_text} */",
        library="\n".join(_resource(f"vega/{name}.min.js") for name in LIBRARY),
        script=_resource("page.js"),
    )


def _json(value: Any) -> str:
    """JSON as the text of an element: nothing in it ends the element or begins a comment."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _sections(content: Content, drawn: Drawn) -> Iterator[tuple[str, str, str]]:
    """Each with the name of its anchor, its title and its body; an empty body is left out."""
    yield "plan", "The plan", _plan(content)
    yield "what-if", "What if", _what_if(content, drawn)
    yield "memory", "Memory per GPU", _chart("memory", drawn, _memory_table(content), _caption(content))
    notes = " ".join(content.course_notes)
    yield "step", "Memory over a step", _chart("step", drawn, _course_table(content), notes)
    yield "time", "Where the time goes", _time(content, drawn) if "time" in drawn else ""
    yield "points", "Time against memory", _points(content, drawn) if "points" in drawn else ""
    yield "scaling", "Scaling", _scaling(content, drawn) if "scaling" in drawn else ""
    yield "traffic", "Traffic", _traffic(content, drawn) if "traffic" in drawn else ""
    yield "tiers", "Host memory and NVMe", _tiers(content)
    yield "rejected", content.rejected_title, _rejected(content)
    yield "files", "The files that start it", _files(content)
    yield "formulas", "Every number and its formula", _numbers(content)
    yield "assumed", "Assumed, and how far it holds", _assumed(content)


def _section(name: str, title: str, body: str) -> str:
    kind = ' class="screen"' if name in ON_SCREENS else ""
    return f'<section{kind} aria-labelledby="{name}"><h2 id="{name}">{escape(title)}</h2>{body}</section>\n'


def _tiers(content: Content) -> str:
    return "".join(
        f"<h3>{escape(name)}: {escape(needed.text)}</h3>{_formulas(rows, name)}" for name, needed, rows in content.tiers
    )


def _plan(content: Content) -> str:
    return _table("The plan", ("setting", "value"), content.settings) + _copied(
        "command", content.command, "the command"
    )


def _copied(name: str, text: str, what: str) -> str:
    """Text with a button that copies it."""
    label = escape(what)
    return (
        f'<div class="copy"><pre tabindex="0" role="group" aria-label="{label}">'
        f'<code id="{name}">{escape(text)}</code></pre>'
        f'<button type="button" data-copies="{name}" aria-label="Copy {label}">Copy</button></div>'
    )


def _chart(name: str, drawn: Drawn, table: str, caption: str = "") -> str:
    below = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    return (
        f"<figure>{_place(name, drawn)}{below}</figure>"
        f"<details><summary>The same as a table</summary>{table}</details>"
    )


def _place(name: str, drawn: Drawn) -> str:
    """Where a chart is drawn, with what it shows in words."""
    label = escape(drawn[name]["description"])
    return f'<div class="chart" id="chart-{name}" role="img" aria-label="{label}"></div>'


def _table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int] = ()) -> str:
    """A table; `numbers`: which columns hold them."""
    kinds = [' class="number"' if at in numbers else "" for at in range(len(head))]
    top = "".join(f'<th scope="col"{kind}>{escape(name)}</th>' for name, kind in zip(head, kinds, strict=True))
    body = "".join(
        "<tr>" + "".join(
            f'<th scope="row">{escape(value)}</th>' if at == 0 else f"<td{kinds[at]}>{escape(value)}</td>"
            for at, value in enumerate(row)
        ) + "</tr>"
        for row in rows
    )  # fmt: skip
    label = escape(caption)
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="{label}">'
        f'<table><caption class="skip">{label}</caption>'
        f"<thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _caption(content: Content) -> str:
    card = f" The card has {content.capacity.text} for PyTorch and what is beside it." if content.capacity else ""
    return f"The plan's other settings, with DeepSpeed's own bucket sizes; the first bar is the plan itself.{card}"


def _memory_table(content: Content) -> str:
    rows = [
        [bar.name, *(bar.parts[part].text if part in bar.parts else "-" for part in charts.PARTS),
         f"{bar.whole / GiB:,.2f} GiB", bar.verdict]
        for bar in content.memory
    ]  # fmt: skip
    return _table("Memory per GPU", ["settings", *charts.PARTS, "needed", "verdict"], rows, (1, 2, 3, 4, 5))


def _course_table(content: Content) -> str:
    """The fullest moments of each phase."""
    columns = sorted(content.course.columns, key=lambda instant: -instant.bytes)
    places: dict[str, tuple[int, ...]] = {}
    for instant in columns:
        sizes = (instant.bytes, instant.held, instant.beside, instant.activations)
        places.setdefault(f"{instant.phase}: {instant.place}", sizes)
    rows = [[place, *(f"{size / GiB:,.2f} GiB" for size in places[place])] for place in list(places)[:MOMENTS]]
    head = ["moment", "allocated", *charts.KINDS.values()]
    return _table("The fullest moments", head, rows, (1, 2, 3, 4))


def _time_table(content: Content) -> str:
    rows = [
        [bar.name, seconds(bar.whole), *(bar.parts[group].text if group in bar.parts else "-" for group in GROUPS)]
        for bar in content.time
    ]
    return _table(f"Seconds for {content.tokens:,} tokens", ["strategy", "in all", *GROUPS], rows, tuple(range(1, 6)))


def _time(content: Content, drawn: Drawn) -> str:
    return _chart("time", drawn, _time_table(content), f"Seconds for {content.tokens:,} tokens, a step of the plan.")


def _points(content: Content, drawn: Drawn) -> str:
    rows = [[one.settings, one.needed.text, one.seconds.text, one.verdict] for one in content.points]
    head, caption = ["strategy", "per GPU", "seconds", "verdict"], f"Seconds for {content.tokens:,} tokens"
    said = (
        f"Seconds for {content.tokens:,} tokens. Each point is a strategy, whose settings show where it is pointed at, "
        "and in the table; those beyond one and a half cards stand there alone. The ring is the plan."
    )
    return _chart("points", drawn, _table(caption, head, rows, (1, 2)), said)


def _scaling(content: Content, drawn: Drawn) -> str:
    rows = [[f"{one.stage} on {one.gpus:,} GPUs", one.tokens.text, one.needed.text, one.verdict]
            for one in content.scaling]  # fmt: skip
    table = _table("Scaling", ["on", "speed", "memory", "verdict"], rows, (1, 2))
    return _chart("scaling", drawn, table, "With the plan's other settings. Faint points do not fit.")


def _traffic(content: Content, drawn: Drawn) -> str:
    return _chart("traffic", drawn, _formulas(content.traffic, "Sent by each GPU in a step"))


def _formulas(rows: Sequence[Formula], caption: str) -> str:
    head = ("name", "size", "formula", "with its values", "source")
    return _table(caption, head, ([one.name, one.size.text, one.formula, one.worked, one.source] for one in rows), (1,))


def _rejected(content: Content) -> str:
    rows = _table(content.rejected_title, ["change", "why"], content.rejected) if content.rejected else ""
    rows += "".join(f"<p>{escape(one)}</p>" for one in content.outside)
    ways = "".join(f"<li>{escape(way)}</li>" for way in content.ways_out)
    return rows + (f"<h3>What would fit</h3><ul>{ways}</ul>" if ways else "")


def _files(content: Content) -> str:
    return "".join(
        f"<details{' open' if number == 1 else ''}><summary>{escape(name)}</summary>"
        f"{_copied(f'file-{number}', text, name)}</details>"
        for number, (name, text) in enumerate(content.files.items(), 1)
    )


def _numbers(content: Content) -> str:
    several = {
        "Memory of a GPU at its peak, line by line": content.lines, "Seconds of a step, term by term": content.terms
    }
    return "".join(
        f"<details><summary>{name}</summary>{_formulas(rows, name)}</details>" for name, rows in several.items() if rows
    )


def _assumed(content: Content) -> str:
    said = "".join(f"<li>{escape(one)}</li>" for one in content.assumed)
    trust = "".join(f'<p class="quiet">{escape(one)}</p>' for one in content.trust)
    return (f"<ul>{said}</ul>" if said else "") + trust


def _what_if(content: Content, drawn: Drawn) -> str:
    if not content.cells:
        return ""
    controls = "".join(
        f'<label>{escape(axis.name)}<select name="{escape(axis.name)}">' + "".join(
            f"<option{' selected' if at == axis.plan else ''}>{escape(value)}</option>"
            for at, value in enumerate(axis.values)
        ) + "</select></label>"
        for axis in content.axes
    )  # fmt: skip
    time = _place("cell-time", drawn) if content.terms else ""
    return (
        '<form class="strip" id="what-if-form" onsubmit="return false">'
        '<p class="quiet">Figures of zeroplan estimate for these settings, which has DeepSpeed\'s own bucket sizes. '
        "Sequence, GPUs and what trains leave the plan one at a time.</p>"
        f'<fieldset class="controls"><legend class="skip">Settings</legend>{controls}</fieldset>'
        '<button type="reset">Back to the plan</button>'
        '<div aria-live="polite"><p><strong id="cell-verdict"></strong></p>'
        '<dl class="figures" id="cell-figures"></dl></div>'
        f"{_place('cell-memory', drawn)}{time}"
        f"{_copied('cell-command', '', 'the command of these settings')}</form>"
    )


def _cell_charts(content: Content) -> dict[str, charts.Chart]:
    """The bars below the controls, which are drawn when a setting is chosen."""
    memory = charts.stacked(
        _nothing(charts.PARTS), charts.PARTS, "GiB per GPU", "Memory per GPU of these settings", charts.variable,
        most=_most(content), capacity=content.capacity,
    )  # fmt: skip
    if not content.terms:
        return {"cell-memory": memory}
    said = "Seconds of a step with these settings"
    time = charts.stacked(_nothing(GROUPS), GROUPS, "seconds", said, charts.variable)
    return {"cell-memory": memory, "cell-time": time}


def _nothing(names: Sequence[str]) -> charts.Bars:
    """A bar without length."""
    return charts.Bars([{"bar": "", "part": names[0], "from": 0, "to": 0}], [{"bar": "", "text": ""}])


def _most(content: Content) -> float:
    """GiB that the bar of a cell goes to."""
    return charts.most_of([cell.memory for cell in content.cells if cell.memory], content.capacity)


def _grid(content: Content) -> dict[str, Any]:
    """The cells, by their place on each axis; names that all of them have stand once."""
    figures = tuple(dict.fromkeys(one.name for cell in content.cells for one in cell.figures))
    return {
        "memory": charts.PARTS, "time": GROUPS, "figures": figures, "most": _most(content), "beyond": charts.BEYOND,
        "base": content.base, "words": [axis.words for axis in content.axes],
        "cells": {",".join(map(str, cell.at)): _cell(cell, figures) for cell in content.cells},
    }  # fmt: skip


def _cell(cell: CellRow, figures: Sequence[str]) -> dict[str, Any]:
    if cell.refused:
        return {"batch": cell.batch, "refused": cell.refused}
    return {
        "batch": cell.batch, "verdict": cell.verdict,
        "figures": [[figures.index(one.name), one.value, one.text] for one in cell.figures],
        "memory": _parts(cell.memory, charts.PARTS, GiB), "time": _parts(cell.time, GROUPS, 1),
    }  # fmt: skip


def _parts(bar: Bar | None, names: Sequence[str], unit: float) -> list[tuple[float, str] | None]:
    """Sizes in that unit, with their texts, in the order of the names."""
    parts = bar.parts if bar else {}
    return [(parts[name].value / unit, parts[name].text) if name in parts else None for name in names]
