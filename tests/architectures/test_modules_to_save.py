"""Modules of which a copy trains as a whole."""

from __future__ import annotations

import json

import zeroplan
from zeroplan.ledger import is_activation


def test_activations_of_a_copied_head_have_equations(tmp_path):
    """One stage alone takes activations apart by the model's sizes, which the copy shares with its original."""
    path = tmp_path / "adapter_config.json"
    saved = ["embed_tokens", "lm_head"]
    stated = {"peft_type": "LORA", "r": 8, "target_modules": "all-linear", "modules_to_save": saved}
    path.write_text(json.dumps(stated))
    found = zeroplan.estimate(model="llama-3.1-8b", adapter=path, gpus=1, stage=0, seq=128)
    (ledger,), (job,) = found._ledgers, found._jobs
    assert any(line.equation for line in ledger.gpu.worst("backward").lines if is_activation(line))
    copied = [tensor for tensor in job.model.tensors if ".modules_to_save." in tensor.name]
    assert sum(tensor.elements for tensor in copied) == 2 * 128_256 * 4_096
    assert all(tensor.trainable for tensor in copied)
