"""`zeroplan recommend --max-params`: the largest model that this cluster can train."""

from __future__ import annotations

from typing import Any

from zeroplan.architectures.infer import infer
from zeroplan.cli.options import Options
from zeroplan.cli.progress import part, tell
from zeroplan.cli.recommend import read, usual_sequences
from zeroplan.cli.request import Request
from zeroplan.cli.several import AUTO, cards_named
from zeroplan.errors import ContradictionError
from zeroplan.largest import Largest, largest
from zeroplan.plan import OFFLOADS
from zeroplan.results.largest import LargestModels
from zeroplan.specs.job import Job
from zeroplan.units import count

NO_HOST = "CPU offload is left out: say how much memory a node has, --host-mem 512GiB or --cluster dgx-h100."


def asked(options: Options) -> LargestModels:
    """The largest size of each row: no offload, CPU, NVMe where the cluster has any."""
    if options.params is not None or options.model is not None:
        raise ContradictionError("--max-params looks for the size; leave out --params and --model")
    if cards_named(options) or options.gpus == AUTO:
        raise ContradictionError("--max-params asks of one cluster; write one card and --gpus 8 or --gpus 4x8")
    request = read(options)
    found: dict[str, Largest | None] = {}
    rows = _rows(request)
    for number, (name, (nvme, fixed)) in enumerate(rows.items(), 1):
        part(name, number, len(rows))
        before = max((one.parameters for one in found.values() if one), default=0)
        found[name] = _largest(request, nvme, fixed, before)
    notes = [] if request.cluster.host_memory or _offload_stated(request) else [NO_HOST]
    scope = request.scope._replace(model="a llama-shaped model")
    return LargestModels(found, request.cluster, notes, _assumed(request), scope, request.headroom)


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


def _largest(request: Request, nvme: int | None, fixed: dict[str, Any], before: int) -> Largest | None:
    cluster = request.cluster._replace(nvme=nvme)

    def sized(parameters: int) -> Job:
        tell(f"trying {count(parameters)}")
        return request._replace(model=infer(parameters, count(parameters)), cluster=cluster, fixed=fixed).job()

    return largest(sized, fixed, request.reserve, near=before)


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
