"""Classifiers through DeepSpeed itself on simulated ranks, as `zeroplan verify` compares them."""

from __future__ import annotations

import importlib.util
import json

import pytest

if any(importlib.util.find_spec(name) is None for name in ("deepspeed", "torch", "transformers")):
    pytest.skip("DeepSpeed is not installed", allow_module_level=True)

BASE = {
    "vocab_size": 512, "hidden_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "pad_token_id": 0,
    "tie_word_embeddings": False,
}  # fmt: skip
QWEN3 = {"model_type": "qwen3", "num_key_value_heads": 2, "intermediate_size": 160, "head_dim": 16}
CASES = [
    ({**QWEN3, "architectures": ["Qwen3ForSequenceClassification"], "num_labels": 1}, ("--stage", "3")),
    ({"model_type": "gpt2", "architectures": ["GPT2ForTokenClassification"], "num_labels": 5},
     ("--stage", "2", "--checkpointing", "full", "--attention", "eager")),
    ({"model_type": "bert", "architectures": ["BertForSequenceClassification"], "intermediate_size": 160, "num_labels": 3},
     ("--stage", "3", "--attention", "eager")),
]  # fmt: skip


@pytest.mark.parametrize(("config", "typed"), CASES, ids=lambda each: str(each)[:40])
def test_as_deepspeed_holds_and_moves(zeroplan, tmp_path, config, typed):
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**BASE, **config}))
    ran = zeroplan("verify", "--model", str(path), "--gpus", "4", "--seq", "64", "--micro-batch", "2", *typed)
    assert ran.code == 0, ran.err
    assert "numbers as predicted" in ran.out, ran.out
