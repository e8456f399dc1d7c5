"""quantization_config of a config.json as bitsandbytes' models have it (transformers.BitsAndBytesConfig)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zeroplan.errors import SpecError, shown
from zeroplan.specs.quantization import FP4, INT8, NF4, Quantization

DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "uint8": "uint8"}


def bits_and_bytes(stated: object) -> Mapping[str, Any] | None:
    """The configuration where it is bitsandbytes' and not another method's."""
    if not isinstance(stated, Mapping) or stated.get("quant_method", "bitsandbytes") != "bitsandbytes":
        return None
    return stated if stated.get("load_in_4bit") or stated.get("load_in_8bit") else None


def read_quantization(stated: Mapping[str, Any], place: str) -> Quantization:
    """What is left out is as in transformers. Raises `SpecError`."""
    skipped = stated.get("llm_int8_skip_modules") or ()
    if not isinstance(skipped, list | tuple) or not all(isinstance(each, str) and each for each in skipped):
        raise SpecError(f"{place}: llm_int8_skip_modules", shown(skipped), "a list of names", '["lm_head"]')
    if stated.get("load_in_8bit"):
        if stated.get("load_in_4bit"):
            raise SpecError(place, "load_in_4bit and load_in_8bit", "one of them", '"load_in_4bit": true')
        return Quantization(INT8, skipped=tuple(skipped))
    kind = stated.get("bnb_4bit_quant_type", FP4)
    if kind not in (NF4, FP4):
        raise SpecError(f"{place}: bnb_4bit_quant_type", shown(kind), f"{NF4} or {FP4}", f'"{NF4}"')
    return Quantization(
        kind, bool(stated.get("bnb_4bit_use_double_quant")),
        _dtype(stated, "bnb_4bit_quant_storage", "uint8", place),
        _dtype(stated, "bnb_4bit_compute_dtype", "float32", place), tuple(skipped),
    )  # fmt: skip


def _dtype(stated: Mapping[str, Any], key: str, usual: str, place: str) -> str:
    value = str(stated.get(key) or usual).removeprefix("torch.")
    if value not in DTYPES:
        raise SpecError(f"{place}: {key}", shown(value), ", ".join(DTYPES), '"bfloat16"')
    return DTYPES[value]
