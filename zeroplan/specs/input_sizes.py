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
    is_as_long: bool = False
    """As many are stated of the source: what is recorded with targets as long serves too."""

    @classmethod
    def stated(cls, images: Images | None, target: int | None, seq: int | None) -> InputSizes:
        """As they are typed, beside the tokens of a sequence."""
        return cls(images, target, target is not None and target == seq)

    @property
    def recorded(self) -> InputSizes:
        """As a recording has them: of a target that is as long as its source no number."""
        return InputSizes(self.images, AS_LONG if self.is_as_long else self.target)

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
        target = self.recorded.target
        return " ".join([*images, *([f"--target-seq {target}"] if target else [])])

    def are(self, stated: InputSizes) -> bool:
        """Whether they are what was stated, as far as anything was."""
        same_images = not (stated.images and self.images) or stated.images.are(self.images)
        return same_images and (stated.target in (None, self.target) or stated.recorded.target == self.target)


UNSTATED = InputSizes()
