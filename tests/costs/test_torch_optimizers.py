"""What torch's own optimizers make as they go tensor by tensor, and Adagrad, which ZeRO builds anew."""

from __future__ import annotations

import pytest

from tests.jobs import job
from tests.verify.recorded import job_of
from zeroplan.costs.ledger import ledger
from zeroplan.errors import ContradictionError
from zeroplan.ledger import less_activations
from zeroplan.specs.strategy import Offload

MODEL = {
    "model_type": "llama", "hidden_size": 32, "intermediate_size": 56, "num_hidden_layers": 1, "num_attention_heads": 2,
    "num_key_value_heads": 2, "vocab_size": 640, "tie_word_embeddings": False,
}  # fmt: skip
BF16 = {"bf16": {"enabled": True}}
ONE_BY_ONE = {"torch_adam": True, "foreach": False}
L2 = {**ONE_BY_ONE, "adam_w_mode": False, "weight_decay": 0.01}
# Peaks of initialize and step of DeepSpeed 0.19.8 (torch 2.13) on the CPU accelerator, real tensors.
MEASURED = [
    (2, 0, "AdamW", ONE_BY_ONE, {}, 202_304, 972_656),
    (2, 0, "AdamW", ONE_BY_ONE, BF16, 1_174_768, 1_174_768),
    (1, 2, "Adam", L2, BF16, 505_472, 1_516_048),
    (2, 0, "Adagrad", {}, {}, 404_464, 692_592),
    (2, 0, "Adagrad", {"weight_decay": 0.01}, {}, 404_464, 770_544),
    (2, 2, "Adagrad", {}, BF16, 505_524, 621_056),
]
STEPS = 64
"""Bytes: torch's step counters, of 4 each, lie on the host, and are one memory with the rest there."""


@pytest.mark.parametrize(("world", "stage", "kind", "params", "dtype", "init", "step"), MEASURED)
def test_tensor_by_tensor_on_the_cpu(world, stage, kind, params, dtype, init, step):
    case = {
        "model": MODEL, "world": world, "rank": 0, "ranks_per_node": world, "seq": 16, "micro_batch": 1,
        "ds_config": {
            "zero_optimization": {"stage": stage, **({"reduce_bucket_size": 1000} if stage else {})},
            "optimizer": {"type": kind, "params": {"lr": 1e-5, **params}}, **dtype,
        },
        "checkpointing": "none", "attention": "sdpa", "parameter_groups": 1, "zero_init": False,
    }  # fmt: skip
    one = job_of(case).at(backend="cpu")
    tier = ledger(one).gpu
    assert less_activations(tier, "init") + 8 * one.tokens == pytest.approx(init, abs=STEPS)
    assert less_activations(tier, "step") == pytest.approx(step, abs=STEPS)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_adagrad_of_several_groups_is_refused(stage):
    """As a run of DeepSpeed 0.19.8 stops at stages 1 and 3: IndexError, list index out of range, in the first step."""
    one = job("llama-3.2-1b", stage=stage, optimizer="adagrad")
    with pytest.raises(ContradictionError, match="several parameter groups"):
        ledger(one.at(parameter_groups=2))
    assert ledger(one)
    assert ledger(one.at(parameter_groups=2, offload_optimizer=Offload(device="cpu")))  # DeepSpeed's own, run at stage 2


def test_bf16_optimizer_takes_adagrad_as_it_is():
    """Run by DeepSpeed 0.19.8 with two groups."""
    assert ledger(job("llama-3.2-1b", stage=1, optimizer="adagrad", grad_accum_dtype="fp32", parameter_groups=2))
