"""The operators that the model runs with: which attention, and whose kernels."""

from __future__ import annotations

from typing import Any

from zeroplan.architectures.registry import LIGER_FAMILIES
from zeroplan.errors import ContradictionError
from zeroplan.specs.model import Model


def choose_attention(settled: dict[str, Any], model: Model, assumed: list[str]) -> None:
    """Where transformers has no sdpa attention for a family, it runs eager, and refuses sdpa when asked for it."""
    if model.has_sdpa:
        return
    if "attention" not in settled:
        settled["attention"] = "eager"
        assumed.append(f"attention eager, transformers has no sdpa for {model.family} (--attention)")
    elif settled["attention"] == "sdpa":
        raise ContradictionError(
            f"--attention: found sdpa, which transformers does not have for {model.family} (ValueError), "
            "expected eager or flash; write --attention eager"
        )


def check_kernels(settled: dict[str, Any], model: Model) -> None:
    """Liger patches some families, on a GPU; the others it passes over with a line in the log."""
    kernels = settled.get("kernels", "transformers")
    if kernels == "transformers":
        return
    if model.family not in LIGER_FAMILIES:
        raise ContradictionError(
            f"--kernels: found {kernels} for {model.family}, which liger-kernel does not patch, expected one of "
            f"{', '.join(sorted(LIGER_FAMILIES))}; write --kernels transformers"
        )
    if settled.get("backend") == "cpu":
        raise ContradictionError(
            f"--kernels: found {kernels} with --backend cpu, expected a GPU, which Triton needs; write --backend cuda"
        )
