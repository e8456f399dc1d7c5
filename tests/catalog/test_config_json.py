"""What a config.json says is read, named or refused in one line: nothing is passed over."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from zeroplan.catalog.models import from_file
from zeroplan.catalog.presets import load
from zeroplan.errors import SpecError
from zeroplan.specs.quantization import Quantization

KIMI: dict[str, Any] = {
    **load("model", "kimi-k2")[1]["config"], "model_type": "kimi_k2", "auto_map": {"AutoConfig": "configuration_deepseek"},
    "aux_loss_alpha": 0.001, "ep_size": 1, "moe_layer_freq": 1, "pretraining_tp": 1, "scoring_func": "sigmoid",
    "seq_aux": True, "topk_method": "noaux_tc", "torch_dtype": "bfloat16", "transformers_version": "4.48.3", "use_cache": True,
}  # fmt: skip
"""The keys of moonshotai/Kimi-K2-Instruct's config.json."""
KIMI_K2 = 1_026_408_209_408
FP8 = {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}


@pytest.fixture
def written(tmp_path):
    def write(content: dict[str, Any], name: str = "config.json") -> Path:
        (tmp_path / name).write_text(json.dumps(content))
        return tmp_path / name

    return write


def test_a_family_is_found_by_its_class(written):
    found = from_file(written(KIMI))
    assert (found.parameters, found.family) == (KIMI_K2, "deepseek_v3")
    assert found.assumed == ("model_type kimi_k2 read as deepseek_v3, the family of DeepseekV3ForCausalLM",)
    assert found.unread == ()
    assert not found.approximate


def test_but_only_where_that_family_reads_everything(written):
    """The sizes alone are taken then, and the model is said to be approximate."""
    found = from_file(written({**KIMI, "index_topk": 2048}))
    assert (found.family, found.approximate) == ("kimi_k2", 0.15)


@pytest.mark.parametrize(
    ("content", "family", "unread"),
    [
        ({"model_type": "llama", "architectures": ["LlamaForCausalLM"], "use_qk_norm": True}, "llama", ("use_qk_norm",)),
        ({"model_type": "qwen2", "output_hidden_states": True, "id2label": {"0": "a"}}, "qwen2", ("output_hidden_states",)),
        ({"model_type": "qwen2", "time_step_limit": [0.0, float("inf")]}, "qwen2", ("time_step_limit",)),
    ],
)
def test_keys_that_nothing_reads_are_named(written, content, family, unread):
    found = from_file(written(content))
    assert (found.family, found.unread) == (family, unread)


def test_an_early_spelling_of_a_class(written):
    """transformers 5.24 builds it: AutoModelForCausalLM goes by model_type."""
    found = from_file(written({**LLAMA, "architectures": ["LLaMAForCausalLM"]}))
    assert found.architecture == "LlamaForCausalLM"


def test_sizes_left_out_are_named_as_transformers_defaults(written):
    found = from_file(written({"model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 28}))
    assert "num_attention_heads 32 (transformers' default for qwen3)" in found.assumed
    assert "tie_word_embeddings false (transformers' default for qwen3)" in found.assumed
    assert not [said for said in found.assumed if said.startswith(("hidden_size", "num_hidden_layers", "max_position"))]


def test_weights_in_fp8_train_dequantized(written):
    """transformers' Trainer refuses quantized weights (trainer_utils.py, validate_quantization_for_training)."""
    with pytest.raises(SpecError, match=r'quantization_config \(fp8\).*"dequantize": true'):
        from_file(written({**KIMI, "quantization_config": FP8}))
    found = from_file(written({**KIMI, "quantization_config": {**FP8, "dequantize": True}}))
    assert found.parameters == KIMI_K2
    assert "quantization_config fp8: weights train dequantized, in the training's own precision (dequantize)" in found.assumed


LLAMA = {"model_type": "llama", "num_hidden_layers": 2}
REFUSED = [
    ("gptq", {**LLAMA, "quantization_config": {"quant_method": "gptq", "bits": 4}}, "(gptq)", "remove it"),
    ("a method as text", {**LLAMA, "quantization_config": "int8"}, "'int8'", "remove it"),
    ("a method of two lines", {**LLAMA, "quantization_config": {"quant_method": "a\nb"}}, r"a\nb", "remove it"),
    ("compressed", {**LLAMA, "compression_config": {"quant_method": "compressed-tensors"}}, "compressed-tensors", "dequantize"),
    ("a language model inside", {**LLAMA, "text_config": {"a": 1}, "vision_config": {"b": 1}}, "text_config and vision_config",
     "its text_config to a file of its own"),
    ("another name for it", {"model_type": "internvl_chat", "llm_config": {"a": 1}, "vision_config": {"b": 1}}, "multimodal",
     "its llm_config to a file"),
    ("sound", {**LLAMA, "audio_config": {"b": 1}}, "audio_config", "a language model alone"),
    ("both of two families", {**LLAMA, "architectures": ["MistralForCausalLM"]}, "a class of mistral", '"model_type": "mistral"'),
    ("an adapter", {"peft_type": "LORA", "base_model_name_or_path": "org/base", "r": 8}, "a PEFT adapter (LORA)", "--model org/base"),
    ("an adapter of nothing", {"peft_type": "LORA"}, "a PEFT adapter", "--adapter"),
    ("ds_config.json", {"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": True}}, "a DeepSpeed configuration", "--config"),
    ("generation_config.json", {"_from_model_config": True, "eos_token_id": 2}, "generation_config.json", "config.json beside it"),
    ("tokenizer_config.json", {"tokenizer_class": "LlamaTokenizer", "model_max_length": 8}, "a tokenizer's", "config.json beside it"),
    ("preprocessor_config.json", {"image_processor_type": "CLIP", "image_mean": [0.5]}, "a preprocessor's", "config.json beside it"),
    ("trainer_state.json", {"log_history": [], "global_step": 7}, "the Trainer's state", "config.json beside it"),
    ("the index of weights", {"weight_map": {}, "metadata": {}}, "index of a model's weight files", "config.json beside it"),
]  # fmt: skip


def test_weights_that_bitsandbytes_packs(written):
    """Of what is left out transformers takes fp4, uint8, float32 and no second quantization (BitsAndBytesConfig)."""
    found = from_file(written({**LLAMA, "quantization_config": {"load_in_4bit": True}}))
    assert found.quantization == Quantization("fp4", double=False, storage="uint8", compute="fp32")
    assert {tensor.packed for tensor in found.tensors if tensor.name.endswith("q_proj.weight")} == {(4096, 4096)}
    assert {tensor.shape for tensor in found.tensors if tensor.name.endswith("q_proj.weight")} == {(4096 * 4096 // 2, 1)}
    assert not any(tensor.packed for tensor in found.tensors if "lm_head" in tensor.name or "norm" in tensor.name)


@pytest.mark.parametrize(("content", "found", "write"), [pytest.param(*case, id=name) for name, *case in REFUSED])
def test_what_is_no_language_model_of_its_own_is_called_what_it_is(written, content, found, write):
    with pytest.raises(SpecError) as refused:
        from_file(written(content))
    said = str(refused.value)
    assert found in said
    assert write in said
    assert "\n" not in said
    assert "--params" not in said


def test_a_folder_with_an_adapter_alone(written):
    path = written({"peft_type": "LORA", "base_model_name_or_path": "org/base"}, "adapter_config.json")
    with pytest.raises(SpecError, match="--model org/base"):
        from_file(path.parent)
