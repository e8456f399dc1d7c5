"""What `matrix` comes to: models by strategies, with what each needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from zeroplan.costs.ledger import ledger
from zeroplan.costs.timing import is_timed
from zeroplan.costs.timing.speed import speed
from zeroplan.errors import ContradictionError, QuantityError
from zeroplan.fit import DOES_NOT_FIT, fit
from zeroplan.ledger import Detail
from zeroplan.outcome import Outcome, outcome
from zeroplan.progress import part
from zeroplan.report.depth import BRIEF, QUIET
from zeroplan.request.options import Options
from zeroplan.request.request import Request, read_request
from zeroplan.request.several import lists
from zeroplan.request.strategy import check_offload
from zeroplan.request.values import flag
from zeroplan.results.result import Result, best
from zeroplan.specs.cluster import Cluster
from zeroplan.specs.headroom import Headroom
from zeroplan.specs.model import Model
from zeroplan.specs.scope import Scope, scope
from zeroplan.specs.strategy import Offload

if TYPE_CHECKING:
    from zeroplan.report.rendered import Screen
    from zeroplan.schema import comparisons as schema


CPU = Offload(device="cpu")
STRATEGIES: dict[str, dict[str, Any]] = {
    **{f"ZeRO-{stage}": {"stage": stage} for stage in range(4)},
    "ZeRO-2 + CPU": {"stage": 2, "offload_optimizer": CPU},
    "ZeRO-3 + CPU": {"stage": 3, "offload_optimizer": CPU, "offload_param": CPU},
}
"""The columns."""
SIZES = "1.3B,7B,13B,70B"
"""The rows when no model is named."""
MOST = 64
"""Models in one table."""
COLUMNS = ("stage", "offload_optimizer", "offload_param", "config")


class MatrixRow(NamedTuple):
    """One model under each strategy; in place of numbers, why it cannot run."""

    model: Model
    cells: dict[str, Outcome | str]


class Matrix(Result):
    """Models by strategies."""

    def __init__(
        self, rows: Sequence[MatrixRow], cluster: Cluster, assumed: tuple[str, ...], scope: Scope,
        headroom: Headroom | None = None,
    ) -> None:  # fmt: skip
        self.rows = {row.model.name: row.cells for row in rows}
        """Numbers by model and strategy: `rows["7B"]["ZeRO-3"].needed`."""
        self.assumed = assumed
        self.scope = scope
        self._rows, self._cluster, self._headroom = rows, cluster, headroom

    @property
    def verdict(self) -> str | None:
        cells = [cell for row in self._rows for cell in row.cells.values() if isinstance(cell, Outcome)]
        return best(cell.verdict for cell in cells) if cells else DOES_NOT_FIT

    def markdown(self) -> str:
        """The table in Markdown, for a README."""
        from zeroplan.report import matrix as report

        return report.markdown(self._rows, self._cluster)

    def csv(self) -> str:
        """For a spreadsheet: GiB, and yes or no, of each strategy."""
        from zeroplan.report import matrix as report

        return report.comma_separated(self._rows)

    def screen(self, level: int = BRIEF) -> Screen:
        from zeroplan.report import matrix as report
        from zeroplan.report import rendered
        from zeroplan.report.subject import scope_lines

        head, body = scope_lines(self.scope, quiet=level == QUIET), report.details(self._rows, self._cluster)
        summary = report.summary(self._rows, self._cluster)
        return rendered.screen(summary, head, body, self.assumed, level)

    def content(self) -> schema.MatrixDocument:
        from zeroplan.report import json_compare, json_objects
        from zeroplan.schema import comparisons as schema

        rows = [
            schema.MatrixRowObject(
                model=json_objects.model_object(row.model),
                strategies={name: json_compare.matrix_cell(cell) for name, cell in row.cells.items()},
            )
            for row in self._rows
        ]
        kept = json_objects.kept_free(self._headroom, self._cluster.capacity)
        return schema.MatrixDocument(rows=rows, assumed=self.assumed, kept_free=kept)


def matrix(stated: Mapping[str, Any]) -> Matrix:
    """Every model under every strategy. `stated`: options, of which several sizes or several models may be named."""
    for name in COLUMNS:
        if name in stated:
            raise ContradictionError(
                f"matrix: found {flag(name)}, expected none, for stages and offload are its columns; leave it out, "
                f"or write zeroplan compare"
            )
    several = lists(stated, ("params", "model"), "matrix", {})
    if "params" not in stated and "model" not in stated:
        several = {"params": SIZES.split(",")}
    if len(several) > 1:
        raise ContradictionError("--params and --model both name models; write one matrix for each")
    models = [{name: value} for name, values in several.items() for value in dict.fromkeys(values)] or [{}]
    if len(models) > MOST:
        raise QuantityError(f"matrix: found {len(models)} models, expected at most {MOST}; write fewer")
    requests = [read_request(Options(**{**stated, **changed}), default_gpus=8) for changed in models]
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
