"""Sizes of what a sequence has beside its words: its images, and the target of an encoder-decoder."""

from __future__ import annotations

from typing import NamedTuple

from zeroplan.specs.images import Images

AS_LONG = 0
"""Tokens of a target that has as many as its source."""


class InputSizes(NamedTuple):
    """Sizes to which a recording is fixed; None: not stated, or the model takes none."""

    images: Images | None = None
    target: int | None = None
    """Tokens of each target."""

    @property
    def line(self) -> str:
        """As a screen says them."""
        return " and ".join([*([self.images.line] if self.images else []), *self._target_line])

    @property
    def _target_line(self) -> list[str]:
        if self.target is None:
            return []
        return ["targets as long as their sources" if self.target == AS_LONG else f"targets of {self.target:,} tokens"]

    @property
    def options(self) -> str:
        """As they are typed."""
        images = [self.images.options] if self.images else []
        return " ".join([*images, *([f"--target-seq {self.target}"] if self.target else [])])

    def are(self, stated: InputSizes) -> bool:
        """Whether they are what was stated, as far as anything was."""
        same_images = not (stated.images and self.images) or stated.images.are(self.images)
        return same_images and stated.target in (None, self.target)


UNSTATED = InputSizes()


def target_beside(seq: int | None, target: int | None) -> int | None:
    """Tokens of a target as `InputSizes` has them: AS_LONG where a sequence is stated that has as many."""
    return AS_LONG if target is not None and target == seq else target
