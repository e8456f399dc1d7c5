"""Names of models, cards and nodes in the spellings that people use, reduced to what tells one from another.

Case, blanks, dashes, underscores and makers' names tell nothing; a dot does (OPT-13B, OPT-1.3B), and so does whatever
stands between two digits (Llama-3-8B, Llama-38B).
"""

from __future__ import annotations

import re

SEPARATORS = re.compile(r"[\s_:-]+")
MAKERS = re.compile(r"nvidia|geforce|tesla|amd|instinct|intel|\(r\)|\(tm\)")
SOCKET = re.compile(r"sxm\d")
"""The 4 of SXM4 follows from the chip."""
GIGABYTES = re.compile(r"(?<=\d)\s*g(?:i?b)?(?![a-z])")
ENDS_IN_SIZE = re.compile(r"-?(\d+)gb$")
FINE_TUNED = re.compile(r"(?<=.)(?:[\s_-](?:instruct|chat|base|it|pt))+$")
"""What a publisher adds to the name of the same sizes; where it has added weights too, the presets say so."""
QUANTIZED = re.compile(
    r"(?:^|[\W_])(?:gptq|awq|gguf|ggml|exl2|hqq|bnb|nf4|fp8|nvfp4|mxfp4|int[48]|w[48]a(?:8|16)|[2-8]-?bit|q[2-8]_k\w*)"
    r"(?![a-z])"
)


def bare(kind: str, name: str) -> str:
    """A name as it is compared: `NVIDIA RTX 4080` is rtx4080, `Llama_2-7b` llama2-7b."""
    text = name.strip().lower()
    if kind == "GPU":
        text = GIGABYTES.sub("gb", SOCKET.sub("sxm", MAKERS.sub(" ", text)))
    organization, slash, own = text.rpartition("/")
    parts = [part for part in SEPARATORS.split(own) if part]
    if kind == "model":
        parts = parts[parts[:1] == ["meta"] : len(parts) - (parts[-1:] == ["hf"])]
    joined = "".join(f"-{part}" if _between_digits(before, part) else part
                     for before, part in zip(["", *parts], parts, strict=False))  # fmt: skip
    return f"{organization}{slash}{joined}"


def _between_digits(left: str, right: str) -> bool:
    return left[-1:].isdigit() and right[0].isdigit()


def without_size(card: str) -> tuple[str, int] | None:
    """A bare card name less the memory at its end, and that memory in GB; None where it names none."""
    match = ENDS_IN_SIZE.search(card)
    return (card[: match.start()], int(match[1])) if match and match.start() else None


def without_tuning(model: str) -> str:
    """A model's name less -Instruct, -Chat and their like at its end."""
    return FINE_TUNED.sub("", model.strip().lower())


def is_quantized(model: str) -> bool:
    """Whether the name of a repository or model says that its weights are quantized."""
    return QUANTIZED.search(model.lower()) is not None


def without_quantization(model: str) -> str:
    """The name before what says that weights are quantized."""
    return QUANTIZED.split(model.lower(), 1)[0]
