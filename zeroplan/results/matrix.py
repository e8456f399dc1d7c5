"""What `matrix` comes to: models by strategies, with what each needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from zeroplan.fit import DOES_NOT_FIT
from zeroplan.outcome import Outcome
from zeroplan.report.depth import BRIEF, QUIET
from zeroplan.results.result import Result, best
from zeroplan.specs.cluster import Cluster
from zeroplan.specs.headroom import Headroom
from zeroplan.specs.model import Model
from zeroplan.specs.scope import Scope

if TYPE_CHECKING:
    from zeroplan.report.rendered import Screen
    from zeroplan.schema import comparisons as schema


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
        """As a table for a README."""
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
        answer = report.answer(self._rows, self._cluster)
        return rendered.screen(answer, head, body, self.assumed, level)

    def content(self) -> schema.Matrix:
        from zeroplan.report import machine, machine_compare
        from zeroplan.schema import comparisons as schema

        rows = [
            schema.MatrixRow(
                model=machine.model_object(row.model),
                strategies={name: machine_compare.matrix_cell(cell) for name, cell in row.cells.items()},
            )
            for row in self._rows
        ]
        kept = machine.kept_free(self._headroom, self._cluster.capacity)
        return schema.Matrix(rows=rows, assumed=self.assumed, kept_free=kept)
