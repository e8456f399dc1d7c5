"""Models by strategies: on the screen, as markdown and as CSV. Sizes in GiB per GPU."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from io import StringIO
from typing import Protocol

from rich.console import RenderableType
from rich.text import Text

from zeroplan.fit import DOES_NOT_FIT, FITS, TIGHT
from zeroplan.report.console import table
from zeroplan.specs.cluster import Cluster
from zeroplan.specs.model import Model
from zeroplan.units import GiB, gib

TOO_LARGE, NO_ROOM, CLOSE = "✗", "h", "!"
"""Behind a size: over what the GPU has; over what the node's memory has, though the GPU has room; tight."""
SIZES = "~: peaks within 1 % of DeepSpeed's runs, beside PyTorch by published ones."
FORMULA = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet's formula may begin with."""
OFFLOADED = "+ CPU: the optimizer in host memory, at ZeRO-3 the parameters too."


class Cell(Protocol):
    """What is shown of a strategy."""

    @property
    def needed(self) -> int: ...
    @property
    def headroom(self) -> int | None: ...
    @property
    def verdict(self) -> str | None: ...


class ModelRow(Protocol):
    @property
    def model(self) -> Model: ...
    @property
    def cells(self) -> Mapping[str, Cell | str]: ...


def summary(rows: Sequence[ModelRow], cluster: Cluster) -> Text:
    """The first strategy of each model that fits."""
    if cluster.capacity is None:
        return Text(f"What each of {_gpus(cluster)} needs, in GiB.", style="bold")
    fits, tight = _first(rows, FITS), _first(rows, TIGHT)
    listed = ", ".join(f"{name} for {_listed(models, 'and')}" for name, models in fits.items())
    clauses = [f"the first that fits is {listed}"] * bool(listed)
    with_room = [model for models in fits.values() for model in models]
    for name, models in tight.items():
        only = [model for model in models if model not in with_room]
        clauses += [f"{_listed(only, 'and')} {'is' if len(only) == 1 else 'are'} tight, with {name} first"] * bool(only)
    possible = {model for models in (*fits.values(), *tight.values()) for model in models}
    nothing = [row.model.name for row in rows if row.model.name not in possible]
    clauses += [f"nothing fits for {_listed(nothing, 'or')}"] * bool(nothing)
    text = f"On {_gpus(cluster)}: {'; '.join(clauses)}."
    return Text(text, style=f"bold {'green' if fits else 'yellow' if tight else 'red'}")


def _first(rows: Sequence[ModelRow], verdict: str) -> dict[str, list[str]]:
    """Models by the first strategy of such a verdict."""
    first: dict[str, list[str]] = {}
    for row in rows:
        if name := next((name for name, cell in row.cells.items() if _verdict(cell) == verdict), None):
            first.setdefault(name, []).append(row.model.name)
    return first


def details(rows: Sequence[ModelRow], cluster: Cluster) -> list[RenderableType]:
    """One row for each model, and what the signs behind sizes mean."""
    columns = list(rows[0].cells)
    grid = table(["~GiB per GPU", *columns])
    for row in rows:
        grid.add_row(row.model.name, *(_coloured(cell) for cell in row.cells.values()))
    legend = Text(_legend(rows, cluster), style="dim")
    why: dict[str, list[str]] = {}
    for row in rows:
        for name, cell in row.cells.items():
            if isinstance(cell, str):
                why.setdefault(f"{name}: {cell}", []).append(row.model.name)
    reasons = [Text(f"{', '.join(models)}, {reason}", style="yellow") for reason, models in why.items()]
    return ["", grid, legend, *reasons]


def markdown(rows: Sequence[ModelRow], cluster: Cluster) -> str:
    """A table for a README, and its legend below."""
    columns = ["GiB per GPU", *rows[0].cells]
    lines = [columns, ["---", *["---:"] * len(rows[0].cells)]]
    lines += [[row.model.name.replace("|", "\\|"), *map(_shown, row.cells.values())] for row in rows]
    grid = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{grid}\n\n{_gpus(cluster)}. {_legend(rows, cluster)}"


def comma_separated(rows: Sequence[ModelRow]) -> str:
    """CSV: GiB of each strategy and the verdict, fits, tight or does_not_fit; nothing where no capacity is known."""
    out = StringIO()
    writer = csv.writer(out, lineterminator="\n")
    strategies = list(rows[0].cells)
    writer.writerow(["model", "parameters", *(f"{name} {what}" for name in strategies for what in ("GiB", "verdict"))])
    for row in rows:
        pairs = [_pair(cell) for cell in row.cells.values()]
        writer.writerow([_as_text(row.model.name), row.model.products, *(value for pair in pairs for value in pair)])
    return out.getvalue()


def _as_text(name: str) -> str:
    """A name that a spreadsheet does not take for a formula."""
    return f"'{name}" if name.startswith(FORMULA) else name


def _pair(cell: Cell | str) -> tuple[str, str]:
    if isinstance(cell, str):
        return "", DOES_NOT_FIT
    return f"{cell.needed / GiB:.2f}", cell.verdict or ""


def _shown(cell: Cell | str) -> str:
    if isinstance(cell, str):
        return "-"
    size = f"{cell.needed / GiB:,.{0 if cell.needed >= 1000 * GiB else 2}f}"
    if cell.verdict != DOES_NOT_FIT:
        return f"{size} {CLOSE}" if cell.verdict == TIGHT else size
    return f"{size} {NO_ROOM if cell.headroom is None or cell.headroom >= 0 else TOO_LARGE}"


def _coloured(cell: Cell | str) -> Text:
    colours = {FITS: "green", TIGHT: "yellow", DOES_NOT_FIT: "red"}
    return Text(_shown(cell), style="" if isinstance(cell, str) else colours.get(cell.verdict or "", ""))


def _verdict(cell: Cell | str) -> str | None:
    return DOES_NOT_FIT if isinstance(cell, str) else cell.verdict


def _legend(rows: Sequence[ModelRow], cluster: Cluster) -> str:
    shown = [_shown(cell) for row in rows for cell in row.cells.values()]
    parts = [OFFLOADED, SIZES]
    if any(text.endswith(CLOSE) for text in shown):
        parts.append(f"{CLOSE}: tight, such runs took more than is there.")
    if any(text.endswith(TOO_LARGE) for text in shown) and cluster.capacity is not None:
        parts.append(f"{TOO_LARGE}: more than the {gib(_usable(rows, cluster.capacity))} of a GPU.")
    if any(text.endswith(NO_ROOM) for text in shown) and cluster.host_memory is not None:
        parts.append(f"{NO_ROOM}: more than the {gib(cluster.host_memory)} of a node's memory.")
    if "-" in shown:
        parts.append("-: cannot run.")
    return " ".join(parts)


def _usable(rows: Sequence[ModelRow], capacity: int) -> int:
    """Bytes of a GPU, less what is kept free."""
    cells = (cell for row in rows for cell in row.cells.values() if not isinstance(cell, str))
    return next((cell.needed + cell.headroom for cell in cells if cell.headroom is not None), capacity)


def _gpus(cluster: Cluster) -> str:
    size = f" of {gib(cluster.capacity)}" if cluster.capacity is not None else ""
    card = f" ({cluster.gpu.title})" if cluster.gpu else ""
    return f"{cluster.gpus} GPU{'s' if cluster.gpus > 1 else ''}{size}{card}"


def _listed(names: list[str], last: str) -> str:
    return f" {last} ".join(part for part in (", ".join(names[:-1]), *names[-1:]) if part)
