"""Which module of `families/` knows which `model_type`; a family is imported only when it is asked for."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from zeroplan.architectures.config import Config
from zeroplan.architectures.module import Module

# model_type -> its config class. `build(config)` of the module of that name in families/ makes the tree.
FAMILIES: dict[str, str] = {
    "bert": "BertConfig",
    "bloom": "BloomConfig",
    "deepseek_v2": "DeepseekV2Config",
    "deepseek_v3": "DeepseekV3Config",
    "falcon": "FalconConfig",
    "gemma": "GemmaConfig",
    "gemma2": "Gemma2Config",
    "gemma3_text": "Gemma3TextConfig",
    "gpt2": "GPT2Config",
    "gpt_bigcode": "GPTBigCodeConfig",
    "gpt_neox": "GPTNeoXConfig",
    "gpt_oss": "GptOssConfig",
    "gptj": "GPTJConfig",
    "llama": "LlamaConfig",
    "mistral": "MistralConfig",
    "mixtral": "MixtralConfig",
    "olmo": "OlmoConfig",
    "olmo2": "Olmo2Config",
    "opt": "OPTConfig",
    "phi": "PhiConfig",
    "phi3": "Phi3Config",
    "qwen2": "Qwen2Config",
    "qwen2_moe": "Qwen2MoeConfig",
    "qwen3": "Qwen3Config",
    "qwen3_moe": "Qwen3MoeConfig",
    "starcoder2": "Starcoder2Config",
}

# What `architectures` of config.json says of a language model, where it is not the config's name with ForCausalLM.
ARCHITECTURES: dict[str, tuple[str, ...]] = {
    "bert": ("BertLMHeadModel", "BertForMaskedLM"),
    "gemma3_text": ("Gemma3ForCausalLM",),
    "gpt2": ("GPT2LMHeadModel",),
}
OUTPUTS = ("lm_head", "embed_out", "cls.predictions.decoder")
"""What get_output_embeddings gives in these families."""
NO_TOKEN_CLASSIFICATION = frozenset({"deepseek_v2", "gemma3_text", "gptj", "olmo", "olmo2", "opt"})
"""Families without a ForTokenClassification in transformers 5.24."""
SEQUENCES, TOKENS, BARE = "ForSequenceClassification", "ForTokenClassification", "Model"
"""What follows a family's prefix in the names of its other classes; BARE ends in no loss."""


LIGER_FAMILIES = frozenset({
    "deepseek_v2", "deepseek_v3", "gemma", "gemma2", "gemma3_text", "gpt_oss", "llama", "mistral", "mixtral", "olmo2",
    "phi3", "qwen2", "qwen3", "qwen3_moe",
})  # fmt: skip
"""Those of them that liger-kernel 0.8.5 patches (transformers/monkey_patch.py, MODEL_TYPE_TO_APPLY_LIGER_FN)."""


def family(model_type: str) -> tuple[type[Config], Callable[[Any], Module]]:
    """The config class and the builder of a known `model_type`. Raises `KeyError`."""
    class_name = FAMILIES[model_type]
    module = import_module(f"zeroplan.architectures.families.{model_type}")
    return getattr(module, class_name), module.build


def prefix(model_type: str) -> str:
    """What the names of a family's classes begin with. Raises `KeyError`."""
    return FAMILIES[model_type].removesuffix("Config")


def language_models(model_type: str) -> tuple[str, ...]:
    """The classes that mean this family's language model. Raises `KeyError`."""
    return ARCHITECTURES.get(model_type, (f"{prefix(model_type)}ForCausalLM",))


def language_model(model_type: str, is_decoder: bool) -> str:
    """The class that is built where config.json names none. Raises `KeyError`."""
    names = language_models(model_type)
    return names[0] if is_decoder else names[-1]


def accepted_architectures(model_type: str) -> tuple[str, ...]:
    """The classes of this family that are described: its language model, and its other heads. Raises `KeyError`."""
    heads = (SEQUENCES, BARE) if model_type in NO_TOKEN_CLASSIFICATION else (SEQUENCES, TOKENS, BARE)
    return (*language_models(model_type), *(prefix(model_type) + head for head in heads))


def family_of_architecture(architecture: object) -> str | None:
    """The `model_type` of the described family that has a class of this name."""
    return next((each for each in FAMILIES if architecture in accepted_architectures(each)), None)
