"""What `recommend --max-params` comes to: the largest model, with and without offload."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from zeroplan.fit import DOES_NOT_FIT, FITS
from zeroplan.largest import Largest
from zeroplan.report.depth import BRIEF, QUIET
from zeroplan.results.outcome import Outcome
from zeroplan.results.recommend import entry, lack_object, numbers
from zeroplan.results.result import Result
from zeroplan.specs.cluster import Cluster
from zeroplan.specs.headroom import Headroom
from zeroplan.specs.scope import Scope

if TYPE_CHECKING:
    from zeroplan.report.rendered import Screen


class Size(NamedTuple):
    """A largest model: its parameters, the numbers of its plan, and the next size, which does not fit if `proven`."""

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

    def content(self) -> dict[str, Any]:
        from zeroplan.report import machine

        return {
            "command": "recommend",
            "scope": machine.scope_object(self.scope),
            "largest": {name: _object(found) if found else None for name, found in self._found.items()},
            "assumed": list(self.assumed),
            **machine.kept_free(self._headroom, self._cluster.capacity),
        }


def _size(found: Largest) -> Size:
    return Size(found.parameters, numbers(found.candidate), found.next_size)


def _object(found: Largest) -> dict[str, Any]:
    return {
        "parameters": found.parameters, "plan": entry(found.candidate), "next_size": found.next_size,
        "lack": lack_object(found.lack),
    }  # fmt: skip
