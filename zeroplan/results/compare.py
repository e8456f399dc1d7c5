"""What `compare` comes to: combinations of options, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

from zeroplan.costs.ledger import ledger
from zeroplan.costs.timing.speed import speed
from zeroplan.errors import ContradictionError, QuantityError, ZeroplanError
from zeroplan.fit import fit
from zeroplan.ledger import Detail
from zeroplan.progress import part
from zeroplan.report.compare import Combination, Failed
from zeroplan.report.depth import BRIEF, QUIET
from zeroplan.request.options import Options
from zeroplan.request.request import Request, read_request
from zeroplan.request.several import label, lists
from zeroplan.results.result import Result, best
from zeroplan.specs.job import Job
from zeroplan.specs.scope import Scope, scope

if TYPE_CHECKING:
    from zeroplan.report.rendered import Screen
    from zeroplan.schema.comparisons import Compare

LISTS = (
    "gpus", "gpu", "cluster", "config", "stage", "seq", "micro_batch", "grad_accum", "global_batch", "precision",
    "optimizer", "optim", "built_in", "checkpointing", "attention", "kernels", "offload_optimizer", "offload_param",
    "lora", "quantize", "double_quant", "quant_storage",
)  # fmt: skip
"""Options that may hold several values, separated by commas."""
INSTEAD = {
    "gpu_mem": "write several cards, --gpu a100-40gb,h100-80gb",
    "hostfile": "write several numbers of GPUs, --gpus 8,4x8",
}
"""What to write in place of a list, by the option that takes none."""
SCALING = "1,2,4,8,16,32,64,128,256,512"
"""GPUs that are compared when nothing else is."""
MOST = 64
"""Combinations in one table."""


class Combinations(Result):
    """The numbers of each combination, or why it cannot run."""

    def __init__(self, rows: Sequence[Combination | Failed]) -> None:
        self.rows = rows
        self._counted = [row for row in rows if isinstance(row, Combination)]
        if not self._counted:
            raise ContradictionError(rows[0].reason if isinstance(rows[0], Failed) else "nothing to compare")

    @property
    def verdict(self) -> str | None:
        return best(row.fit.verdict for row in self._counted)

    @property
    def scope(self) -> Scope:
        """The jobs that the numbers are of."""
        lengths = tuple(dict.fromkeys(row.job.workload.seq for row in self._counted))
        return scope([row.job.model for row in self._counted], lengths[0])._replace(lengths=lengths)

    def screen(self, level: int = BRIEF) -> Screen:
        from zeroplan.report import compare as report
        from zeroplan.report import rendered
        from zeroplan.report.cards import common
        from zeroplan.report.subject import scope_lines

        head = scope_lines(self.scope, quiet=level == QUIET)
        assumed = common([row.assumed for row in self._counted])
        return rendered.screen(report.summary(self._counted), head, report.details(self.rows), assumed, level)

    def content(self) -> Compare:
        from zeroplan.report import json_compare, json_objects
        from zeroplan.schema.comparisons import Compare

        return Compare(
            scope=json_objects.scope_object(self.scope), model=json_objects.model_object(self._counted[0].job.model),
            rows=[json_compare.compare_row(row) for row in self.rows],
        )  # fmt: skip


def compare(stated: Mapping[str, Any]) -> Combinations:
    """Every combination of what the options state; some hold several values."""
    varied = lists(stated, LISTS, "compare", INSTEAD)
    if not varied and "gpus" not in stated and "hostfile" not in stated:
        varied = {"gpus": SCALING.split(",")}
    if not varied:
        raise ContradictionError(
            "nothing to compare: write several values behind an option, as in --gpus 8,64,512 or --stage 1,2,3"
        )
    combinations = [dict(zip(varied, values, strict=True)) for values in product(*varied.values())]
    if len(combinations) > MOST:
        raise QuantityError(f"compare: found {len(combinations)} combinations, expected at most {MOST}; write fewer")
    rows: list[Combination | Failed] = []
    for number, changed in enumerate(combinations, 1):
        part(", ".join(label(name, value) for name, value in changed.items()), number, len(combinations))
        rows += _rows(stated, changed, alone="gpus" in varied)
    return Combinations(rows)


def _rows(stated: Mapping[str, Any], changed: dict[str, Any], *, alone: bool) -> Sequence[Combination | Failed]:
    """Every requested stage of one combination; `alone`: the fastest that fits, of equals that which needs least."""
    named = {name: label(name, value) for name, value in changed.items()}
    try:
        tried = Options(**{**stated, **changed})
        request = read_request(tried, default_gpus=8)
        if request.cluster.gpu is None:
            raise QuantityError("no card: write --gpu h100-80gb, --gpu-mem 80 or --cluster dgx-h100")
        if tried.backend == "cpu":
            raise QuantityError("--backend cpu has no card to be timed; leave it out")
        rows = [_timed(named, job, request) for job in request.jobs()]
    except ZeroplanError as error:
        if not (isinstance(error, ContradictionError) or str(error).startswith("--global-batch")):
            raise  # what nobody could mean; what does not go together is a row
        return [Failed(named, str(error))]
    if not alone or len(rows) == 1:
        return rows
    fitting = [row for row in rows if row.fit.fits is not False] or [row for row in rows if row.fit.possible]
    if not fitting:
        return [min(rows, key=lambda row: row.fit.gpu.needed)]
    return [min(fitting, key=lambda row: (row.speed.step.total, row.fit.gpu.needed))]


def _timed(changed: dict[str, str], job: Job, request: Request) -> Combination:
    counted, assumed = ledger(job, detail=Detail.WHOLE), request.assumed_for([job])
    verdict = fit(job, counted, reserve=request.reserve)
    return Combination(changed, job, verdict, speed(job, counted), assumed, request.headroom)
