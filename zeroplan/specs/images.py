"""Images that a model is given beside its words."""

from __future__ import annotations

from typing import NamedTuple


class Images(NamedTuple):
    """Those of each sequence, of a model that takes images."""

    number: int
    """How many; none where the model is trained on text alone."""
    height: int
    """In pixels, as the model's processor makes it."""
    width: int
    """In pixels, as the model's processor makes it."""
    tokens: int = 0
    """Tokens that each of them takes; 0: not known yet."""

    @property
    def line(self) -> str:
        """As a screen says it."""
        if not self.number:
            return "no image"
        return f"{self.number} image{'s' * (self.number > 1)} of {self.height}x{self.width} pixels"

    @property
    def short(self) -> str:
        """Their number and size, as a table's cell has them."""
        return f"{self.number} × {self.height}x{self.width}" if self.number else "none"

    @property
    def options(self) -> str:
        """As they are typed."""
        size = f" --image-size {self.height}x{self.width}" if self.number else ""
        return f"--images {self.number}{size}"

    def are(self, other: Images) -> bool:
        """Whether they are as many and as large."""
        return self[:3] == other[:3]


NO_IMAGES = Images(0, 0, 0)
