"""What `recommend --max-params` comes to: the largest model, with and without offload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from zeroplan.architectures.infer import infer
from zeroplan.errors import ContradictionError
from zeroplan.fit import DOES_NOT_FIT, FITS
from zeroplan.largest import Largest, largest
from zeroplan.outcome import Outcome
from zeroplan.plan import OFFLOADS
from zeroplan.progress import part, tell
from zeroplan.report.depth import BRIEF, QUIET
from zeroplan.request.options import Options
from zeroplan.request.request import Request
from zeroplan.request.several import cards_named
from zeroplan.request.trained import read_trained
from zeroplan.request.values import AUTO
from zeroplan.results.planning import read_plan, usual_sequences
from zeroplan.results.recommend import numbers
from zeroplan.results.result import Result
from zeroplan.specs.cluster import Cluster
from zeroplan.specs.headroom import Headroom
from zeroplan.specs.job import Job
from zeroplan.specs.scope import Scope, scope
from zeroplan.specs.target import Script
from zeroplan.units import count

if TYPE_CHECKING:
    from zeroplan.report.rendered import Screen
    from zeroplan.schema import recommend as schema


NO_HOST = "CPU offload is left out: say how much memory a node has, --host-mem 512GiB or --cluster dgx-h100."


class Size(NamedTuple):
    """A largest model: its parameters, the numbers of its plan, and the next size, which does not fit."""

    parameters: int
    plan: Outcome
    next_size: int | None


class LargestModels(Result):
    """The largest model that the cluster can train, by what may be offloaded."""

    def __init__(
        self, by_offload: Mapping[str, Largest | None], cluster: Cluster, notes: list[str], assumed: tuple[str, ...],
        scope: Scope, headroom: Headroom | None = None,
    ) -> None:  # fmt: skip
        self.sizes = {name: _size(one) if one else None for name, one in by_offload.items()}
        """By what is offloaded: "without offload", "with CPU offload", "with NVMe offload"; None where nothing fits."""
        self.assumed = assumed
        self.scope = scope
        self._by_offload, self._cluster, self._notes, self._headroom = by_offload, cluster, notes, headroom

    @property
    def verdict(self) -> str:
        return FITS if any(self.sizes.values()) else DOES_NOT_FIT

    def screen(self, level: int = BRIEF) -> Screen:
        from zeroplan.report import rendered
        from zeroplan.report import sizing as report
        from zeroplan.report.subject import scope_lines

        head = scope_lines(self.scope, quiet=level == QUIET)
        body = report.largest_details(self._by_offload, self._notes)
        summary = report.largest_summary(self._by_offload, self._cluster)
        return rendered.screen(summary, head, body, self.assumed, level)

    def content(self) -> schema.LargestDocument:
        from zeroplan.report import json_objects, json_plan
        from zeroplan.schema import recommend as schema

        return schema.LargestDocument(
            scope=json_objects.scope_object(self.scope),
            largest={name: json_plan.largest_model(one) if one else None for name, one in self._by_offload.items()},
            assumed=self.assumed,
            kept_free=json_objects.kept_free(self._headroom, self._cluster.capacity),
        )


def _size(one: Largest) -> Size:
    return Size(one.parameters, numbers(one.candidate), one.next_size)


def largest_models(stated: Mapping[str, Any], script: Script) -> LargestModels:
    """The largest size of each row: no offload, CPU, NVMe where the cluster has any."""
    if "params" in stated or "model" in stated:
        raise ContradictionError("--max-params looks for the size; leave out --params and --model")
    if cards_named(stated) or stated.get("gpus") == AUTO:
        raise ContradictionError("--max-params asks of one cluster; write one card and --gpus 8 or --gpus 4x8")
    options = Options(script, **stated)
    request = read_plan(options)
    sizes: dict[str, Largest | None] = {}
    rows = _rows(request)
    for number, (name, (nvme, fixed)) in enumerate(rows.items(), 1):
        part(name, number, len(rows))
        before = next((one for one in reversed(sizes.values()) if one), None)  # what fits, fits with more left free
        sizes[name] = _largest(options, request, nvme, fixed, before)
    notes = [] if request.cluster.host_memory or _offload_stated(request) else [NO_HOST]
    models = [one.candidate.job.model for one in sizes.values() if one] or [request.model]
    of_them = scope(models, request.workload.seq, request.unplanned)._replace(model="a llama-shaped model")
    return LargestModels(sizes, request.cluster, notes, _assumed(request), of_them, request.headroom)


def _rows(request: Request) -> dict[str, tuple[int | None, dict[str, Any]]]:
    """NVMe that may be used, and fixed fields, of each row."""
    cluster, fixed = request.cluster, request.fixed
    if _offload_stated(request):
        return {"as asked": (cluster.nvme, fixed)}
    rows: dict[str, tuple[int | None, dict[str, Any]]] = {
        "without offload": (None, {**fixed, **dict.fromkeys(OFFLOADS)})
    }
    if cluster.host_memory:
        rows["with CPU offload"] = (None, fixed)
    if cluster.nvme:
        rows["with NVMe offload"] = (cluster.nvme, fixed)
    return rows


def _largest(
    options: Options, request: Request, nvme: int | None, fixed: dict[str, Any], before: Largest | None
) -> Largest | None:  # fmt: skip
    cluster = request.cluster._replace(nvme=nvme)

    def sized(parameters: int) -> Job:
        tell(f"trying {count(parameters)}")
        model = read_trained(options, infer(parameters, count(parameters)), request.file)
        return request._replace(model=model, cluster=cluster, fixed=fixed).job()

    return largest(sized, fixed, request.reserve, before=before)


def _offload_stated(request: Request) -> bool:
    return any(name in request.fixed for name in OFFLOADS)


def _assumed(request: Request) -> tuple[str, ...]:
    """What was assumed, less what was said of the model that stood in."""
    said = [
        text for text in request.assumed
        if "--model" not in text and ("--checkpointing" not in text or "checkpointing" in request.fixed)
    ]  # fmt: skip
    said.append("llama-shaped models as --params makes them")
    return (*said, *usual_sequences(request, request.job()))
