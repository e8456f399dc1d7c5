"""A plausible model for a bare parameter count: a llama with that many parameters to the last one."""

from __future__ import annotations

from math import log
from typing import Any

from zeroplan.architectures.families.llama import LlamaConfig
from zeroplan.architectures.model import model_of
from zeroplan.errors import QuantityError
from zeroplan.specs.model import Model, ParameterSpec

# Published (hidden, layers) by size, from 125M to 1T: GPT-3 (arXiv 2005.14165 Table 2.1), Llama 1-3.1, MT-NLG.
LADDER: list[tuple[int, int, int]] = [
    (1_000_000, 64, 4), (10_000_000, 256, 6), (30_000_000, 384, 8), (60_000_000, 512, 8),
    (125_000_000, 768, 12), (350_000_000, 1024, 24), (760_000_000, 1536, 24), (1_300_000_000, 2048, 24),
    (2_700_000_000, 2560, 32), (6_700_000_000, 4096, 32), (13_000_000_000, 5120, 40), (34_000_000_000, 7168, 56),
    (70_000_000_000, 8192, 80), (175_000_000_000, 12288, 96), (405_000_000_000, 16384, 126),
    (1_000_000_000_000, 25600, 128),
]  # fmt: skip
HEAD_WIDTH = 128
SMALL_HEAD_WIDTH = 64
VOCABULARY = 32_000
SMALLEST = 1_000_000
LARGEST = 10_000_000_000_000


def infer(parameters: int, label: str) -> Model:
    """A llama-like model of exactly `parameters`: published depth and width, the MLP's width solved for the rest.

    What the MLP's width cannot reach is one more tensor, under 0.1 %. Raises `QuantityError` outside 1M to 10T.
    """
    if not SMALLEST <= parameters <= LARGEST:
        raise QuantityError(
            f"--params: found {label}, expected 1M to 10T to infer a shape from; write --model config.json instead"
        )
    _size, hidden, layers = min(LADDER, key=lambda rung: abs(log(rung[0] / parameters)))
    if parameters > LADDER[-1][0]:
        layers = layers * parameters // LADDER[-1][0]
    head = HEAD_WIDTH if hidden >= 2048 else SMALL_HEAD_WIDTH
    vocabulary = min(VOCABULARY, parameters // 5 // hidden)
    fixed = 2 * vocabulary * hidden + layers * (4 * hidden**2 + 2 * hidden) + hidden
    ffn = max(1, (parameters - fixed) // (3 * hidden * layers))
    fields: dict[str, Any] = {
        "vocab_size": vocabulary, "hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": layers,
        "num_attention_heads": hidden // head,
    }  # fmt: skip
    source = f"shape inferred from {label}: llama, {layers} layers × {hidden}, MLP {ffn}, vocabulary {vocabulary:,}"
    shaped = model_of("llama", LlamaConfig(**fields), name=label, source=source)
    rest = parameters - shaped.parameters
    tensors = (*shaped.tensors, ParameterSpec("inferred.rest", (rest,), rest)) if rest else shaped.tensors
    return Model(
        name=label, family="llama", tensors=tensors, parameters=parameters, shape=shaped.shape, source=source,
        profile=shaped.profile, buffers=shaped.buffers,
        config={"model_type": "llama", **fields}, inferred=True,
    )  # fmt: skip
