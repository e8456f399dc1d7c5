"""Values in the words of torch, transformers and Accelerate, as the options have them; what is no such word stays."""

from __future__ import annotations

import re

from zeroplan.errors import ContradictionError

BF16, FP16, FP32 = "bf16", "fp16", "fp32"
WORDS: dict[str, dict[str, str]] = {
    "precision": {
        BF16: BF16, "bfloat16": BF16, "bf16-mixed": BF16, FP16: FP16, "float16": FP16, "half": FP16,
        "16-mixed": FP16, FP32: FP32, "float32": FP32, "float": FP32, "no": FP32, "fp8": "fp8",
    },
    "attention": {"fa2": "flash_attention_2", "fa3": "flash_attention_3"},
    "zero_init": {"true": "yes", "on": "yes", "1": "yes", "false": "no", "off": "no", "0": "no"},
}  # fmt: skip
"""By option, in small letters; `no` is Accelerate's mixed_precision."""
WORDS["built_in"] = WORDS["precision"]
STAGE = r"(?:(?:deepspeed|zero|z|stage|zero[-_ ]?stage|deepspeed_stage)[-_ ]?)?([0-3])"
CARD = r"([0-9]{1,7}(?:x[0-9]{1,7})?) ?[xX×*] ?([A-Za-z][\w .-]*|[345]0[6-9]0(?: ?[tT][iI])?)"
"""GPUs with their card behind them, as in 8xA100, 2x8xH100 or 8x4090; a node has no 4090 GPUs."""


def as_options_have_it(name: str, text: str) -> str:
    """The value of an option, or of each part of a list, in the option's own words."""
    if name == "stage":
        return ",".join(_stage(part) for part in text.split(","))
    words = WORDS.get(name)
    if words is None:
        return text
    return ",".join(words.get(part.lower().removeprefix("torch."), part) for part in text.split(","))


def with_card(gpus: str | None, gpu: str | None) -> tuple[str | None, str | None]:
    """--gpus and --gpu, where the first names the card too. Raises `ContradictionError` for two cards."""
    if gpus is None or gpus.isdigit():
        return gpus, gpu
    match = re.fullmatch(CARD, gpus)
    if match is None:
        return gpus, gpu
    if gpu not in (None, match[2]):
        raise ContradictionError(f"--gpus {gpus} and --gpu {gpu} both name a card; write --gpus {match[1]}")
    return match[1], match[2]


def _stage(text: str) -> str:
    if text in ("0", "1", "2", "3"):
        return text
    match = re.fullmatch(STAGE, text.lower())
    return match[1] if match else text
