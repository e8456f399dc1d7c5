"""Images that a model is given beside its words."""

from __future__ import annotations

from typing import NamedTuple


class Images(NamedTuple):
    """Those of each sequence, of a model that takes images."""

    number: int
    """How many; none where the model is trained on text alone."""
    height: int
    """In pixels, as the model's processor makes it; 0: its tokens alone are known."""
    width: int
    """In pixels, as the model's processor makes it; 0: its tokens alone are known."""
    tokens: int = 0
    """Tokens that each of them takes; 0: not known yet."""

    @property
    def line(self) -> str:
        """As a screen says it."""
        if not self.number:
            return "no image"
        of = f"{self.height}x{self.width} pixels" if self.height else f"{self.tokens:,} tokens"
        return f"{self.number} image{'s' * (self.number > 1)} of {of}"

    @property
    def short(self) -> str:
        """Their number and size, as a table's cell has them."""
        return f"{self.number} × {self.height}x{self.width}" if self.number else "none"

    @property
    def options(self) -> str:
        """As they are typed."""
        size = f"--image-size {self.height}x{self.width}" if self.height else f"--image-tokens {self.tokens}"
        return f"--images {self.number}{f' {size}' * bool(self.number)}"

    def are(self, other: Images) -> bool:
        """Whether they are as many and as large, or take as many tokens where that is all that is known."""
        return self[:3] == other[:3] or (not self.height and (self.number, self.tokens) == (other.number, other.tokens))


NO_IMAGES = Images(0, 0, 0)
