"""The page's tables as Markdown, for an issue, a pull request or a wiki."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from zeroplan.clock import GROUPS
from zeroplan.page.charts import PARTS
from zeroplan.page.content import Content, Formula
from zeroplan.units import GiB, seconds

MARKS = re.compile(r"([\\`*_{}\[\]<>#|~&])")
"""What Markdown or HTML would read as its own."""


def markdown(content: Content) -> str:
    """The page as text."""
    return "\n\n".join(_blocks(content)) + "\n"


def text(value: str) -> str:
    """Words in which nothing is markup."""
    return MARKS.sub(r"\\\1", " ".join(value.split()))


def _blocks(content: Content) -> Iterator[str]:
    yield f"# {text(content.title)}"
    yield f"**{text(content.answer)}**"
    yield "\n".join(text(line) for line in content.scope)
    yield _table(("setting", "plan"), content.settings)
    yield _fenced(content.command, "sh")
    yield "## Memory per GPU"
    yield _table(("settings", *PARTS, "needed", "verdict"), (
        [bar.name, *(bar.parts[part].text if part in bar.parts else "-" for part in PARTS),
         f"{bar.whole / GiB:,.2f} GiB", bar.verdict]
        for bar in content.memory
    ))  # fmt: skip
    if content.time:
        yield f"## Seconds for {content.tokens:,} tokens"
        yield _table(("strategy", "in all", *GROUPS), (
            [bar.name, seconds(bar.whole), *(bar.parts[group].text if group in bar.parts else "-" for group in GROUPS)]
            for bar in content.time
        ))  # fmt: skip
    if content.scaling:
        yield "## Scaling"
        yield _table(("GPUs", "stage", "speed", "memory", "verdict"), (
            [f"{one.gpus:,}", one.stage, one.tokens.text, one.needed.text, one.verdict] for one in content.scaling
        ))  # fmt: skip
    if content.traffic:
        yield "## Sent by each GPU in a step"
        yield _formulas(content.traffic)
    for name, needed, rows in content.tiers:
        yield f"## {text(name)}: {text(needed.text)}"
        yield _formulas(rows)
    if content.rejected:
        yield f"## {text(content.rejected_title)}"
        yield _table(("change", "why"), content.rejected)
    if content.outside:
        yield "\n\n".join(text(one) for one in content.outside)
    if content.ways_out:
        yield "## What would fit"
        yield "\n".join(f"- {text(way)}" for way in content.ways_out)
    yield "## Memory of a GPU at its peak"
    yield _formulas(content.lines)
    if content.terms:
        yield "## Seconds of a step"
        yield _formulas(content.terms)
    if content.assumed:
        yield "## Assumed"
        yield "\n".join(f"- {text(one)}" for one in content.assumed)
    yield "\n\n".join(text(one) for one in (*content.trust, content.version))


def _formulas(rows: Sequence[Formula]) -> str:
    return _table(("name", "size", "formula", "with its values", "source"), (
        [one.name, one.size.text, one.formula, one.worked, one.source] for one in rows
    ))  # fmt: skip


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *([text(value) for value in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _fenced(code: str, language: str) -> str:
    """A block of code that no backticks in it end."""
    longest = max((len(run) for run in re.findall(r"`+", code)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{code}\n{fence}"
