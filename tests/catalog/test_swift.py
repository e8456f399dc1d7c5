"""Training files of ms-swift 4.6: what trains, and what of the job is its own.

Run: swift.arguments.SftArguments and swift.pipelines.train.tuner.TunerMixin.prepare_model of ms-swift 4.6.0, of a Qwen2 of
two layers (hidden 64, MLP 128, 4 heads of which 2 hold keys, 512 tokens, output not tied) with peft 0.21.2.
"""

from __future__ import annotations

import json

import pytest

from zeroplan.catalog.models import model as named
from zeroplan.catalog.trainers.file import read_trainer_file
from zeroplan.errors import SpecError
from zeroplan.request.options import Options
from zeroplan.request.trained import read_trained

QWEN = {
    "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 512,
    "max_position_embeddings": 256, "tie_word_embeddings": False,
}  # fmt: skip
HEAD = {"model": "x", "tuner_type": "lora", "dataset": "d"}


def read(**more):
    return read_trainer_file({**HEAD, **more}, "train.yaml")


def settings(**more):
    return {name: said.value for name, said in read(**more).stated.settings.items()}


@pytest.mark.parametrize(
    ("more", "parameters", "tensors"),
    [
        ({}, 16384, 28),
        ({"lora_rank": 16, "target_modules": ["q_proj", "v_proj"], "modules_to_save": ["lm_head"], "use_dora": True}, 40128, 13),
        ({"tuner_type": "full", "freeze_parameters": ["model.embed_tokens", "model.layers.0"]}, 69952, 14),
        ({"tuner_type": "full", "freeze_parameters": ["model."], "trainable_parameters": ["model.norm"]}, 32832, 2),
    ],
)
def test_what_trains(tmp_path, more, parameters, tensors):
    (tmp_path / "config.json").write_text(json.dumps(QWEN), encoding="utf-8")
    model = read_trained(Options(), named(str(tmp_path / "config.json")), read(**more))
    assert (model.trainable_parameters, len(model.trainable)) == (parameters, tensors)


def test_its_defaults():
    """Run: micro-batch 1, bf16 of a model in bf16, checkpointing, which trainers/mixin.py makes reentrant under DeepSpeed."""
    assert settings() == {"micro_batch": 1, "precision": "bf16", "checkpointing": "full-reentrant", "model": "x"}
    adapter = read().stated.trained(named("llama-3.2-1b")).adapter
    assert (adapter.r, adapter.lora_alpha, adapter.lora_dropout, adapter.autocast_adapter_dtype) == (8, 32, 0.05, True)


@pytest.mark.parametrize(
    ("more", "precision"),
    [({"torch_dtype": "float16"}, "fp16"), ({"torch_dtype": "float32"}, "fp16"), ({"torch_dtype": "bfloat16"}, "bf16"),
     ({"bf16": True}, "bf16"), ({"torch_dtype": "bfloat16", "bf16": False}, "fp32")],
)  # fmt: skip
def test_precision(more, precision):
    """Run: torch_dtype float32 trains in fp16."""
    assert settings(**more)["precision"] == precision


@pytest.mark.parametrize(
    ("typed", "micro_batch", "gpus", "steps"),
    [({}, None, 8, 2), ({"per_device_train_batch_size": 3}, None, 8, 1), ({}, "4", 2, 2), ({}, None, 32, 1),
     ({"gradient_accumulation_steps": 5}, None, 8, 5)],
)  # fmt: skip
def test_it_accumulates_to_sixteen_sequences(zeroplan, tmp_path, typed, micro_batch, gpus, steps):
    """trainers/arguments.py: max(1, ceil(16 / micro-batch / world size)): of 1 on 8 ranks 2, of 3 on 8 1, of 4 on 2 2."""
    (tmp_path / "train.json").write_text(json.dumps({**HEAD, "deepspeed": "zero2", **typed}), encoding="utf-8")
    more = ("--micro-batch", micro_batch) if micro_batch else ()
    ran = zeroplan("estimate", "--config", str(tmp_path / "train.json"), "--model", "llama-3.2-1b", "--gpus", str(gpus), "--json", *more)
    assert ran.json["strategy"]["grad_accum"] == steps


def test_what_it_puts_into_the_config(zeroplan, tmp_path):
    """Run: arguments/sft_args.py:_init_deepspeed."""
    file = {**HEAD, "deepspeed": "zero3", "zero_hpz_partition_size": 4}
    (tmp_path / "train.json").write_text(json.dumps(file), encoding="utf-8")
    ran = zeroplan("estimate", "--config", str(tmp_path / "train.json"), "--model", "llama-3.2-1b", "--gpus", "2x4", "--json")
    assert ran.json["strategy"]["hpz_partition_size"] == 4
    assert ran.json["strategy"]["stage"] == 3


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"tuner_type": "longlora"}, "tuner_type: found 'longlora', expected lora or full"),
        ({"rlhf_type": "dpo"}, "rlhf_type: found 'dpo'"),
        ({"quant_method": "hqq", "quant_bits": 4}, "quant_method: found 'hqq'"),
        ({"quant_method": "bnb", "quant_bits": 4, "tuner_type": "full"}, "quantized weights do not train"),
        ({"task_type": "seq_cls"}, "task_type: found 'seq_cls'"),
        ({"sequence_parallel_size": 2}, "its sequence parallelism is not planned"),
    ],
)
def test_what_is_not_planned(more, said):
    with pytest.raises(SpecError) as refused:
        read(**more)
    assert said in str(refused.value)


def test_towers_are_not_read():
    """arguments/tuner_args.py: freeze_vit and freeze_aligner are true where nothing is said."""
    with pytest.raises(SpecError, match="of whose towers ms-swift trains what freeze_vit"):
        read().stated.trained(named("qwen2.5-vl-7b"))
