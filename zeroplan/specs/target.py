"""Who reads the config that is written."""

from __future__ import annotations

from zeroplan.errors import QuantityError, shown

TARGETS = ("hf", "deepspeed", "accelerate", "lightning")
"""As --for has them: the Hugging Face Trainer, DeepSpeed itself, Accelerate, Lightning."""


def known_target(named: str) -> str:
    """The same. Raises `QuantityError` for any other."""
    if named not in TARGETS:
        expected = f"{', '.join(TARGETS[:-1])} or {TARGETS[-1]}"
        raise QuantityError(f"--for: found {shown(named)}, expected {expected}; write --for hf")
    return named
