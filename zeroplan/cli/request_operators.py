"""The operators that the model runs with: which attention, and whose kernels."""

from __future__ import annotations

from typing import Any

from zeroplan.architectures.registry import LIGER_FAMILIES
from zeroplan.autograd.flash import HEAD_ROW, WIDEST_HEAD
from zeroplan.errors import ContradictionError
from zeroplan.specs.model import Model


def choose_attention(settled: dict[str, Any], model: Model, assumed: list[str]) -> None:
    """Where transformers has no sdpa attention for a family, it runs eager, and refuses sdpa when asked for it."""
    if settled.get("attention") == "flash":
        settled["attention"] = "flash_attention_2"
    if model.has_sdpa:
        return
    if "attention" not in settled:
        settled["attention"] = "eager"
        assumed.append(f"attention eager, transformers has no sdpa for {model.family} (--attention)")
    elif settled["attention"] == "sdpa":
        raise ContradictionError(
            f"--attention: found sdpa, which transformers does not have for {model.family} (ValueError), "
            f"expected eager{'' if model.no_flash else ' or flash_attention_2'}; write --attention eager"
        )


def check_flash(settled: dict[str, Any], model: Model) -> None:
    """The flash-attention package computes in 16 bit on a GPU, heads of up to 256 elements, of some families."""
    attention = settled.get("attention", "")
    if not attention.startswith("flash"):
        return
    instead = f"write --attention {'sdpa' if model.has_sdpa else 'eager'}"
    if model.no_flash:
        raise ContradictionError(f"--attention: found {attention} for {model.family}, {model.no_flash}; {instead}")
    if settled.get("precision") == "fp32" and not settled.get("autocast"):
        raise ContradictionError(
            f"--attention: found {attention} with fp32 weights, which flash-attn does not compute in, expected bf16 or "
            f"fp16; write --precision bf16"
        )
    if settled.get("backend") == "cpu":
        raise ContradictionError(
            f"--attention: found {attention} with --backend cpu, expected a GPU, which its kernels need; "
            "write --backend cuda"
        )
    width, value = model.shape.head_width, model.shape.value_width
    if width > WIDEST_HEAD or (attention == "flash_attention_3" and width % HEAD_ROW) or value > width:
        limit = f"a multiple of {HEAD_ROW} " if attention == "flash_attention_3" else ""
        raise ContradictionError(
            f"--attention: found {attention} with heads of {width} elements (values {value}), expected {limit}at most "
            f"{WIDEST_HEAD}; {instead}"
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
