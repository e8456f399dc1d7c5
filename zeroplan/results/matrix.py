"""What `matrix` comes to: models by strategies, with what each needs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from zeroplan.record import NamedTuple
from zeroplan.results.outcome import Outcome
from zeroplan.results.result import Result
from zeroplan.specs.cluster import Cluster
from zeroplan.specs.headroom import Headroom
from zeroplan.specs.model import Model

if TYPE_CHECKING:
    from zeroplan.report.rendered import Screen


class MatrixRow(NamedTuple):
    """One model under each strategy; in place of numbers, why it cannot run."""

    model: Model
    cells: dict[str, Outcome | str]


class Matrix(Result):
    """Models by strategies."""

    def __init__(
        self, rows: Sequence[MatrixRow], cluster: Cluster, assumed: tuple[str, ...], headroom: Headroom | None = None
    ) -> None:
        self.rows = {row.model.name: row.cells for row in rows}
        """Numbers by model and strategy: `rows["7B"]["ZeRO-3"].needed`."""
        self.assumed = assumed
        self._rows, self._cluster, self._headroom = rows, cluster, headroom

    @property
    def fits(self) -> bool | None:
        verdicts = [cell.fits for row in self._rows for cell in row.cells.values() if isinstance(cell, Outcome)]
        return next((verdict for verdict in (True, None) if verdict in verdicts), False)

    def markdown(self) -> str:
        """As a table for a README."""
        from zeroplan.report import matrix as report

        return report.markdown(self._rows, self._cluster)

    def csv(self) -> str:
        """For a spreadsheet: GiB, and yes or no, of each strategy."""
        from zeroplan.report import matrix as report

        return report.comma_separated(self._rows)

    def screen(self, *, quiet: bool = False) -> Screen:
        from zeroplan.report import matrix as report
        from zeroplan.report.rendered import Screen

        below = [] if quiet else report.details(self._rows, self._cluster, self.assumed)
        return Screen(report.answer(self._rows, self._cluster), below)

    def content(self) -> dict[str, Any]:
        from zeroplan.report import machine

        rows = [
            {"model": machine.model_object(row.model),
             "strategies": {name: _cell(cell) for name, cell in row.cells.items()}}
            for row in self._rows
        ]  # fmt: skip
        kept = machine.kept_free(self._headroom, self._cluster.capacity)
        return {"command": "matrix", "rows": rows, "assumed": list(self.assumed), **kept}


def _cell(cell: Outcome | str) -> dict[str, Any]:
    return {"reason": cell} if isinstance(cell, str) else {**cell._asdict(), "headroom": cell.headroom}
