"""What `recommend --dir` writes is started as its README.md says, and what then runs is the plan.

On the CPU, with the model's shape cut small, two steps; without DeepSpeed 0.19.8 these are skipped. ZEROPLAN_DRAWS sets how
many drawn plans are started beside, ZEROPLAN_SEED where their seeds start; `python -m tests.emit.running` tells more.
"""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from tests.emit import running
from zeroplan.specs.target import TARGETS

if any(importlib.util.find_spec(name) is None for name in ("deepspeed", "torch", "transformers", "accelerate")):
    pytest.skip("DeepSpeed is not installed", allow_module_level=True)

HAS_LIGHTNING = importlib.util.find_spec("lightning") is not None
CONFIGS = Path(__file__).with_name("configs")
USUAL = {"gpus": "1", "gpu": "h100-80gb", "global-batch": "4", "micro-batch": "2", "seq": "128", "host-mem": "1TiB"}
PLANS = {
    "Trainer, two ranks, stage 3 offloaded, every other layer": {
        "model": "smollm2-135m", "for": "hf", "gpus": "2", "stage": "3", "checkpointing": "every-2",
        "offload-optimizer": "cpu", "offload-param": "cpu",
    },
    "Trainer, stage 2, selective in lines of code": {
        "model": "qwen3-0.6b", "for": "hf", "stage": "2", "checkpointing": "selective", "precision": "fp32",
        "optimizer": "adafactor",
    },
    "Trainer, two ranks, stage 3, feed-forward layers alone train": {
        "model": "smollm2-135m", "for": "hf", "gpus": "2", "stage": "3", "checkpointing": "full", "train": "*.mlp.*",
    },
    "Trainer, two ranks, stage 3, adapters": {
        "model": "smollm2-135m", "for": "hf", "gpus": "2", "stage": "3", "checkpointing": "full", "lora": "8",
    },
    "DeepSpeed, stage 2, adapters of queries and values": {
        "model": "llama-3.2-1b", "for": "deepspeed", "stage": "2", "checkpointing": "full-reentrant", "lora": "4",
        "lora-targets": "q_proj,v_proj",
    },
    "DeepSpeed, stage 2, adapters, DeepSpeed's own checkpointing": {
        "model": "llama-3.2-1b", "for": "deepspeed", "stage": "2", "checkpointing": "deepspeed", "lora": "4",
    },
    "Accelerate, stage 3, adapters, no checkpointing": {
        "model": "qwen3-0.6b", "for": "accelerate", "stage": "3", "checkpointing": "none", "lora": "8",
    },
    "Trainer, stage 2, adapters and weights in nf4": {
        "model": "llama-3.2-1b", "for": "hf", "stage": "2", "checkpointing": "full", "lora": "8", "quantize": "nf4",
    },
    "DeepSpeed, two ranks, stage 3, adapters and weights in nf4": {
        "model": "llama-3.2-1b", "for": "deepspeed", "gpus": "2", "stage": "3", "checkpointing": "full-reentrant",
        "lora": "8", "quantize": "nf4", "double-quant": "yes",
    },
    "Lightning, stage 2, adapters": {
        "model": "llama-3.2-1b", "for": "lightning", "stage": "2", "checkpointing": "full", "lora": "8",
    },
    "DeepSpeed, two ranks, stage 3, all layers": {
        "model": "llama-3.2-1b", "for": "deepspeed", "gpus": "2", "stage": "3", "checkpointing": "full",
    },
    "DeepSpeed's launcher, stage 1, eager attention": {
        "model": "gpt2-xl", "for": "deepspeed", "stage": "1", "attention": "eager", "optimizer": "sgd",
        "offload-optimizer": "cpu",
    },
    "Accelerate, two ranks, stage 2, products kept": {
        "model": "gemma-2b", "for": "accelerate", "gpus": "2", "stage": "2", "checkpointing": "selective-products",
    },
    "Lightning, stage 3, fp32": {
        "model": "qwen3-0.6b", "for": "lightning", "stage": "3", "precision": "fp32", "checkpointing": "full",
    },
    "Trainer, stage 2, a classifier of sequences": {
        "model": str(CONFIGS / "sequence_classifier.json"), "for": "hf", "stage": "2", "checkpointing": "full",
    },
    "DeepSpeed, stage 1, a classifier of sequences": {
        "model": str(CONFIGS / "sequence_classifier.json"), "for": "deepspeed", "stage": "1", "checkpointing": "full",
    },
    "Trainer, stage 1, a recorded encoder and decoder": {
        "model": str(CONFIGS / "encoder_decoder.json"), "for": "hf", "stage": "1", "checkpointing": "none",
    },
    "DeepSpeed, stage 2, an encoder and a decoder with shorter targets": {
        "model": str(CONFIGS / "encoder_decoder.json"), "for": "deepspeed", "stage": "2", "checkpointing": "none",
        "target-seq": "24",
    },
}  # fmt: skip
SEEDS = {"DeepSpeed's launcher, stage 1, eager attention": 0}
"""Which of the commands in the README.md starts it; the others are started by the last."""
FRESH = int(os.environ.get("ZEROPLAN_DRAWS", "0"))
FIRST = int(os.environ.get("ZEROPLAN_SEED", "20000"))


def check(options, strategy, folder, seed):
    one = running.started(options, strategy, folder, seed=seed)
    assert one.output == ""
    assert one.differing == {}


@pytest.mark.parametrize("plan", PLANS)
def test_it_runs_and_is_the_plan(plan, tmp_path):
    if PLANS[plan]["for"] == "lightning" and not HAS_LIGHTNING:
        pytest.skip("Lightning is not installed")
    options, folder = USUAL | PLANS[plan], tmp_path / "plan"
    strategy = running.written(options, folder)
    assert strategy is not None
    check(options, strategy, folder, SEEDS.get(plan, 4))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + FRESH))
def test_drawn_plans_run(seed, tmp_path):
    options, folder = running.draw(seed, TARGETS if HAS_LIGHTNING else TARGETS[:-1]), tmp_path / "plan"
    strategy = running.written(options, folder)
    if strategy is None:
        pytest.skip("no such plan fits")
    check(options, strategy, folder, seed)
