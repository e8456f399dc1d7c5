"""Charts of a page as Vega-Lite specifications: the same are drawn in a browser, and by vl-convert as SVG and PNG."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from zeroplan.clock import GROUPS
from zeroplan.costs.step_timeline import Instant
from zeroplan.page.content import (
    CHARTS,
    POINTS,
    SCALING,
    TIME,
    TRAFFIC,
    Bar,
    Content,
    Course,
    Formula,
    Point,
    Quantity,
    Scale,
)
from zeroplan.report.brief.card import MOST
from zeroplan.units import GB, GiB, gib, seconds

Chart = dict[str, Any]
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"
PARTS = ("held", "gradients, buffers", "activations", "outside PyTorch")
"""What fills a GPU, from the left."""
KINDS = {"held": "held", "beside": "gradients, buffers", "activations": "activations"}
"""Fields of an instant, by what fills a GPU."""
STAGES = ("ZeRO-0", "ZeRO-1", "ZeRO-2", "ZeRO-3")
LIGHT = {
    "ink": "#1b1f24", "quiet": "#57606a", "grid": "#d8dee4", "card": "#b42318",
    "a": "#2166ac", "b": "#b86e00", "c": "#a8518a", "d": "#3f8f8a",
}  # fmt: skip
"""Colours by their role, as the page's style sheet has them; a picture has those of light."""
COLOURS = ("a", "b", "c", "d")
BAR_HEIGHT = 24
LABEL = 120
"""Pixels that the name of a bar has room for."""
TICKS = 8
BEYOND = " ▶"
"""Behind the size of a bar that goes on."""


def variable(role: str) -> str:
    """A colour by the name that the page's style sheet gives it."""
    return f"var(--{role})"


def literal(role: str) -> str:
    """A colour for a picture."""
    return LIGHT[role]


Colour = Callable[[str], str]


class Bars(NamedTuple):
    """The data of stacked bars: their parts from one end to the other, and the size of each bar."""

    parts: list[dict[str, Any]]
    ends: list[dict[str, Any]]


def bar_data(bars: Sequence[Bar], names: Sequence[str], unit: float, most: float, text: Callable[[float], str]) -> Bars:
    """In that unit. What is beyond `most` is not drawn, and the bar's end says so."""
    parts, ends = [], []
    for bar in bars:
        at = 0.0
        for name in names:
            if name in bar.parts:
                start, at = at, at + bar.parts[name].value / unit
                parts.append({"bar": bar.name, "part": name, "from": min(start, most), "to": min(at, most),
                              "text": bar.parts[name].text, "verdict": bar.verdict})  # fmt: skip
        ends.append({"bar": bar.name, "text": text(bar.whole) + BEYOND * (at > most)})
    return Bars(parts, ends)


def most_of(bars: Sequence[Bar], capacity: Quantity | None) -> float:
    """GiB that a chart of memory goes to: of a card at most half as many again, as on a screen."""
    longest = max((bar.whole for bar in bars), default=0.0)
    return (min(max(capacity.value, longest), MOST * capacity.value) if capacity else longest) / GiB


def stacked(
    data: Bars, names: Sequence[str], axis: str, description: str, colour: Colour,
    *, most: float | None = None, capacity: Quantity | None = None,
) -> Chart:  # fmt: skip
    """Stacked bars below one another; `capacity`: where the card ends."""
    y = {"field": "bar", "type": "nominal", "sort": None, "title": None,
         "axis": {"labelLimit": LABEL, "domain": False, "ticks": False}}  # fmt: skip
    x: Chart = {"field": "to", "type": "quantitative", "title": axis, "axis": {"tickCount": TICKS}}
    if most:
        x["scale"] = {"domainMax": most, "nice": False}
    layers: list[Chart] = [
        {
            "data": {"name": "parts"},
            "mark": {"type": "bar"},
            "encoding": {
                "y": y, "x": x | {"field": "from"}, "x2": {"field": "to"},
                "color": {"field": "part", "type": "nominal", "title": None, "scale": _range(names, colour),
                          "legend": {"orient": "top", "columns": 2, "symbolType": "square"}},
                "tooltip": [{"field": "bar", "type": "nominal"}, {"field": "part", "type": "nominal"},
                            {"field": "text", "type": "nominal", "title": "size"},
                            {"field": "verdict", "type": "nominal"}],
            },
        },
        {
            "data": {"name": "ends"},
            "mark": {"type": "text", "align": "left", "dx": 6, "color": colour("ink")},
            "encoding": {"y": y, "x": {"value": "width"}, "text": {"field": "text", "type": "nominal"}},
        },
    ]  # fmt: skip
    if capacity:
        layers.append(_end(capacity, colour))
    height = BAR_HEIGHT * max(1, len(data.ends))
    return _chart(description, {"layer": layers}, data._asdict(), colour, height=height)


def memory(content: Content, colour: Colour = variable) -> Chart:
    """Memory per GPU of stages and ways to train, against the card."""
    most = most_of(content.memory, content.capacity)
    return stacked(
        bar_data(content.memory, PARTS, GiB, most, gib), PARTS, "GiB per GPU",
        "Memory per GPU by ZeRO stage and way to train", colour, most=most, capacity=content.capacity,
    )  # fmt: skip


def time(content: Content, colour: Colour = variable) -> Chart:
    """Where the seconds of a step go, of the plan and of what was rejected."""
    most = max(bar.whole for bar in content.time)
    return stacked(
        bar_data(content.time, GROUPS, 1, most, seconds), GROUPS, "seconds",
        "Seconds of a step by what they go to, of the plan and of its neighbours", colour, most=most,
    )  # fmt: skip


def step(content: Content, colour: Colour = variable) -> Chart:
    """Allocated bytes over a step, with the peak."""
    of: Course = content.course
    rows = [
        {"at": at, "part": KINDS[field], "order": order, "size": getattr(instant, field) / GiB}
        for at, instant in enumerate((*of.columns, of.columns[-1]))
        for order, field in enumerate(KINDS)
    ]  # fmt: skip
    peak: Instant = of.columns[of.peak]
    said = f"{gib(peak.bytes)} in {peak.phase}"
    right = of.peak < len(of.columns) / 2
    at_peak = [{"at": of.peak, "size": peak.bytes / GiB, "text": said}]
    names = list(KINDS.values())
    x = {
        "field": "at", "type": "quantitative", "title": None, "axis": {"labels": False, "ticks": False, "grid": False},
        "scale": {"domain": [0, len(of.columns)], "nice": False},
    }  # fmt: skip
    starts = [{"at": at, "text": phase if phase != "init" else ""} for phase, at in of.starts.items()]
    layers: list[Chart] = [
        {
            "mark": {"type": "area", "interpolate": "step-after"},
            "encoding": {
                "x": x,
                "y": {"field": "size", "type": "quantitative", "stack": "zero", "title": "GiB allocated"},
                "color": {"field": "part", "type": "nominal", "title": None, "scale": _range(names, colour),
                          "legend": {"orient": "top", "columns": 2, "symbolType": "square"}},
                "order": {"field": "order", "type": "quantitative"},
            },
        },
        {
            "data": {"values": starts}, "mark": {"type": "rule", "color": colour("quiet"), "strokeDash": [2, 3]},
            "encoding": {"x": x},
        },
        {
            "data": {"values": starts},
            "mark": {"type": "text", "align": "left", "baseline": "top", "dx": 3, "dy": 6, "color": colour("quiet")},
            "encoding": {"x": x, "y": {"value": {"expr": "height"}}, "text": {"field": "text", "type": "nominal"}},
        },
        {
            "data": {"values": at_peak},
            "mark": {"type": "point", "color": colour("card"), "filled": True, "size": 50},
            "encoding": {"x": x, "y": {"field": "size", "type": "quantitative"}},
        },
        {
            "data": {"values": at_peak},
            "mark": {"type": "text", "align": "left" if right else "right", "dx": 8 if right else -8, "dy": -8,
                     "color": colour("ink"), "fontWeight": "bold"},
            "encoding": {"x": x, "y": {"field": "size", "type": "quantitative"},
                         "text": {"field": "text", "type": "nominal"}},
        },
    ]  # fmt: skip
    return _chart(f"Allocated memory over a step; the peak is {said}", {"layer": layers}, rows, colour, height=260)


def points(content: Content, colour: Colour = variable) -> Chart:
    """Time against memory, a point for each strategy."""
    several: Sequence[Point] = content.points
    rows = [
        {"settings": one.settings, "needed": one.needed.value / GiB, "seconds": one.seconds.value, "stage": one.stage,
         "checkpointing": one.checkpointing, "memory": one.needed.text, "time": one.seconds.text,
         "verdict": one.verdict, "plan": one.is_plan}
        for one in several
        if content.capacity is None or one.needed.value <= MOST * content.capacity.value
    ]  # fmt: skip
    encoding: Chart = {
        "x": {"field": "needed", "type": "quantitative", "title": "GiB per GPU", "scale": {"zero": False}},
        "y": {"field": "seconds", "type": "quantitative", "title": "seconds",
              "scale": {"type": "log", "nice": False}},
        "tooltip": [{"field": name, "type": "nominal"} for name in ("settings", "memory", "time", "verdict")],
    }  # fmt: skip
    legend = {"orient": "top", "columns": 2}
    layers: list[Chart] = [
        {
            "mark": {"type": "point", "filled": True, "size": 60, "opacity": 0.85},
            "encoding": encoding | {
                "color": {"field": "stage", "type": "nominal", "title": None, "scale": _range(STAGES, colour),
                          "legend": legend},
                "shape": {"field": "checkpointing", "type": "nominal", "title": "checkpointing",
                          "legend": {"orient": "bottom", "columns": 3}},
            },
        },
        {
            "transform": [{"filter": "datum.plan"}],
            "mark": {"type": "point", "size": 260, "color": colour("ink"), "strokeWidth": 2},
            "encoding": encoding,
        },
    ]  # fmt: skip
    if content.capacity:
        layers.append(_end(content.capacity, colour))
    said = "Seconds against memory per GPU, a point for each strategy"
    return _chart(said, {"layer": layers}, rows, colour, height=300)


def scaling(content: Content, colour: Colour = variable) -> Chart:
    """Tokens a second of one GPU by their number, a line for each stage."""
    stages = Counter(one.stage for one in content.scaling)
    several: Sequence[Scale] = [one for one in content.scaling if stages[one.stage] > 1]
    rows = [
        {"gpus": one.gpus, "stage": one.stage, "tokens": one.tokens.value, "text": one.tokens.text,
         "memory": one.needed.text, "verdict": one.verdict, "fits": one.verdict != "does not fit"}
        for one in several
    ]  # fmt: skip
    encoding: Chart = {
        "x": {"field": "gpus", "type": "ordinal", "title": "GPUs", "axis": {"labelAngle": 0}},
        "y": {"field": "tokens", "type": "quantitative", "title": "tokens/s per GPU", "scale": {"zero": False}},
        "color": {"field": "stage", "type": "nominal", "title": None, "scale": _range(STAGES, colour),
                  "legend": {"orient": "top", "columns": 2}},
    }  # fmt: skip
    tooltip = [{"field": name, "type": "nominal"} for name in ("stage", "gpus", "text", "memory", "verdict")]
    layers: list[Chart] = [
        {"mark": {"type": "line", "strokeWidth": 1.5, "opacity": 0.6}, "encoding": encoding},
        {
            "mark": {"type": "point", "size": 70, "filled": True},
            "encoding": encoding | {
                "tooltip": tooltip,
                "opacity": {"condition": {"test": "datum.fits", "value": 1}, "value": 0.25},
            },
        },
    ]  # fmt: skip
    return _chart(
        "Tokens a second of one GPU by the number of GPUs and the stage; faint points do not fit", {"layer": layers},
        rows, colour, height=260,
    )  # fmt: skip


def traffic(content: Content, colour: Colour = variable) -> Chart:
    """What one GPU sends in a step, by collective."""
    several: Sequence[Formula] = content.traffic
    rows = [{"name": one.name, "size": one.size.value / GB, "text": one.size.text} for one in several]
    unit: Chart = {
        "mark": {"type": "bar", "color": colour("a")},
        "encoding": {
            "y": {"field": "name", "type": "nominal", "sort": None, "title": None,
                  "axis": {"labelLimit": LABEL, "domain": False, "ticks": False}},
            "x": {"field": "size", "type": "quantitative", "title": "GB sent by each GPU a step"},
            "tooltip": [{"field": "name", "type": "nominal"}, {"field": "text", "type": "nominal", "title": "sent"}],
        },
    }  # fmt: skip
    said = "Bytes that each GPU sends in a step, by collective"
    return _chart(said, unit, rows, colour, height=BAR_HEIGHT * len(rows))


def charts(content: Content) -> dict[str, Callable[..., Chart]]:
    """The charts that there is anything to draw in, by name."""
    every = dict(zip(CHARTS, (memory, step, time, points, scaling, traffic), strict=True))
    rows = {TIME: content.time, POINTS: content.points, SCALING: content.scaling, TRAFFIC: content.traffic}
    return {name: chart for name, chart in every.items() if rows.get(name, True)}


def _range(names: Sequence[str], colour: Colour) -> Chart:
    return {"domain": list(names), "range": [colour(role) for role, _name in zip(COLOURS, names, strict=False)]}


def _end(capacity: Quantity, colour: Colour) -> Chart:
    """Where the card ends."""
    where = {"datum": capacity.value / GiB, "type": "quantitative"}
    data = {"values": [{"text": "the card's end"}]}
    return {
        "data": data,
        "layer": [
            {"mark": {"type": "rule", "color": colour("card"), "strokeWidth": 2}, "encoding": {"x": where}},
            {
                "mark": {"type": "text", "align": "right", "baseline": "top", "dx": -5, "y": -12,
                         "color": colour("card")},
                "encoding": {"x": where, "text": {"field": "text", "type": "nominal"}},
            },
        ],
    }  # fmt: skip


def _chart(
    description: str, drawn: Chart, data: list[dict[str, Any]] | dict[str, list[dict[str, Any]]], colour: Colour, *,
    height: int,
) -> Chart:  # fmt: skip
    """`data`: rows, or several kinds by name."""
    given = {"datasets": data} if isinstance(data, dict) else {"data": {"values": data}}
    return {
        "$schema": SCHEMA, "description": description, "width": "container", "height": height,
        "background": None,
        **given, **drawn,
        "config": {
            "font": "system-ui, sans-serif", "view": {"stroke": None}, "mark": {"aria": False},
            "axis": {"aria": False, "labelColor": colour("quiet"), "titleColor": colour("quiet"),
                     "gridColor": colour("grid"),
                     "domainColor": colour("grid"), "tickColor": colour("grid"), "titleFontWeight": "normal",
                     "labelFontSize": 12, "titleFontSize": 12},
            "legend": {"aria": False, "symbolBaseFillColor": colour("ink"),
                       "symbolBaseStrokeColor": colour("ink"),
                       "labelColor": colour("ink"), "titleColor": colour("quiet"), "labelFontSize": 12,
                       "titleFontWeight": "normal"},
            "text": {"fontSize": 12},
        },
    }  # fmt: skip
