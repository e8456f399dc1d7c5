"""Single charts as SVG and PNG, drawn by vl-convert, which has Vega in it and needs no browser."""

from __future__ import annotations

from typing import Any

from zeroplan.errors import ContradictionError, QuantityError, shown
from zeroplan.page import charts
from zeroplan.page.content import Content

WIDTH = 720
SCALE = 2.0
"""Pixels of a bitmap to one of the drawing."""


def svg(content: Content, name: str) -> str:
    """A chart by its name."""
    drawn = _specification(content, name)
    return str(_converter().vegalite_to_svg(drawn))


def png(content: Content, name: str) -> bytes:
    """The same as a bitmap."""
    drawn = _specification(content, name)
    return bytes(_converter().vegalite_to_png(drawn, scale=SCALE))


def _specification(content: Content, name: str) -> charts.Chart:
    every = charts.charts(content)
    if name not in every:
        raise QuantityError(f"--chart: found {shown(name)}, expected {', '.join(every)}; write --chart memory")
    return every[name](content, charts.literal) | {"width": WIDTH, "background": "white"}


def _converter() -> Any:
    try:
        import vl_convert
    except ImportError as error:
        raise ContradictionError(
            "--format svg and png are drawn by vl-convert, which is not installed; write pip install "
            "'zeroplan[pictures]', or --format html"
        ) from error
    return vl_convert
