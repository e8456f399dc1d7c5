"""The peak of initialize with weights in 4 and 8 bit, beside DeepSpeed 0.19.8's own run of it."""

from __future__ import annotations

import json

import pytest

import zeroplan
from zeroplan.ledger import less_activations

LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 512, "num_hidden_layers": 4,
    "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 1376, "vocab_size": 2048,
    "max_position_embeddings": 512, "tie_word_embeddings": False,
}  # fmt: skip


@pytest.mark.parametrize(
    ("stage", "quantized", "measured"),
    [
        (0, {"quantize": "nf4", "quant_storage": "uint8"}, 16_942_596),
        (2, {"quantize": "nf4", "quant_storage": "uint8"}, 13_194_756),
        (2, {"quantize": "int8"}, 18_811_652),
    ],
)  # fmt: skip
def test_bits_in_whole_numbers_are_built_as_they_lie(tmp_path, stage, quantized, measured):
    """Measured by `zeroplan verify` with bitsandbytes 0.50.2 and peft 0.21.2."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LLAMA))
    (found,) = zeroplan.estimate(model=path, gpus=2, stage=stage, seq=64, lora=8, **quantized)._ledgers
    assert less_activations(found.gpu, "init") == pytest.approx(measured, rel=0.01)
