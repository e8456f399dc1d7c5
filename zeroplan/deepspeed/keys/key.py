"""What is known of one key of ds_config.json."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Self

STAGE_3 = (3,)
STAGES_1_2 = (1, 2)
ZERO_STAGES = (1, 2, 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One key of ds_config.json as DeepSpeed 0.19.8 reads it; bounds are those that DeepSpeed itself enforces."""

    path: str
    """As users write it, with dots: zero_optimization.reduce_bucket_size."""

    kind: str
    """integer, number, boolean, string, object, array or null, several joined by |, or any."""
    default: object
    """What DeepSpeed takes where the key is not written; None: nothing, or what `meaning` says."""
    meaning: str
    """What the key does."""
    place: str
    """File and line of the definition below deepspeed/ in 0.19.8: runtime/zero/config.py:112."""

    unit: str = ""
    """Unit of the value; empty for none."""
    choices: tuple[str, ...] = ()
    """Values that it may have; empty: any of its kind."""
    minimum: float | None = None
    """Least value that DeepSpeed takes."""
    exclusive_minimum: float | None = None
    """Value above which DeepSpeed takes any."""
    maximum: float | None = None
    """Largest value that DeepSpeed takes."""
    exclusive_maximum: float | None = None
    """Value below which DeepSpeed takes any."""
    aliases: tuple[str, ...] = ()
    """Other spellings of the last part of the path."""

    auto: str = ""
    """What Hugging Face's Trainer writes for "auto"; empty where it leaves "auto" alone."""

    deprecated: str = ""
    """What DeepSpeed wants instead; a name without a section stands in the same section."""

    stages: tuple[int, ...] = (0, 1, 2, 3)
    """ZeRO stages at which it has an effect; () when at none."""
    moves_bytes: bool = False
    """Whether it changes bytes held or bytes moved."""

    survives: str = ""
    """Kinds that do not stop DeepSpeed, for a key that no model validates and that does not take just any. "number"
    and "integer" take true and false as well; "empty" is what Python counts as false, "full" the rest, "bit" 0, 1, true
    and false, "numeric" a text that is a number, "whole" one that is a whole number,
    "blank" an empty text or list. A section survives as object.
    """

    plain: bool = False
    """Whether true, false and texts like "1.0", which pydantic takes for numbers elsewhere, are refused."""

    settable: bool = True
    """Whether any value that JSON can hold is taken."""

    def replaced(self, **fields: Any) -> Self:
        """The key as another version has it."""
        return replace(self, **fields) if fields else self

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition(".")[2]

    @property
    def section(self) -> str:
        """The path without its last part; empty at the top level."""
        return self.path.rpartition(".")[0]
