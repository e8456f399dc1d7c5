"""The operators that the model runs with, which attention and whose kernels; and what a card cannot run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zeroplan.architectures.registry import LIGER_FAMILIES
from zeroplan.autograd.flash import HEAD_ROW, WIDEST_HEAD
from zeroplan.errors import ContradictionError
from zeroplan.request.strategy import Reading
from zeroplan.sources import TRANSFORMERS
from zeroplan.specs.cluster import Gpu
from zeroplan.specs.model import Model

FLASH_CARDS = {"flash_attention_2": (8.0, 99.0), "flash_attention_3": (8.0, 10.0)}
"""Compute capabilities from and below which the package has kernels. Either stops under 8.0, "only supports Ampere GPUs
or newer" (csrc/flash_attn/flash_api.cpp, hopper/flash_api.cpp). Those of version 3 are compiled for 8.0 and 9.0a
(hopper/setup.py): Ampere and Ada run them (Dao-AILab/flash-attention#1049, and transformers 5.23.0 asks for 8 in
modeling_flash_attention_utils.py), and Blackwell finds "no kernel image" (#2593)."""

SINCE = {"gptj": "5.24"}
"""The version of transformers with which a family has sdpa, where that is newer than the one that numbers are of."""


def read_attention(fixed: Mapping[str, Any], model: Model) -> Reading:
    """Where transformers has no sdpa attention for a family, it runs eager, and refuses sdpa when asked for it."""
    if model.has_sdpa:
        return Reading()
    if "attention" not in fixed:
        return Reading({"attention": "eager"}, (f"attention eager, {_no_sdpa(model)} (--attention)",))
    if fixed["attention"] == "sdpa":
        raise ContradictionError(
            f"--attention: found sdpa, but {_no_sdpa(model)} (ValueError), "
            f"expected eager{'' if model.no_flash else ' or flash_attention_2'}; write --attention eager"
        )
    return Reading()


def _no_sdpa(model: Model) -> str:
    """That the version that is planned has none, and since which version there is one."""
    newer = f" ({SINCE[model.family]} has, and keeps less by default)" if model.family in SINCE else ""
    return f"transformers {TRANSFORMERS} has no sdpa for {model.family}{newer}"


def check_operators(fixed: Mapping[str, Any], model: Model, card: Gpu | None) -> None:
    """Refuse what does not run. Of a card that only stands for a memory size nothing is known."""
    named = card if card and not card.stands_for_class else None
    _check_flash(fixed, model, named)
    _check_kernels(fixed, model)
    if named and fixed.get("precision") == "fp8" and "fp8" not in named.peak:
        raise ContradictionError(
            f"--precision: found fp8 on {named.title}, which does not compute in it, expected a card of Ada, Hopper, "
            f"Blackwell or MI300; write --precision {'bf16' if 'bf16' in named.peak else 'fp16'}"
        )


def _check_flash(fixed: Mapping[str, Any], model: Model, card: Gpu | None) -> None:
    """The flash-attention package computes in 16 bit on some GPUs, heads of up to 256 elements, of some families."""
    attention = fixed.get("attention", "")
    if not attention.startswith("flash"):
        return
    instead = f"write --attention {'sdpa' if model.has_sdpa else 'eager'}"
    if model.no_flash:
        raise ContradictionError(f"--attention: found {attention} for {model.family}, {model.no_flash}; {instead}")
    if fixed.get("precision") == "fp32" and not fixed.get("autocast"):
        raise ContradictionError(
            f"--attention: found {attention} with fp32 weights, which flash-attn does not compute in, expected bf16 or "
            f"fp16; write --precision bf16"
        )
    if fixed.get("backend") == "cpu":
        raise ContradictionError(
            f"--attention: found {attention} with --backend cpu, expected a GPU, which its kernels need; "
            "write --backend cuda"
        )
    lowest, beyond = FLASH_CARDS[attention]
    capability = card and card.compute_capability
    if card and capability and not lowest <= capability.value < beyond:
        generations = "Ampere, Ada or Hopper (8.0 to 9.0)" if beyond == 10.0 else "Ampere or newer (8.0)"
        raise ContradictionError(
            f"--attention: found {attention} on {card.title} of compute capability {capability.value:.1f}, expected a "
            f"card of {generations}; {instead}"
        )
    width, value = model.shape.head_width, model.shape.value_width
    if width > WIDEST_HEAD or (attention == "flash_attention_3" and width % HEAD_ROW) or value > width:
        limit = f"a multiple of {HEAD_ROW} " if attention == "flash_attention_3" else ""
        raise ContradictionError(
            f"--attention: found {attention} with heads of {width} elements (values {value}), expected {limit}at most "
            f"{WIDEST_HEAD}; {instead}"
        )


def _check_kernels(fixed: Mapping[str, Any], model: Model) -> None:
    """Liger patches some families, on a GPU; the others it passes over with a line in the log."""
    kernels = fixed.get("kernels", "transformers")
    if kernels == "transformers":
        return
    if model.family not in LIGER_FAMILIES:
        raise ContradictionError(
            f"--kernels: found {kernels} for {model.family}, which liger-kernel does not patch, expected one of "
            f"{', '.join(sorted(LIGER_FAMILIES))}; write --kernels transformers"
        )
    if fixed.get("backend") == "cpu":
        raise ContradictionError(
            f"--kernels: found {kernels} with --backend cpu, expected a GPU, which Triton needs; write --backend cuda"
        )
