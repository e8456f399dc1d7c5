"""Planning questions in words: the fewest GPUs, what is missing, and the largest model."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from rich.console import RenderableType
from rich.text import Text

from zeroplan.costs.timing.speed import speed_of
from zeroplan.fit import PLACES
from zeroplan.largest import Largest
from zeroplan.plan import label
from zeroplan.report.brief.marks import ASSUMED, least, legend, marks, of_time
from zeroplan.report.console import table
from zeroplan.sizing import Fewest, Lack
from zeroplan.specs.cluster import Cluster
from zeroplan.units import between, count, duration, gib


def fewest(found: Fewest) -> str:
    """Why no fewer GPUs are enough."""
    if found.gpus is None and found.late:
        return f"Nor do fewer: {found.smaller:,} GPUs are the most that were tried."
    if found.gpus is None:
        return f"Nor on fewer: {found.smaller:,} GPUs are the most that were tried."
    if found.smaller is None:
        return "One GPU is enough." if found.gpus == 1 else f"No fewer than {found.gpus} GPUs share that batch evenly."
    if found.late:
        late = f"{duration(found.late)} late" if found.late < inf else "not at all"
        return f"These are the fewest: {found.smaller} GPU{'s end' if found.smaller > 1 else ' ends'} {late}."
    one = found.smaller == 1
    why = f" {'lacks' if one else 'lack'} {lacking(found.lack)}" if found.lack else " cannot run it"
    return f"These are the fewest: {found.smaller} GPU{'' if one else 's'}{why}."


def lacking(found: Lack) -> str:
    """What is missing, in which place, under which strategy."""
    where = "each" if found.tier == "gpu" else f"of {PLACES[found.tier]}"
    return f"{gib(found.bytes)} {where} ({label(found.candidate)})"


def largest_answer(rows: Mapping[str, Largest | None], cluster: Cluster) -> Text:
    """The largest model of each row."""
    size = gib(cluster.capacity) if cluster.capacity is not None else ""
    what = f"The largest model on {cluster.gpus} GPU{'s' if cluster.gpus > 1 else ''} of {size}"
    sizes = [f"{count(found.parameters)} {name}" if found else f"none {name}" for name, found in rows.items()]
    return Text(f"{what}: {', '.join(sizes)}.", style="bold green" if any(rows.values()) else "bold red")


def largest_details(rows: Mapping[str, Largest | None], notes: list[str]) -> list[RenderableType]:
    """The plan of each row's largest model, and what the next larger one lacks."""
    plans = [found.candidate for found in rows.values() if found]
    sizes = least([marks(one.job).needed for one in plans] or [ASSUMED])
    times = least([of_time(one.job, one.speed) for one in plans] or [ASSUMED])
    grid = table(["", "largest", "plan", f"{sizes}per GPU", "?per node", f"{times}tokens/s/GPU"])
    grid.columns[2].justify = "left"
    grid.columns[2].no_wrap = False
    for name, found in rows.items():
        if found is None:
            grid.add_row(name, "-", "not even 1M fits")
            continue
        one = found.candidate
        speed = speed_of(one.job, one.time)
        host = between(one.fit.host.needed, one.fit.host.most)
        rate = f"{speed.tokens_per_gpu:,.0f}"
        grid.add_row(name, count(found.parameters), label(one), gib(one.fit.gpu.needed), host, rate)
    missing = [
        f"{name}: {count(found.next_size)} lacks {lacking(found.lack)}."
        for name, found in rows.items() if found and found.next_size and found.lack
    ]  # fmt: skip
    said = [legend(plans[0].job, {sizes, times, ASSUMED})] if plans else []
    return ["", grid, *(Text(line, style="dim") for line in [*missing, *notes]), *said]
