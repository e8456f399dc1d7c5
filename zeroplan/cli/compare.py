"""`zeroplan compare`: options that hold lists are tried in every combination, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import typer

from zeroplan.cli.options import Options
from zeroplan.cli.progress import part, watched
from zeroplan.cli.request import Request, read_request
from zeroplan.cli.screen import View, exit_code
from zeroplan.cli.several import lists, with_values
from zeroplan.costs.ledger import ledger
from zeroplan.costs.timing.speed import speed
from zeroplan.errors import ContradictionError, QuantityError, ZeroplanError
from zeroplan.fit import fit
from zeroplan.ledger import Detail
from zeroplan.report.compare import Combination, Failed
from zeroplan.results.result import best
from zeroplan.specs.job import Job
from zeroplan.specs.scope import scope

LISTS = (
    "gpus", "gpu", "cluster", "config", "stage", "seq", "micro_batch", "grad_accum", "global_batch", "precision",
    "optimizer", "optim", "built_in", "checkpointing", "attention", "kernels", "offload_optimizer", "offload_param",
)  # fmt: skip
"""Options that may hold several values, separated by commas."""
INSTEAD = {
    "gpu_mem": "write several cards, --gpu a100-40gb,h100-80gb",
    "hostfile": "write several numbers of GPUs, --gpus 8,4x8",
}
"""For the others where people try a list."""
SCALING = "1,2,4,8,16,32,64,128,256,512"
"""GPUs that are compared when nothing else is."""
MOST = 64
"""Combinations in one table."""


def run(options: Options, *, view: View) -> int:
    """0 when something fits, 1 when nothing does."""
    varied = lists(options, LISTS, "compare", INSTEAD)
    if not varied and options.gpus is None and options.hostfile is None:
        varied = {"gpus": SCALING.split(",")}
    if not varied:
        raise ContradictionError(
            "nothing to compare: write several values behind an option, as in --gpus 8,64,512 or --stage 1,2,3"
        )
    combinations = [dict(zip(varied, values, strict=True)) for values in product(*varied.values())]
    if len(combinations) > MOST:
        raise QuantityError(f"compare: found {len(combinations)} combinations, expected at most {MOST}; write fewer")
    rows: list[Combination | Failed] = []
    with watched("compare"):
        for number, changed in enumerate(combinations, 1):
            part(", ".join(changed.values()), number, len(combinations))
            rows += _rows(options, changed, alone="gpus" in varied)
    found = [row for row in rows if isinstance(row, Combination)]
    if not found:
        raise ContradictionError(rows[0].reason if isinstance(rows[0], Failed) else "nothing to compare")
    planned = scope([row.job.model for row in found], found[0].job.workload.seq)
    if view.json:
        from zeroplan.report import machine, machine_compare
        from zeroplan.schema.comparisons import Compare

        document = Compare(
            scope=machine.scope_object(planned), model=machine.model_object(found[0].job.model),
            rows=[machine_compare.compare_row(row) for row in rows],
        )  # fmt: skip
        typer.echo(machine.dumps(document))
    else:
        from zeroplan.report import compare, console, rendered
        from zeroplan.report.cards import common
        from zeroplan.report.subject import scope_lines

        head, assumed = scope_lines(planned, quiet=view.quiet), common([row.assumed for row in found])
        console.show(*rendered.screen(compare.answer(found), head, compare.details(rows), assumed, view.level))
    return exit_code(best(row.fit.verdict for row in found), options.accept)


def _rows(options: Options, changed: dict[str, str], *, alone: bool) -> Sequence[Combination | Failed]:
    """Of one combination every stage that is asked for; `alone`: the fastest of those that fit."""
    tried = with_values(options, changed)
    try:
        request = read_request(tried, default_gpus=8)
        if request.cluster.gpu is None:
            raise QuantityError("no card: write --gpu h100-80gb, --gpu-mem 80 or --cluster dgx-h100")
        if tried.backend == "cpu":
            raise QuantityError("--backend cpu has no card to be timed; leave it out")
        found = [_timed(changed, job, request) for job in request.jobs()]
    except ZeroplanError as error:
        if not (isinstance(error, ContradictionError) or str(error).startswith("--global-batch")):
            raise  # what nobody could mean; what does not go together is a row
        return [Failed(changed, str(error))]
    if not alone or len(found) == 1:
        return found
    fitting = [row for row in found if row.fit.fits is not False] or [row for row in found if row.fit.possible]
    if not fitting:
        return [min(found, key=lambda row: row.fit.gpu.needed)]
    return [min(fitting, key=lambda row: row.speed.step.total)]


def _timed(changed: dict[str, str], job: Job, request: Request) -> Combination:
    counted, assumed = ledger(job, detail=Detail.WHOLE), request.assumed_for([job])
    verdict = fit(job, counted, reserve=request.reserve)
    return Combination(changed, job, verdict, speed(job, counted), assumed, request.headroom)
