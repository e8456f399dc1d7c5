"""What a config.json may say that makes it another model than its language model in 16 or 32 bit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from zeroplan.errors import SpecError, shown
from zeroplan.specs.images import NO_IMAGES, Images

QUANTIZATIONS = ("quantization_config", "compression_config")
NAME = re.compile(r"[\w-]{1,30}")
DEQUANTIZES = frozenset({"fp8", "mxfp4", "compressed-tensors"})
"""Methods whose weights transformers turns back into 16 bit as it loads them, with `dequantize: true`."""
LANGUAGE_MODELS = ("text_config", "llm_config", "language_config", "thinker_config", "decoder_config")
"""Where multimodal configs keep the language model's."""
NO_MODELS = frozenset({*QUANTIZATIONS, "generation_config", "auto_map", "peft_config"})


def check_language_model(content: Mapping[str, Any], place: str) -> None:
    """Refuse a config of several models: none of the families reads one inside another."""
    inner = [
        key for key, value in content.items()
        if (key.endswith("_config") or key in ("encoder", "decoder")) and isinstance(value, dict) and value
        and key not in NO_MODELS
    ]  # fmt: skip
    if not inner:
        return
    named = " and ".join(", ".join(inner[:4]).rsplit(", ", 1))
    text = next((key for key in LANGUAGE_MODELS if key in inner), "")
    write = f"its {text} to a file of its own and --model that file" if text else ""
    expected = "a language model alone"
    if takes_images(content):
        expected = "what images each sequence has, or a language model alone"
        images = f"{Images(1, 448, 448).options} with it, or {NO_IMAGES.options} where it is trained on text alone"
        write = f"{images}; or, without the rest of it, {write}" if write else images
    raise SpecError(place, f"{named}: a multimodal model", expected, write)


def takes_images(content: Mapping[str, Any]) -> bool:
    """Whether a config.json is of a model of images."""
    return isinstance(content.get("vision_config"), dict)


def dequantized(content: Mapping[str, Any], place: str) -> str:
    """What there is to say of quantized weights that are trained dequantized; empty where none are quantized.

    Others are refused, as transformers' Trainer refuses to train them (validate_quantization_for_training).
    """
    key = next((key for key in QUANTIZATIONS if content.get(key)), None)
    if key is None:
        return ""
    stated = content[key]
    method = _method(stated)
    if isinstance(stated, dict) and stated.get("dequantize") is True and method in DEQUANTIZES:
        return f"{key} {method}: weights train dequantized, in the training's own precision (dequantize)"
    suggestion = "remove it to plan full training in 16 bit"
    if method in DEQUANTIZES:
        suggestion = f'write "dequantize": true in it, as training from this file needs, or {suggestion}'
    raise SpecError(
        place, f"{key} ({method})",
        f"weights in 16 or 32 bit: training of quantized weights is not planned; {suggestion}"
    )


def _method(stated: object) -> str:
    """The method as transformers names it, and of bitsandbytes the bits."""
    if not isinstance(stated, dict):
        return shown(stated, 30)
    bits = "4-bit" if stated.get("load_in_4bit") else "8-bit" if stated.get("load_in_8bit") else ""
    method = stated.get("quant_method", "bitsandbytes" if bits else "no quant_method")
    name = method if isinstance(method, str) and NAME.fullmatch(method) else shown(method, 30)
    return f"{name} {bits}".strip()
