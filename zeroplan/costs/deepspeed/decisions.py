"""What stage 3's coordinator has decided to release, of each module it left: DeepSpeed 0.19.8 decides once (lru_cache).

Of layers that were not replayed it is what the last replayed one released, shifted.
"""

from __future__ import annotations

from typing import NamedTuple

Mark = tuple[int, int]
"""A module, and the coordinator's step as it is left."""
Released = frozenset[int]


class ReleaseOffset(NamedTuple):
    """The offset from a layer to the next that does the same."""

    modules: int
    steps: int
    tensors: int

    def place(self, mark: Mark, times: int) -> Mark:
        """The same exit, so many layers on."""
        return mark[0] + times * self.modules, mark[1] + times * self.steps

    def offset_by(self, released: Released, times: int) -> Released:
        """The same tensors, so many layers on."""
        return frozenset([index + times * self.tensors for index in released])


class RepeatedDecisions(NamedTuple):
    """A layer's decisions, which so many layers after it repeat."""

    first: int
    """Number of its first module; each layer's are numbered by themselves."""
    offset: ReleaseOffset
    layers: int
    decided: dict[Mark, Released]

    def layers_on(self, mark: Mark) -> int:
        """In how many layers after this one the module is; before it: fewer than 0."""
        apart = (mark[0] - self.first) // abs(self.offset.modules)
        return apart if self.offset.modules > 0 else -apart

    def base(self, mark: Mark) -> Released | None:
        """What this layer decided at the same exit."""
        return self.decided.get(self.offset.place(mark, -self.layers_on(mark)))


class Decisions:
    """By exit; the first one taken stays."""

    def __init__(self) -> None:
        self.taken: dict[Mark, Released] = {}
        self.runs: list[RepeatedDecisions] = []
        self.reached = -1
        """The last step at which anything was decided."""

    def take(self, mark: Mark, released: Released) -> None:
        self.taken[mark] = released
        self.reached = max(self.reached, mark[1])

    def take_repeated(self, run: RepeatedDecisions) -> None:
        """Those of layers that are not replayed."""
        self.runs.append(run)
        self.reached = max([self.reached, *(run.offset.place(mark, run.layers)[1] for mark in run.decided)])

    def get(self, mark: Mark) -> Released | None:
        """None: none was taken there."""
        if (result := self.taken.get(mark)) is not None:
            return result
        for run in self.runs:
            if 0 < run.layers_on(mark) <= run.layers and (base := run.base(mark)) is not None:
                return run.offset.offset_by(base, run.layers_on(mark))
        return None

    def __getitem__(self, mark: Mark) -> Released:
        """Raises `KeyError` where none was taken."""
        if (result := self.get(mark)) is None:
            raise KeyError(mark)
        return result

    def are_repeated(self, mark: Mark, offset: ReleaseOffset, count: int) -> bool:
        """Whether none of so many layers after this one, which has decided, has decided otherwise than it."""
        if offset.place(mark, 1)[1] > self.reached:
            return True
        released, known = self[mark], range(0)
        for run in self.runs:
            if run.offset == offset and (base := run.base(mark)) is not None:
                here = run.layers_on(mark)
                if offset.offset_by(base, here) != released:
                    return False
                known = range(1 - here, run.layers - here + 1)
                break
        for layer in range(1, count + 1):
            if layer not in known:
                found = self.get(offset.place(mark, layer))
                if found is not None and found != offset.offset_by(released, layer):
                    return False
        return True
