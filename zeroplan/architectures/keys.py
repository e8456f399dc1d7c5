"""Keys of a config.json that a family does not read: those that change nothing a plan counts, and why; and the rest."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zeroplan.architectures.config import Config

NO_EFFECT: dict[str, tuple[str, ...]] = {
    "names and origins": (
        "model_type", "architectures", "_name_or_path", "name_or_path", "transformers_version", "_commit_hash",
        "finetuning_task", "model_name", "model_max_length", "unsloth_version", "unsloth_fixed", "task_specific_params",
        "tokenizer_class", "processor_class", "language", "is_composition",
    ),
    "code of the repository itself, which runs under trust_remote_code alone": ("auto_map", "custom_pipelines"),
    "the precision of the file: the training's own is in ds_config.json": (
        "torch_dtype", "dtype", "fp16", "bf16", "fp32",
    ),
    "ids of tokens": (
        "bos_token_id", "eos_token_id", "sep_token_id", "cls_token_id", "mask_token_id", "unk_token_id", "pad_token_id",
        "decoder_start_token_id", "im_start_id", "im_end_id", "eod_token_id",
    ),
    "settings of generation, which transformers reads from generation_config.json": (
        "use_cache", "cache_implementation", "do_sample", "temperature", "top_k", "top_p", "typical_p", "num_beams",
        "num_beam_groups", "num_return_sequences", "max_length", "min_length", "max_new_tokens", "length_penalty",
        "repetition_penalty", "no_repeat_ngram_size", "encoder_no_repeat_ngram_size", "diversity_penalty",
        "early_stopping", "bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "forced_bos_token_id",
        "forced_eos_token_id", "remove_invalid_values", "exponential_decay_length_penalty", "output_scores",
        "return_dict_in_generate", "use_bfloat16", "prefix",
    ),
    "values that weights start from": (
        "initializer_range", "init_std", "initializer_factor", "embedding_initializer_range", "init_device",
        "initializer_cutoff_factor",
    ),
    "a number inside an operator": (
        "layer_norm_eps", "layer_norm_epsilon", "rms_norm_eps", "norm_epsilon", "norm_eps",
    ),
    "what the model was first trained with, and transformers' class does not read": (
        "ep_size", "aux_loss_alpha", "seq_aux", "pretraining_tp", "masked_softmax_fusion", "bias_dropout_fusion",
        "attention_softmax_in_fp32", "offset_alibi", "seq_length", "skip_bias_add", "skip_bias_add_qkv", "n_special",
        "predict_special_tokens", "directionality", "pooler_fc_size", "pooler_num_attention_heads", "pooler_type",
        "pooler_num_fc_layers", "pooler_size_per_head", "rotary", "activation_dropout", "scale_attn_weights",
    ),
    "labels of a head that another class has": (
        "id2label", "label2id", "num_labels", "problem_type", "classifier_dropout",
    ),
    "a summary that GPT2DoubleHeadsModel alone has": (
        "summary_activation", "summary_first_dropout", "summary_proj_to_labels", "summary_type", "summary_use_proj",
    ),
    "layers for predicting further tokens, which transformers does not build": ("num_nextn_predict_layers",),
    "a value that follows from others": ("qk_head_dim", "n_ctx", "n_inner_dim", "_sliding_window_pattern"),
    "what forward wraps its result in": (
        "return_dict", "use_return_dict", "torchscript", "_attn_implementation_autoset",
    ),
}  # fmt: skip
"""Reason -> keys that change neither memory nor traffic nor time, whatever their value."""

NO_EFFECT_AS: dict[str, tuple[Any, ...]] = {
    "output_attentions": (False,), "output_hidden_states": (False,), "chunk_size_feed_forward": (0,),
    "is_encoder_decoder": (False,), "is_decoder": (False,), "add_cross_attention": (False,),
    "tie_encoder_decoder": (False,), "pruned_heads": ({},), "slow_but_exact": (False,),
    "moe_layer_freq": (1,), "gradient_checkpointing": (False,), "use_sliding_window": (False,),
    "attention_bias": (False,), "mlp_bias": (False,), "rope_scaling": ({},), "quantization_config": ({},),
    "position_embedding_type": ("absolute",), "per_layer_config": ({},), "use_mrope": (False,),
    "apply_residual_connection_post_layernorm": (False,),
}  # fmt: skip
"""Keys that change nothing with these values."""

ONE_VALUE: dict[str, dict[str, tuple[Any, ...]]] = {
    "deepseek_v2": {"scoring_func": ("softmax",)},
    "deepseek_v3": {"scoring_func": ("sigmoid",), "topk_method": ("noaux_tc",)},
    "gemma": {"hidden_activation": ("gelu_pytorch_tanh", "gelu")},
    "gemma2": {"hidden_act": ("gelu_pytorch_tanh", "gelu")},
    "gemma3_text": {"hidden_act": ("gelu_pytorch_tanh",)},
    "gpt_bigcode": {"num_key_value_heads": (1,)},
    "gpt_oss": {"hidden_act": ("silu",), "initial_context_length": (4096,), "experts_per_token": (4,)},
    "starcoder2": {
        "mlp_type": ("default",), "norm_type": ("layer_norm",), "activation_function": ("gelu_pytorch_tanh",),
    },
}  # fmt: skip
"""Family -> what its layers do always, as config.json may say it."""


READ_FOR_ALL = frozenset({"quantization_config", "compression_config", "per_layer_config"})
"""Keys that are read whatever the family."""


def without_effect() -> frozenset[str]:
    """Keys that change nothing, whatever their value."""
    return frozenset(key for keys in NO_EFFECT.values() for key in keys)


def unread(content: Mapping[str, Any], kind: type[Config], model_type: str) -> tuple[str, ...]:
    """Top-level keys that no one reads and that might change what a plan counts; null says nothing."""
    passed = without_effect() | kind.keys() | READ_FOR_ALL
    own = ONE_VALUE.get(model_type, {})
    return tuple(
        key for key, value in content.items()
        if value is not None and key not in passed and value not in (*NO_EFFECT_AS.get(key, ()), *own.get(key, ()))
    )  # fmt: skip
