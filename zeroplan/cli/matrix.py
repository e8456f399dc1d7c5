"""`zeroplan matrix`: models by strategies."""

from __future__ import annotations

from typing import Any

import typer

from zeroplan.cli.options import Options, flag
from zeroplan.cli.progress import part, watched
from zeroplan.cli.request import Request, check_offload, read_request
from zeroplan.cli.screen import View, exit_code, show
from zeroplan.cli.several import lists, with_values
from zeroplan.costs.ledger import ledger
from zeroplan.costs.timing.rates import is_timed
from zeroplan.costs.timing.speed import speed
from zeroplan.errors import ContradictionError, QuantityError, shown
from zeroplan.fit import fit
from zeroplan.ledger import Detail
from zeroplan.outcome import Outcome, outcome
from zeroplan.results.matrix import Matrix, MatrixRow
from zeroplan.specs.scope import scope
from zeroplan.specs.strategy import Offload

CPU = Offload(device="cpu")
STRATEGIES: dict[str, dict[str, Any]] = {
    **{f"ZeRO-{stage}": {"stage": stage} for stage in range(4)},
    "ZeRO-2 + CPU": {"stage": 2, "offload_optimizer": CPU},
    "ZeRO-3 + CPU": {"stage": 3, "offload_optimizer": CPU, "offload_param": CPU},
}
"""The columns."""
SIZES = "1.3B,7B,13B,70B"
"""The rows when no model is named."""
FORMATS = ("text", "markdown", "csv")
MOST = 64
"""Models in one table."""
COLUMNS = ("stage", "offload_optimizer", "offload_param", "config")


def run(options: Options, *, form: str, view: View) -> int:
    """0 when something fits (or nothing could fail), 1 when nothing does."""
    if form not in FORMATS:
        raise QuantityError(f"--format: found {shown(form)}, expected {', '.join(FORMATS)}; write --format markdown")
    if view.json and form != "text":
        raise ContradictionError(f"--json and --format {form} both say what is printed; keep one")
    with watched("matrix"):
        found = asked(options)
    if form == "text":
        return show(found, view, accept=options.accept)
    typer.echo(found.markdown() if form == "markdown" else found.csv().rstrip("\n"))
    return exit_code(found.verdict, options.accept)


def asked(options: Options) -> Matrix:
    """Every model under every strategy."""
    for name in COLUMNS:
        if getattr(options, name) is not None:
            raise ContradictionError(
                f"matrix: found {flag(name)}, expected none, for stages and offload are its columns; leave it out, "
                f"or write zeroplan compare"
            )
    several = lists(options, ("params", "model"), "matrix", {})
    if options.params is None and options.model is None:
        several = {"params": SIZES.split(",")}
    if len(several) > 1:
        raise ContradictionError("--params and --model both name models; write one matrix for each")
    models = [{name: value} for name, values in several.items() for value in dict.fromkeys(values)] or [{}]
    if len(models) > MOST:
        raise QuantityError(f"matrix: found {len(models)} models, expected at most {MOST}; write fewer")
    requests = [read_request(with_values(options, changed), default_gpus=8) for changed in models]
    rows: list[MatrixRow] = []
    for number, each in enumerate(requests, 1):
        part(each.model.name, number, len(requests))
        rows.append(MatrixRow(each.model, {name: _cell(each, to) for name, to in STRATEGIES.items()}))
    planned = scope([row.model for row in rows], requests[0].workload.seq)
    return Matrix(rows, requests[0].cluster, _assumed(requests), planned, requests[0].headroom)


def _assumed(requests: list[Request]) -> tuple[str, ...]:
    """What was assumed for all rows, then what for some; of inferred shapes that they are."""
    said = [[text for text in each.assumed if text.partition(";")[0] != each.model.source] for each in requests]
    every = dict.fromkeys(text for row in said for text in row)
    common = [text for text in every if all(text in row for row in said)]
    some = "; ".join(text for text in every if text not in common)
    inferred = "shapes inferred from the counts (zeroplan estimate --params 7B shows one; --model is exact)"
    size = f"micro-batch {requests[0].job().strategy.micro_batch} (--micro-batch)"
    batch = [size] if all("micro_batch" not in each.fixed for each in requests) else []
    return (
        *common, *batch, *([inferred] if any(each.model.inferred for each in requests) else []),
        *([f"for some rows: {some}"] if some else []),
    )  # fmt: skip


def _cell(request: Request, strategy: dict[str, Any]) -> Outcome | str:
    """The numbers of one strategy, or why it cannot run."""
    try:
        check_offload({**request.fixed, **strategy})
        job = request.job(**strategy, **request.free_sizes)
        counted = ledger(job, detail=Detail.WHOLE)
        verdict = fit(job, counted, reserve=request.reserve)
        return outcome(job, counted, verdict, speed(job, counted) if is_timed(job) else None)
    except ContradictionError as error:
        return str(error)
