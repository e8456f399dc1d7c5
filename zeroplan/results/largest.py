"""What `recommend --max-params` comes to: the largest model, with and without offload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from zeroplan.fit import DOES_NOT_FIT, FITS
from zeroplan.largest import Largest
from zeroplan.outcome import Outcome
from zeroplan.report.depth import BRIEF, QUIET
from zeroplan.results.recommend import numbers
from zeroplan.results.result import Result
from zeroplan.specs.cluster import Cluster
from zeroplan.specs.headroom import Headroom
from zeroplan.specs.scope import Scope

if TYPE_CHECKING:
    from zeroplan.report.rendered import Screen
    from zeroplan.schema import recommend as schema


class Size(NamedTuple):
    """A largest model: its parameters, the numbers of its plan, and the next size, which does not fit."""

    parameters: int
    plan: Outcome
    next_size: int | None


class LargestModels(Result):
    """The largest model that the cluster can train, by what may be offloaded."""

    def __init__(
        self, found: Mapping[str, Largest | None], cluster: Cluster, notes: list[str], assumed: tuple[str, ...],
        scope: Scope, headroom: Headroom | None = None,
    ) -> None:  # fmt: skip
        self.sizes = {name: _size(one) if one else None for name, one in found.items()}
        """By what is offloaded: "without offload", "with CPU offload", "with NVMe offload"; None where nothing fits."""
        self.assumed = assumed
        self.scope = scope
        self._found, self._cluster, self._notes, self._headroom = found, cluster, notes, headroom

    @property
    def verdict(self) -> str:
        return FITS if any(self.sizes.values()) else DOES_NOT_FIT

    def screen(self, level: int = BRIEF) -> Screen:
        from zeroplan.report import rendered
        from zeroplan.report import sizing as report
        from zeroplan.report.subject import scope_lines

        head, body = scope_lines(self.scope, quiet=level == QUIET), report.largest_details(self._found, self._notes)
        answer = report.largest_answer(self._found, self._cluster)
        return rendered.screen(answer, head, body, self.assumed, level)

    def content(self) -> schema.LargestDocument:
        from zeroplan.report import machine, machine_plan
        from zeroplan.schema import recommend as schema

        return schema.LargestDocument(
            scope=machine.scope_object(self.scope),
            largest={name: machine_plan.largest_model(one) if one else None for name, one in self._found.items()},
            assumed=self.assumed,
            kept_free=machine.kept_free(self._headroom, self._cluster.capacity),
        )


def _size(found: Largest) -> Size:
    return Size(found.parameters, numbers(found.candidate), found.next_size)
