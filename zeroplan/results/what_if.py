"""Settings around a plan, with what `zeroplan estimate` comes to for each: the grid that a page carries.

Stage, offload, checkpointing and micro-batch are combined freely. Sequence, GPUs and what trains leave the plan's one
at a time, each by itself (`near`), or with all those combinations (`wide`).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any, NamedTuple

from zeroplan.clock import Speed
from zeroplan.costs.ledger import ledger
from zeroplan.costs.timing import is_timed
from zeroplan.costs.timing.speed import speed
from zeroplan.errors import ZeroplanError
from zeroplan.fit import Fit, fit
from zeroplan.ledger import Detail, Ledger
from zeroplan.request.options import OPTIONS, TRAINED, Options
from zeroplan.request.request import read_request
from zeroplan.request.several import label
from zeroplan.request.values import flag, with_card
from zeroplan.results.methods import FULL, LORA, METHODS, QLORA, stated_for
from zeroplan.search import Candidate
from zeroplan.specs.cluster import Cluster
from zeroplan.specs.job import Job
from zeroplan.specs.model import Model
from zeroplan.specs.strategy import Strategy

NVME, CPU, NONE = "nvme", "cpu", "none"
OFFLOADS = {
    "none": (NONE, NONE), "optimizer on cpu": (CPU, NONE), "optimizer and parameters on cpu": (CPU, CPU),
    "optimizer on nvme": (NVME, NONE), "optimizer and parameters on nvme": (NVME, NVME),
    "optimizer on nvme, parameters on cpu": (NVME, CPU), "parameters on cpu": (NONE, CPU),
}  # fmt: skip
"""Where the optimizer's states and the parameters are, by what a page calls it."""
NEAR, WIDE = GRIDS = ("near", "wide")
SHORTEST = 128
"""Tokens of a sequence, below which none is offered."""


class Setting(NamedTuple):
    """One value of an axis: how a control shows it, and the options that state it."""

    text: str
    options: Mapping[str, Any]
    ranks: int = 0
    """Of a number of GPUs."""


class Axis(NamedTuple):
    name: str
    settings: tuple[Setting, ...]
    plan: int
    """Which of them is the plan's."""
    free: bool
    """Combined with the others; else alone."""


class Estimated(NamedTuple):
    """What an estimate of a cell counts."""

    job: Job
    ledger: Ledger
    fit: Fit
    speed: Speed | None


class Cell(NamedTuple):
    """One combination: its place on each axis, the options that state it, and the estimate or why there is none."""

    at: tuple[int, ...]
    options: dict[str, Any]
    estimated: Estimated | None
    refused: str = ""

    @property
    def batch(self) -> str:
        """The words of a command that no axis says."""
        return shlex.join(words({name: self.options[name] for name in ("grad_accum",) if name in self.options}))


class Grid(NamedTuple):
    axes: tuple[Axis, ...]
    cells: tuple[Cell, ...]
    base: dict[str, Any]
    """Options of all cells, but for what their axes say."""

    @property
    def plan(self) -> tuple[int, ...]:
        """The plan's place on each axis."""
        return tuple(axis.plan for axis in self.axes)

    def along(self, *names: str) -> list[Cell]:
        """The cells that differ from the plan's settings on these axes alone."""
        fixed = [at for at, axis in enumerate(self.axes) if axis.name not in names]
        return [cell for cell in self.cells if all(cell.at[at] == self.plan[at] for at in fixed)]

    def text(self, cell: Cell, name: str) -> str:
        """The cell's value on an axis."""
        at = next(at for at, axis in enumerate(self.axes) if axis.name == name)
        return self.axes[at].settings[cell.at[at]].text


def what_if(stated: Mapping[str, Any], chosen: Candidate, extent: str = NEAR) -> Grid:
    """The grid around a plan of these options. Its cells have DeepSpeed's own bucket sizes, as `estimate` has."""
    strategy, job = chosen.strategy, chosen.job
    gpus, gpu = with_card(stated.get("gpus"), stated.get("gpu"))
    base = {name: value for name, value in {**stated, "gpus": gpus, "gpu": gpu}.items() if value is not None}
    if not any(name in base for name in ("model", "params", "adapter", "config")):
        base["params"] = "7B"
    stages = tuple(Setting(f"ZeRO-{stage}", {"stage": stage}) for stage in range(4))
    axes = (
        Axis("stage", stages, strategy.stage, free=True),
        _offload(strategy, job.cluster), _checkpointing(strategy),
        _sizes("micro-batch", "micro_batch", strategy.micro_batch, (0.5, 1, 2), 1, free=True),
        _sizes("sequence", "seq", job.workload.seq, (0.5, 1, 2, 4), SHORTEST, free=False),
        _gpus(stated, job.cluster), _method(base),
    )  # fmt: skip
    varied = {name for axis in axes for one in axis.settings for name in one.options} | {"grad_accum"}
    shared = {name: value for name, value in base.items() if name not in varied} | {"attention": strategy.attention}
    known: dict[int, Model] = {axes[-1].plan: job.model}
    return Grid(axes, tuple(_cell(each, axes, shared, chosen, known) for each in _places(axes, extent)), shared)


def _places(axes: Sequence[Axis], extent: str) -> Iterator[tuple[int, ...]]:
    """Those of the plan's own model first: what is counted of one is remembered until another comes."""
    yield from product(*(range(len(axis.settings)) if axis.free else (axis.plan,) for axis in axes))
    for at, axis in enumerate(axes):
        if axis.free:
            continue
        for value in range(len(axis.settings)):
            if value == axis.plan:
                continue
            free = (range(len(each.settings)) if each.free and extent == WIDE else (each.plan,) for each in axes)
            for values in product(*free):
                yield *values[:at], value, *values[at + 1 :]


def command(name: str, options: Mapping[str, Any]) -> str:
    """A command of the shell with these options."""
    return shlex.join(["zeroplan", name, *words(options)])


def words(options: Mapping[str, Any]) -> Iterator[str]:
    for name, value in options.items():
        repeated = OPTIONS[name].repeats and not isinstance(value, str)
        for each in value if repeated else (value,):
            yield from (flag(name), label(name, each))


def _cell(
    at: tuple[int, ...], axes: Sequence[Axis], shared: Mapping[str, Any], chosen: Candidate, known: dict[int, Model]
) -> Cell:  # fmt: skip
    """`shared`: options of all cells; `known`: the model of each way to train, by its place."""
    settings, plan = [axis.settings[place] for axis, place in zip(axes, at, strict=True)], chosen.strategy
    options = dict(shared)
    for each in settings:
        options |= each.options
    if "global_batch" not in shared:
        sequences = plan.micro_batch * plan.micro_steps * chosen.job.ranks
        options["grad_accum"] = max(1, sequences // (options["micro_batch"] * settings[-2].ranks))
    try:
        read = Options(chosen.job.workload.script, **options)
        request = read_request(read, known=known.get(at[-1]))
        known[at[-1]] = request.model
        (job,) = request.jobs()
        counted = ledger(job, detail=Detail.WHOLE)
        timed = speed(job, counted) if is_timed(job) else None
        return Cell(at, options, Estimated(job, counted, fit(job, counted, reserve=request.reserve), timed))
    except ZeroplanError as error:
        return Cell(at, options, None, str(error))


def _offload(strategy: Strategy, cluster: Cluster) -> Axis:
    parts = (strategy.offload_optimizer, strategy.offload_param)
    optimizer, parameters = (part.device if part else NONE for part in parts)
    own = optimizer, parameters
    names: list[str] = [
        name for name, devices in OFFLOADS.items()
        if devices == own or (devices in ((NONE, NONE), (CPU, NONE), (CPU, CPU)))
        or (cluster.nvme is not None and devices in ((NVME, NONE), (NVME, NVME)))
    ]  # fmt: skip
    settings = tuple(
        Setting(name, dict(zip(("offload_optimizer", "offload_param"), OFFLOADS[name], strict=True))) for name in names
    )
    return Axis("offload", settings, [OFFLOADS[name] for name in names].index(own), free=True)


def _checkpointing(strategy: Strategy) -> Axis:
    names = list(dict.fromkeys(["none", "full", strategy.checkpointing]))
    settings = tuple(Setting(name, {"checkpointing": name}) for name in names)
    return Axis("checkpointing", settings, names.index(strategy.checkpointing), free=True)


def _sizes(name: str, option: str, size: int, factors: Sequence[float], least: int, *, free: bool) -> Axis:
    """A size, and its multiples."""
    sizes = sorted({size} | {int(size * factor) for factor in factors if int(size * factor) >= least})
    settings = tuple(Setting(f"{each:,}", {option: each}) for each in sizes)
    return Axis(name, settings, sizes.index(size), free)


def _gpus(stated: Mapping[str, Any], cluster: Cluster) -> Axis:
    """Half, twice and four times as many: whole nodes where there are several, else GPUs of one node."""
    if stated.get("hostfile") is not None:
        return Axis("GPUs", (Setting(f"{cluster.gpus:,}", {}, cluster.gpus),), 0, free=False)
    width = cluster.gpus_per_node
    shapes = {(cluster.nodes, width)} | {(nodes, width) for nodes in (2 * cluster.nodes, 4 * cluster.nodes)}
    if cluster.nodes > 1:
        shapes |= {(cluster.nodes // factor, width) for factor in (2, 4) if cluster.nodes % factor == 0}
    else:
        shapes |= {(1, width // factor) for factor in (2, 4, 8) if width % factor == 0}
        if width < 8:
            shapes = {(1, each) for each in (1, 2, 4, 8)} | {(1, width)}
    ordered = sorted(shapes, key=lambda shape: shape[0] * shape[1])
    settings = tuple(
        Setting(
            f"{nodes * wide:,}" if nodes == 1 else f"{nodes * wide:,} ({nodes}x{wide})",
            {"gpus": f"{nodes}x{wide}" if nodes > 1 else f"{wide}"}, nodes * wide,
        )
        for nodes, wide in ordered
    )  # fmt: skip
    return Axis("GPUs", settings, ordered.index((cluster.nodes, width)), free=False)


def _method(base: Mapping[str, Any]) -> Axis:
    """Full training, LoRA and QLoRA; what the options say where that is another."""
    own = _own_method(base)
    if own is None:
        return Axis("trains", (Setting("as stated", {}),), 0, free=False)
    each = {name: stated_for(name, base) for name in METHODS}
    settings = tuple(
        Setting(name, {option: value for option, value in options.items() if option in TRAINED})
        for name, options in each.items()
    )
    return Axis("trains", settings, METHODS.index(own), free=False)


def _own_method(base: Mapping[str, Any]) -> str | None:
    named = {name for name in TRAINED if base.get(name) is not None}
    if not named:
        return FULL if base.get("config") is None else None
    if named & {"freeze", "train", "adapter"} or not named & {"lora"}:
        return None
    return QLORA if named & {"quantize"} else LORA
