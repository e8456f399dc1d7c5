"""Training files of LLaMA-Factory, axolotl and TRL: whose they are, what trains, and how often what is recomputed.

Expected values follow the tools' own sources (hiyouga/LLaMA-Factory ff6d4d12, axolotl-ai-cloud/axolotl 067b021c,
huggingface/trl f2cd5771) and peft 0.21.2; each test names the file.
"""

from __future__ import annotations

import pytest

from zeroplan.catalog.models import model as named
from zeroplan.catalog.trainers.file import read_trainer_file
from zeroplan.catalog.trainers.tools import tool_of
from zeroplan.errors import SpecError
from zeroplan.specs.adapter import ALL_LINEAR
from zeroplan.specs.quantization import Quantization

LLAMA = {"model_name_or_path": "a/b", "stage": "sft", "cutoff_len": 1024}
AXOLOTL = {"base_model": "a/b", "sequence_len": 1024}
LORA = {**AXOLOTL, "adapter": "lora", "lora_r": 16, "lora_alpha": 32, "lora_target_modules": ["q_proj", "v_proj"]}
TRL = {"model_name_or_path": "a/b", "dataset_name": "d", "use_peft": True}
LINEAR = {"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}


def read(content):
    return read_trainer_file(content, "train.yaml")


def settings(content):
    return {name: said.value for name, said in read(content).stated.settings.items()}


def trained(content, model="llama-3.2-1b"):
    return read(content).stated.trained(named(model))


@pytest.mark.parametrize(
    ("content", "tool"),
    [
        (LLAMA, "LLaMA-Factory"), (AXOLOTL, "axolotl"), (TRL, "TRL"),
        ({"output_dir": "o", "num_train_epochs": 3}, "transformers' TrainingArguments"),
        ({"model": "a/b", "tuner_type": "lora"}, "ms-swift"), ({"model_name_or_path": "a", "use_lora": True}, "open-instruct"),
        ({"model": "a/b", "peft_config": {"name": "lora"}}, "LLaMA-Factory v1"),
        ({"distributed_type": "DEEPSPEED", **LLAMA}, None), ({"zero_optimization": {}, **LLAMA}, None),
        ({"lora_r": 16, "load_in_4bit": True}, None), ({"bf16": True, "deepspeed": "ds.json"}, None),
    ],
)  # fmt: skip
def test_the_tool_is_told_by_keys(content, tool):
    assert tool_of(content) == tool


def test_llama_factory_trains_adapters_where_nothing_says_how():
    """hparams/finetuning_args.py: finetuning_type lora, lora_rank 8, lora_alpha `or` 2·rank, lora_target all."""
    adapter = trained(LLAMA).adapter
    assert (adapter.r, adapter.lora_alpha, adapter.lora_dropout, adapter.task_type) == (8, 16, 0, "CAUSAL_LM")
    assert set(adapter.target_modules) == LINEAR


def test_all_of_llama_factory_passes_over_the_output():
    """model/model_utils/misc.py, find_all_linear_modules: no path with lm_head, which GPT-NeoX has too
    (transformers 5.24.0 modeling_gpt_neox.py).
    """
    names = {"query_key_value", "dense", "dense_h_to_4h", "dense_4h_to_h"}
    assert set(trained(LLAMA, "pythia-1.4b").adapter.target_modules) == names


def test_words_of_llama_factory():
    """finetuning_args.py splits texts at commas; a list stays one, and what it names are ends of names."""
    more = {"lora_rank": 32, "lora_alpha": 0, "lora_dropout": "1e-1", "lora_target": " q_proj, v_proj",
            "additional_target": "embed_tokens,lm_head", "use_rslora": True, "use_dora": True}  # fmt: skip
    adapter = trained({**LLAMA, **more}).adapter
    assert (adapter.r, adapter.lora_alpha, adapter.lora_dropout) == (32, 64, 0.1)
    assert adapter.target_modules == ("q_proj", "v_proj")
    assert adapter.modules_to_save == ("embed_tokens", "lm_head")
    assert adapter.use_rslora
    assert adapter.use_dora
    assert trained({**LLAMA, "lora_target": ["q_proj"]}).adapter.target_modules == ("q_proj",)


def test_settings_of_llama_factory():
    """TrainingArguments' batch of 8, checkpointing unless it is disabled, and reentrant (model_args.py)."""
    assert settings({**LLAMA, "bf16": True}) == {
        "model": "a/b", "micro_batch": 8, "grad_accum": 1, "seq": 1024, "precision": "bf16",
        "checkpointing": "full-reentrant",
    }  # fmt: skip
    assert settings(LLAMA)["precision"] == "fp32"
    assert settings({**LLAMA, "use_reentrant_gc": False})["checkpointing"] == "full"
    assert settings({**LLAMA, "disable_gradient_checkpointing": True})["checkpointing"] == "none"
    assert settings({**LLAMA, "flash_attn": "fa2"})["attention"] == "flash_attention_2"
    assert settings({**LLAMA, "enable_liger_kernel": True})["kernels"] == "liger"


def test_quantized_weights_of_llama_factory():
    """model/model_utils/quantization.py: nf4, double quantization unless it is off, stored in the run's dtype."""
    four = read({**LLAMA, "quantization_bit": 4, "bf16": True}).stated.quantization
    assert four == Quantization("nf4", True, "bf16")
    more = {"quantization_bit": 4, "quantization_type": "fp4", "double_quantization": False, "fp16": True}
    assert read({**LLAMA, **more}).stated.quantization == Quantization("fp4", False, "fp16")
    assert read({**LLAMA, "quantization_bit": 8}).stated.quantization.kind == "int8"


def test_freeze_of_llama_factory():
    """model/adapter.py, _setup_freeze_tuning: the last n layers, the first for n < 0, Pro's between the others."""
    freeze = {**LLAMA, "finetuning_type": "freeze"}
    assert trained(freeze)[:2] == (("*",), ("*.14.*", "*.15.*"))
    assert trained({**freeze, "freeze_trainable_layers": -1}).train == ("*.0.*",)
    chosen = {"freeze_trainable_layers": 1, "freeze_trainable_modules": "self_attn,mlp", "freeze_extra_modules": "norm"}
    assert trained({**freeze, **chosen}).train == ("*.15.self_attn*", "*.15.mlp*", "*norm*")
    pro = {"use_llama_pro": True, "freeze_trainable_layers": 4}
    assert trained({**freeze, **pro}).train == ("*.3.*", "*.7.*", "*.11.*", "*.15.*")
    assert trained({**LLAMA, **pro}).adapter.layers_to_transform == (3, 7, 11, 15)


def test_full_training_states_nothing():
    assert trained({**LLAMA, "finetuning_type": "full"}) == ((), (), None, None)
    assert trained({**AXOLOTL, "adapter": None, "lora_r": None}) == ((), (), None, None)
    assert trained({**TRL, "use_peft": False, "lora_r": 16}) == ((), (), None, None)


def test_adapters_of_axolotl():
    """loaders/adapter.py, _build_peft_lora_config; pydantic makes numbers of texts (utils/schemas/peft.py)."""
    more = {"lora_r": "32", "lora_dropout": "0.1", "lora_modules_to_save": ["lm_head"], "peft_use_dora": "true",
            "lora_rank_pattern": {"q_proj": 4}, "peft_layers_to_transform": [0, 1]}  # fmt: skip
    adapter = trained({**LORA, **more}).adapter
    assert (adapter.r, adapter.lora_alpha, adapter.lora_dropout, adapter.use_dora) == (32, 32, 0.1, True)
    assert adapter.target_modules == ("q_proj", "v_proj")
    assert (adapter.modules_to_save, adapter.layers_to_transform) == (("lm_head",), (0, 1))
    assert adapter.rank_pattern == (("q_proj", 4),)
    assert trained({**LORA, "lora_target_modules": "all-linear"}).adapter.target_modules == ALL_LINEAR
    assert trained({**LORA, "lora_target_modules": r"model.*\.q_proj"}).adapter.target_modules == r"model.*\.q_proj"


def test_linear_layers_of_axolotl_are_added_to_those_named():
    """loaders/adapter.py, find_all_linear_names: without the output's name, which it takes for embed_out in GPT-NeoX,
    whose lm_head (so named since transformers 5) gets an adapter.
    """
    linear = {**LORA, "lora_target_linear": True, "lora_target_modules": ["embed_tokens"]}
    assert set(trained(linear).adapter.target_modules) == LINEAR | {"embed_tokens"}
    assert "lm_head" in trained({**linear, "lora_target_modules": None}, "pythia-1.4b").adapter.target_modules


def test_quantized_weights_of_axolotl():
    """loaders/model.py: 4 bit under qlora alone, in bf16 and with double quantization; 8 bit under lora alone."""
    qlora = read({**LORA, "adapter": "qlora", "load_in_4bit": True})
    assert qlora.stated.quantization == Quantization("nf4", True, "bf16")
    changed = {**LORA, "adapter": "qlora", "load_in_4bit": True, "bnb_config_kwargs": {"bnb_4bit_use_double_quant": False}}
    assert not read(changed).stated.quantization.double
    assert read({**LORA, "load_in_8bit": True}).stated.quantization.kind == "int8"
    unused = read({**LORA, "load_in_4bit": True})
    assert unused.stated.quantization is None
    assert any("load_in_4bit does nothing" in note for note in unused.assumed)


def test_unfrozen_parameters_of_axolotl():
    """utils/freeze.py: compared from the beginning, a point is itself, and rows behind a name change no state."""
    content = {**AXOLOTL, "unfrozen_parameters": ["^model.embed_tokens.weight$[:32000]", "model.layers.1[45].mlp"]}
    names = trained(content).train
    assert names[0] == "model.embed_tokens.weight"
    assert len(names) == 1 + 2 * 3
    assert all(name.startswith(("model.layers.14.mlp.", "model.layers.15.mlp.")) for name in names[1:])


def test_settings_of_axolotl():
    """utils/schemas: micro_batch_size 1, sequence_len 512, bf16 auto; checkpointing off, and reentrant where it is on
    and nothing says otherwise (utils/config/__init__.py, normalize_config).
    """
    content = {"base_model": "a/b", "adapter": None}
    assert settings(content) == {
        "model": "a/b", "micro_batch": 1, "grad_accum": 1, "seq": 512, "precision": "auto", "checkpointing": "none",
    }  # fmt: skip
    on = {**content, "gradient_checkpointing": True}
    assert settings(on)["checkpointing"] == "full-reentrant"
    assert settings({**on, "gradient_checkpointing_kwargs": {"use_reentrant": False}})["checkpointing"] == "full"
    assert settings({**on, "unfrozen_parameters": ["lm_head"]})["checkpointing"] == "full"
    assert settings({**content, "batch_size": 8, "micro_batch_size": 2})["grad_accum"] == 1  # run: 0.19 normalize_config
    assert settings({**content, "fp16": True, "bf16": False})["precision"] == "fp16"
    assert settings({**content, "flash_attention": True})["attention"] == "flash_attention_2"


def test_adapters_of_trl():
    """model_config.py: r 16, alpha 32, dropout 0.05; a list of one name is that text; texts become numbers
    (scripts/utils.py, through argparse); peft's own table where no layer is named.
    """
    adapter = trained(TRL).adapter
    assert (adapter.r, adapter.lora_alpha, adapter.lora_dropout) == (16, 32, 0.05)
    assert adapter.target_modules == ("q_proj", "v_proj")
    assert trained({**TRL, "lora_r": "64"}).adapter.r == 64
    assert trained({**TRL, "lora_target_modules": ["all-linear"]}).adapter.target_modules == ALL_LINEAR
    assert trained({**TRL, "lora_target_modules": ["q_proj"]}).adapter.target_modules == "q_proj"
    assert trained({**TRL, "lora_target_modules": ["q_proj", "k_proj"]}).adapter.target_modules == ("q_proj", "k_proj")
    assert trained(TRL, "gpt2").adapter.target_modules == ("c_attn",)
    with pytest.raises(SpecError, match="peft has no layers of its own for 'phi3'"):
        trained(TRL, "phi-3-mini")


def test_quantized_weights_of_trl():
    """trainer/utils.py, get_quantization_config: stored in uint8, computed in `dtype`, which is float32 by default."""
    four = {**TRL, "load_in_4bit": True}
    assert read(four).stated.quantization == Quantization("nf4", False, "uint8", "fp32")
    more = {"torch_dtype": "bfloat16", "use_bnb_nested_quant": True, "bnb_4bit_quant_storage": "bfloat16"}
    assert read({**four, **more}).stated.quantization == Quantization("nf4", True, "bf16", "bf16")
    assert read({**TRL, "load_in_8bit": True}).stated.quantization.kind == "int8"


def test_settings_of_trl():
    """base_config.py: checkpointing on, bf16 unless fp16; sft_config.py: max_length 1024; model_config.py: dtype float32."""
    assert settings(TRL) == {
        "model": "a/b", "micro_batch": 8, "grad_accum": 1, "seq": 1024, "precision": "bf16", "checkpointing": "full",
        "built_in": "fp32",
    }  # fmt: skip
    assert settings({**TRL, "dtype": "bfloat16"})["built_in"] == "bf16"
    assert "built_in" not in settings({**TRL, "dtype": "auto"})
    assert settings({**TRL, "max_seq_length": 4096, "fp16": True})["precision"] == "fp16"
    assert settings({**TRL, "max_seq_length": 4096})["seq"] == 4096
    assert settings({**TRL, "gradient_checkpointing": False})["checkpointing"] == "none"
    assert read(TRL).stated.reentrant_at_stage_3
    assert not read({**TRL, "use_peft": False}).stated.reentrant_at_stage_3


@pytest.mark.parametrize("name", ["activation_checkpointing", "gradient_checkpointing"])
def test_both_names_of_checkpointing(name):
    """transformers 5.24.0 training_args.py: the first counts, the second is its older name."""
    content = {"output_dir": "o", "num_train_epochs": 1, name: True, f"{name}_kwargs": {"every_n_layers": 2}}
    assert settings(content)["checkpointing"] == "every-2"
    assert settings({**content, "activation_checkpointing": False})["checkpointing"] == "none"


REFUSED = {
    "oft": ({**LLAMA, "finetuning_type": "oft"}, "OFT is not planned"),
    "another stage": ({**LLAMA, "stage": "dpo"}, "stage: found 'dpo', expected pt or sft"),
    "GaLore": ({**LLAMA, "use_galore": True}, "GaLore is not planned"),
    "quantized and full": ({**LLAMA, "finetuning_type": "full", "quantization_bit": 4}, "LLaMA-Factory refuses full"),
    "another method": ({**LLAMA, "quantization_bit": 4, "quantization_method": "hqq"}, "bnb: other methods"),
    "bits in quotes": ({**LLAMA, "quantization_bit": "4"}, "4 or 8, a number"),
    "a rank in quotes": ({**LLAMA, "lora_rank": "8"}, "takes a text in quotes as it is; write lora_rank: 8"),
    "no target": ({**LLAMA, "lora_target": None}, "lora_target: found nothing"),
    "a placeholder": ({**LLAMA, "lora_rank": "${RANK}"}, "the placeholder '${RANK}'"),
    "a rank of none": ({**LLAMA, "lora_rank": 0}, "a whole number from 1 up"),
    "a list for a number": ({**LLAMA, "lora_rank": [8]}, "lora_rank: found [8], expected a number"),
    "llama-adapter": ({**AXOLOTL, "adapter": "llama-adapter"}, "lora, qlora or nothing"),
    "both ways": ({**LORA, "unfrozen_parameters": ["lm_head"]}, "it left out beside adapter"),
    "ReLoRA": ({**LORA, "relora": True}, "ReLoRA is not planned"),
    "repeated layers": ({**LORA, "peft_layer_replication": [[0, 4], [2, 6]]}, "repeated layers"),
    "4 bit alone": ({**AXOLOTL, "load_in_4bit": True}, "an adapter beside it"),
    "qlora alone": ({**LORA, "adapter": "qlora"}, "load_in_4bit: true beside it"),
    "no rank": ({**AXOLOTL, "adapter": "lora"}, "lora_r: found nothing"),
    "no layers": ({**LORA, "lora_target_modules": None}, "lora_target_modules: found nothing"),
    "no expression for layers": ({**LORA, "lora_target_modules": "["}, "a name or a regular expression"),
    "no expression for modules": ({**TRL, "lora_modules_to_save": ["("]}, "a name or a regular expression"),
    "a rank beyond any width": ({**TRL, "lora_r": 10**9}, "lora_r: found 1000000000"),
    "no expression": ({**AXOLOTL, "unfrozen_parameters": ["layers.["]}, "a regular expression"),
    "a reward": ({**AXOLOTL, "rl": "dpo"}, "rl: found 'dpo'"),
    "no tool of ours": ({"model": "a", "model_class": "llm"}, "a training file of LLaMA-Factory v1, which is not read"),
    "both widths": ({**TRL, "load_in_4bit": True, "load_in_8bit": True}, "TRL refuses both"),
    "quantized without adapters": ({**TRL, "use_peft": False, "load_in_4bit": True}, "use_peft: true beside it"),
    "preferences": ({**TRL, "beta": 0.1}, "a second model"),
}  # fmt: skip


@pytest.mark.parametrize(("content", "said"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_planned_is_one_line(content, said):
    with pytest.raises(SpecError) as error:
        read(content)
    assert said in str(error.value)
    assert str(error.value).startswith("train.yaml")
    assert "\n" not in str(error.value)


LATE = {
    "another adapter": ({**LLAMA, "adapter_name_or_path": "out"}, "write --adapter and its folder"),
    "axolotl's": ({**LORA, "lora_model_dir": "out"}, "write --adapter and its folder"),
    "a module of no layer": ({**LLAMA, "finetuning_type": "freeze", "freeze_trainable_modules": "attn"}, "found 'attn'"),
    "a module in layers": ({**LLAMA, "finetuning_type": "freeze", "freeze_extra_modules": "mlp"}, "found 'mlp'"),
    "no divisor": ({**LLAMA, "use_llama_pro": True, "freeze_trainable_layers": 3}, "a divisor of llama-3.2-1b's 16"),
    "nothing trains": ({**AXOLOTL, "unfrozen_parameters": ["decoder"]}, "no parameter trains"),
}


@pytest.mark.parametrize(("content", "said"), LATE.values(), ids=LATE)
def test_what_does_not_go_with_the_model(content, said):
    file = read(content)
    with pytest.raises(SpecError) as error:
        file.stated.trained(named("llama-3.2-1b"))
    assert said in str(error.value)


def test_words_that_nothing_reads_are_named():
    content = {**LLAMA, "neat_packing": True, "learning_rate": 1e-4, "colour": "green", "rope_scaling": None}
    assert read(content).unread == ("neat_packing", "colour")
    assert read(content).assumed == ("not read in train.yaml: neat_packing, colour",)
