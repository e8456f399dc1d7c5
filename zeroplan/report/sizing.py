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
from zeroplan.report.subject import on_host
from zeroplan.search import Candidate
from zeroplan.sizing import Fewest, Lack
from zeroplan.specs.cluster import Cluster
from zeroplan.units import between, count, duration, gib


def fewest(result: Fewest, chosen: Candidate | None) -> str:
    """Why no fewer GPUs are enough for the plan."""
    if result.gpus is None and result.late:
        return f"Nor do fewer: {result.smaller:,} GPUs are the most that were tried."
    if result.gpus is None:
        return f"Nor on fewer: {result.smaller:,} GPUs are the most that were tried."
    if result.smaller is None:
        if result.gpus == 1:
            on_node = chosen is not None and bool(on_host(chosen.job, chosen.fit)) and chosen.fit.host.capacity is None
            return f"One GPU is enough{', if its node has that memory' * on_node}."
        return f"No fewer than {result.gpus} GPUs share that batch evenly."
    if result.late:
        late = f"{duration(result.late)} late" if result.late < inf else "not at all"
        return f"These are the fewest: {result.smaller} GPU{'s end' if result.smaller > 1 else ' ends'} {late}."
    one = result.smaller == 1
    why = f" {'lacks' if one else 'lack'} {lacking(result.lack)}" if result.lack else " cannot run it"
    return f"These are the fewest: {result.smaller} GPU{'' if one else 's'}{why}."


def lacking(lack: Lack) -> str:
    """What is missing, in which place, under which strategy."""
    where = "each" if lack.tier == "gpu" else f"of {PLACES[lack.tier]}"
    return f"{gib(lack.bytes)} {where} ({label(lack.candidate)})"


def largest_summary(rows: Mapping[str, Largest | None], cluster: Cluster) -> Text:
    """The largest model of each row."""
    size = gib(cluster.capacity) if cluster.capacity is not None else ""
    what = f"The largest model on {cluster.gpus} GPU{'s' if cluster.gpus > 1 else ''} of {size}"
    sizes = [f"{count(largest.parameters)} {name}" if largest else f"none {name}" for name, largest in rows.items()]
    return Text(f"{what}: {', '.join(sizes)}.", style="bold green" if any(rows.values()) else "bold red")


def largest_details(rows: Mapping[str, Largest | None], notes: list[str]) -> list[RenderableType]:
    """The plan of each row's largest model, and what the next larger one lacks."""
    plans = [largest.candidate for largest in rows.values() if largest]
    sizes = least([marks(one.job).needed for one in plans] or [ASSUMED])
    times = least([of_time(one.job, one.speed) for one in plans] or [ASSUMED])
    grid = table(["", "largest", "plan", f"{sizes}per GPU", "?per node", f"{times}tokens/s/GPU"])
    grid.columns[2].justify = "left"
    grid.columns[2].no_wrap = False
    for name, largest in rows.items():
        if largest is None:
            grid.add_row(name, "-", "not even 1M fits")
            continue
        one = largest.candidate
        speed = speed_of(one.job, one.time)
        host = between(one.fit.host.needed, one.fit.host.most)
        rate = f"{speed.tokens_per_gpu:,.0f}"
        grid.add_row(name, count(largest.parameters), label(one), gib(one.fit.gpu.needed), host, rate)
    missing = [
        f"{name}: {count(largest.next_size)} lacks {lacking(largest.lack)}."
        for name, largest in rows.items() if largest and largest.next_size and largest.lack
    ]  # fmt: skip
    said = [legend(plans[0].job, {sizes, times, ASSUMED})] if plans else []
    return ["", grid, *(Text(line, style="dim") for line in [*missing, *notes]), *said]
