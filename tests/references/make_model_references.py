#!/usr/bin/env python3
"""Make config_defaults.json and default_models.json from transformers itself.

Both files record what one release of transformers does, so that the tests can compare
zeroplan's own reading of config.json with it where transformers is not installed.

    HF_HUB_OFFLINE=1 python make_model_references.py            # writes beside this file
    HF_HUB_OFFLINE=1 python make_model_references.py --out DIR
    HF_HUB_OFFLINE=1 python make_model_references.py --presets ../../presets/models

The last one writes nothing: it builds every preset and compares it with models.csv beside this
file (parameters, number of tensors, largest tensor); it also needs PyYAML.

It needs transformers 5.23.0 and torch (CPU is enough: every model is built on the meta
device, so that nothing is allocated and nothing is downloaded).

config_defaults.json, under "families" by model_type:
  class, causal_lm     the config class; the class AutoModelForCausalLM picks
  defaults             what the config class holds when config.json is {"model_type": X}
  declared             the class's own default where __post_init__ turned it into something else
  attribute_map        other spelling -> the field it is stored in (the other spelling wins)
  null                 fields that may be null: what null becomes, and whether the model builds;
                       any other field that is null is refused (StrictDataclassFieldValidationError)
  undeclared           fields the class does not declare and the model reads nevertheless
  derived              the rules, in words

default_models.json: "models" is a list of
  model_type, kind     kind: "default", or "random" (seeded; small and odd)
  auto                 the Auto class the model was built with
  class                the model class that resulted
  config               exactly what config.json held
  parameters           [name, shape] of named_parameters(), in order, after tie_weights()
  total                unique parameters
  tied                 [name, the name it shares its storage with]
"""

import argparse
import csv
import dataclasses
import datetime
import json
import pathlib
import random
import tempfile
import warnings

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForMaskedLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

TRANSFORMERS = "5.23.0"
SEED = 20261121
COMMAND = "HF_HUB_OFFLINE=1 python tests/references/make_model_references.py"

# Fields that change neither shapes nor what a training step keeps.
DROP = {
    "transformers_version",
    "architectures",
    "output_hidden_states",
    "output_attentions",
    "return_dict",
    "dtype",
    "chunk_size_feed_forward",
    "is_encoder_decoder",
    "id2label",
    "label2id",
    "problem_type",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "use_cache",
    "rope_parameters",
    "initializer_range",
    "init_std",
    "_name_or_path",
    "rms_norm_eps",
    "layer_norm_eps",
    "layer_norm_epsilon",
    "norm_epsilon",
    "summary_type",
    "summary_use_proj",
    "summary_activation",
    "summary_proj_to_labels",
    "summary_first_dropout",
    "pretraining_tp",
    "slow_but_exact",
    "classifier_dropout",
}

KV_IS_HEADS = "absent or null: num_attention_heads"
HEAD_DIM_UNDECLARED = (
    "not a field of the class, but the model reads it when config.json has it "
    "(getattr(config, 'head_dim', hidden_size // num_attention_heads)): absent: hidden_size // "
    "num_attention_heads; given: used for q, k, v, o; null: the model fails to build"
)
LAYER_TYPES = (
    "absent or null: derived; its length must equal num_hidden_layers or the config is refused; "
    "no effect on parameters; rule: "
)
N_INNER = "absent or null: 4 * n_embd (the config keeps null; the model does it)"

DERIVED = {
    "llama": {
        "head_dim": "absent or null: hidden_size // num_attention_heads; hidden_size must be a multiple of "
        "num_attention_heads even when head_dim is given",
        "num_key_value_heads": KV_IS_HEADS,
        "attention_bias": "biases on q, k, v AND o",
        "mlp_bias": "biases on gate, up and down",
    },
    "mistral": {
        "head_dim": "absent or null: hidden_size // num_attention_heads",
        "num_key_value_heads": "absent: 8, whatever num_attention_heads is; null: refused (the type is int)",
        "sliding_window": "absent: 4096; null: no window",
        "attention_bias": "not read: Mistral never has biases",
    },
    "mixtral": {
        "head_dim": "absent or null: the config keeps null; the model uses hidden_size // num_attention_heads",
        "num_key_value_heads": "absent: 8; null: refused",
        "sliding_window": "absent or null: no window (Mistral's default is 4096)",
        "intermediate_size": "the width of each expert",
    },
    "qwen2": {
        "num_key_value_heads": "absent: 32, whatever num_attention_heads is; null: num_attention_heads",
        "sliding_window": "null unless use_sliding_window is true (then the field, default 4096)",
        "layer_types": LAYER_TYPES + "sliding_attention where sliding_window is set and index >= max_window_layers",
        "head_dim": HEAD_DIM_UNDECLARED,
        "attention_bias": "not read: biases on q, k, v always, never on o",
    },
    "qwen2_moe": {
        "num_key_value_heads": "absent: 16; null: stays null and the model fails to build",
        "sliding_window": "0 unless use_sliding_window is true",
        "mlp_only_layers": "absent or null: []",
        "num_experts": "0 makes every layer dense; layer i is sparse when i is not in mlp_only_layers and "
        "num_experts > 0 and (i + 1) % decoder_sparse_step == 0",
        "intermediate_size": "the width of the dense layers only",
        "layer_types": LAYER_TYPES + "sliding_attention where (i + 1) is odd, i < max_window_layers and "
        "use_sliding_window",
        "head_dim": HEAD_DIM_UNDECLARED,
        "qkv_bias": "biases on q, k, v; never on o",
    },
    "qwen3": {
        "head_dim": "absent: 128, whatever hidden_size / num_attention_heads is; null: refused",
        "num_key_value_heads": "absent: 32, whatever num_attention_heads is; null: num_attention_heads",
        "sliding_window": "null unless use_sliding_window is true",
        "layer_types": LAYER_TYPES + "sliding_attention where sliding_window is set and index >= max_window_layers",
        "attention_bias": "biases on q, k, v AND o",
    },
    "qwen3_moe": {
        "head_dim": HEAD_DIM_UNDECLARED + "; (Qwen3 itself defaults to 128)",
        "num_key_value_heads": "absent: 4; null: refused",
        "sliding_window": "null unless use_sliding_window is true",
        "mlp_only_layers": "absent or null: []",
        "num_experts": "stored as num_local_experts; absent: 128; 0 makes every layer dense; layer i is sparse when "
        "i is not in mlp_only_layers and num_experts > 0 and (i + 1) % decoder_sparse_step == 0",
        "attention_bias": "biases on q, k, v AND o",
    },
    "gemma": {
        "head_dim": "absent: 256, whatever hidden_size / num_attention_heads is; null: refused",
        "num_key_value_heads": "absent: 16; null: refused",
        "hidden_act": '"gelu" is read as gelu_pytorch_tanh',
    },
    "gemma2": {
        "head_dim": "absent: 256; null: refused; hidden_size must still be a multiple of num_attention_heads",
        "num_key_value_heads": "absent: 4; null: refused",
        "layer_types": LAYER_TYPES + "sliding_attention for even indices, full_attention for odd ones",
        "hidden_activation": "the field that is read; hidden_act is ignored",
    },
    "gemma3_text": {
        "head_dim": "absent: 256; null: refused; hidden_size must still be a multiple of num_attention_heads",
        "num_key_value_heads": "absent: 4; null: refused",
        "layer_types": LAYER_TYPES + "full_attention where (i + 1) % sliding_window_pattern == 0 "
        "(sliding_window_pattern absent: 6), sliding_attention elsewhere",
        "sliding_window": "halved plus one when use_bidirectional_attention is true",
        "hidden_activation": "the field that is read; hidden_act is ignored",
    },
    "phi": {
        "num_key_value_heads": KV_IS_HEADS,
        "head_dim": HEAD_DIM_UNDECLARED,
        "qk_layernorm": "adds q_layernorm and k_layernorm (weight and bias, of size hidden_size // "
        "num_attention_heads even when head_dim is given)",
        "partial_rotary_factor": "absent: 0.5 (no parameters)",
    },
    "phi3": {
        "num_key_value_heads": KV_IS_HEADS,
        "head_dim": HEAD_DIM_UNDECLARED,
        "partial_rotary_factor": "absent: 1.0 (no parameters)",
        "pad_token_id": "absent: 32000; a vocab_size not above it fails to build (the same for any family)",
    },
    "gpt2": {
        "n_inner": N_INNER,
        "add_cross_attention": "true adds crossattention (c_attn, q_attn, c_proj) and ln_cross_attn to every layer",
    },
    "gptj": {"n_inner": N_INNER, "tie_word_embeddings": "ties the weight; lm_head.bias stays a parameter of its own"},
    "gpt_neox": {
        "intermediate_size": "absent: 24576, never 4 * hidden_size; null: refused",
        "attention_bias": "biases of query_key_value and dense; the MLP always has biases",
        "head_dim": "read for the rotary table only: no effect on parameters",
        "partial_rotary_factor": "from rotary_pct, absent: 0.25 (no parameters)",
    },
    "opt": {
        "word_embed_proj_dim": "absent or null: hidden_size; when it differs, project_in and project_out are added "
        "and the embedding and lm_head have that width",
        "ffn_dim": "absent: 3072, never 4 * hidden_size; null: refused",
        "max_position_embeddings": "the learned table has max_position_embeddings + 2 rows",
        "do_layer_norm_before": "false (or _remove_final_layer_norm true) drops the decoder's final_layer_norm",
        "layer_norm_elementwise_affine": "false: no layer norm has parameters",
    },
    "bloom": {
        "hidden_size": "n_embed, when given and not null, wins over hidden_size; absent: 64",
        "n_layer": "absent: 2; num_hidden_layers is another spelling",
        "ffn": "always 4 * hidden_size; n_inner is not read",
    },
    "falcon": {
        "hidden_size": "n_embed, when given and not null, wins over hidden_size",
        "num_kv_heads": "absent or null: num_attention_heads; only read by the shapes when "
        "new_decoder_architecture is true",
        "ffn_hidden_size": "absent or null: 4 * hidden_size",
        "num_ln_in_parallel_attn": "absent or null: 2 when new_decoder_architecture, else one layer norm "
        "(the model does it, not the config class); not read when parallel_attn is false: "
        "then input_layernorm and post_attention_layernorm (new_decoder_architecture does "
        "not override parallel_attn, though its documentation says so)",
        "multi_query": "only read when new_decoder_architecture is false: one kv head, else as many as heads",
        "n_head, n_layer, num_key_value_heads": "no attribute_map: ignored",
        "bias": "biases of query_key_value, dense, dense_h_to_4h, dense_4h_to_h",
    },
    "gpt_bigcode": {
        "n_inner": N_INNER,
        "multi_query": "true: one kv head (c_attn is n_embd + 2 * head size wide); false: as many as heads",
        "num_key_value_heads": "set by the class from multi_query (1, or n_head before num_attention_heads, the other "
        "spelling, is applied: then 12); the shapes do not read it",
        "add_cross_attention": "true needs multi_query false; adds crossattention and ln_cross_attn",
    },
    "starcoder2": {
        "num_key_value_heads": "absent: 2, whatever num_attention_heads is; null: refused",
        "intermediate_size": "absent: 12288, never 4 * hidden_size; null: refused",
        "head_dim": "not a field of the class; the model uses it when given and not null, else hidden_size // "
        "num_attention_heads",
        "use_bias": "every linear layer but lm_head",
    },
    "deepseek_v2": {
        "head_dim": "always qk_rope_head_dim; what config.json says is dropped",
        "qk_head_dim": "always qk_nope_head_dim + qk_rope_head_dim",
        "num_key_value_heads": KV_IS_HEADS + "; the shapes do not read it (MLA)",
        "q_lora_rank": "absent: 1536; null: one q_proj instead of q_a_proj, q_a_layernorm, q_b_proj",
        "first_k_dense_replace": "absent: 0: every layer is sparse",
        "n_routed_experts": "another spelling: num_experts (num_local_experts is not one, unlike deepseek_v3)",
        "n_shared_experts": "one shared MLP of width n_shared_experts * moe_intermediate_size",
        "moe_intermediate_size": "absent: 1407 (sic)",
        "num_experts_per_tok": "absent or null: null, and the forward pass fails",
        "moe_layer_freq": "not read",
        "attention_bias": "biases of q_a_proj, kv_a_proj_with_mqa and o_proj; q_proj, q_b_proj, kv_b_proj never",
        "mlp_bias": "biases of dense and shared MLPs; the routed experts never",
    },
    "deepseek_v3": {
        "head_dim": "absent: qk_rope_head_dim; not a field of the class, so what config.json says stays "
        "(deepseek_v2 drops it); only the rotary table reads it: no effect on parameters",
        "qk_head_dim": "always qk_nope_head_dim + qk_rope_head_dim",
        "num_key_value_heads": "absent: 128; null: num_attention_heads; the shapes do not read it (MLA)",
        "q_lora_rank": "absent: 1536; null: one q_proj instead of q_a_proj, q_a_layernorm, q_b_proj",
        "first_k_dense_replace": "absent: 3; null: the model fails to build",
        "n_routed_experts": "other spelling: num_local_experts (num_experts is not one, unlike deepseek_v2)",
        "n_shared_experts": "one shared MLP of width n_shared_experts * moe_intermediate_size",
        "num_mtp_layers": "stored as num_nextn_predict_layers; absent: 1; the causal LM builds none of them",
        "moe_layer_freq": "not read",
        "attention_bias": "biases of q_a_proj, kv_a_proj_with_mqa and o_proj; q_proj, q_b_proj, kv_b_proj never",
    },
    "gpt_oss": {
        "head_dim": "absent: 64, whatever hidden_size / num_attention_heads is; null: refused",
        "num_key_value_heads": "absent: 8; null: refused",
        "layer_types": LAYER_TYPES + "sliding_attention for even indices, full_attention for odd ones",
        "attention_bias": "absent: true; q, k, v, o only: the router and the experts always have biases, and "
        "sinks (one per head) is always there",
    },
    "olmo": {
        "num_key_value_heads": KV_IS_HEADS,
        "head_dim": HEAD_DIM_UNDECLARED,
        "attention_bias": "biases on q, k, v AND o",
        "norms": "no parameters at all",
    },
    "olmo2": {
        "num_key_value_heads": KV_IS_HEADS,
        "head_dim": HEAD_DIM_UNDECLARED,
        "attention_bias": "biases on q, k, v AND o",
        "q_norm, k_norm": "q_norm has num_attention_heads * head_dim entries, k_norm num_key_value_heads * head_dim",
    },
    "bert": {
        "intermediate_size": "absent: 3072, never 4 * hidden_size; null: refused",
        "add_cross_attention": "true needs is_decoder true; adds crossattention to every layer",
        "is_decoder": "no effect on parameters",
        "tie_word_embeddings": "ties decoder.weight to the word embeddings and decoder.bias to "
        "cls.predictions.bias; false leaves both biases",
    },
}

FAMILIES = list(DERIVED)
LAYER_FIELD = {"gpt2": "n_layer", "gptj": "n_layer", "bloom": "n_layer", "gpt_bigcode": "n_layer"}


def plain(value):
    """Whether JSON can hold value as a scalar or a list of scalars."""
    if isinstance(value, list):
        return all(plain(v) and not isinstance(v, list) for v in value)
    return value is None or isinstance(value, (bool, int, float, str))


def read_config(config):
    """The config object that transformers makes of a config.json holding `config`."""
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
        return AutoConfig.from_pretrained(folder)


def build(config, auto=AutoModelForCausalLM):
    """The model on the meta device, tied."""
    with torch.device("meta"):
        model = auto.from_config(read_config(config))
        model.tie_weights()
    return model


def describe(config, kind, auto=AutoModelForCausalLM):
    """One entry of default_models.json."""
    model = build(config, auto)
    first = {}
    tied = []
    for name, parameter in model.named_parameters(remove_duplicate=False):
        if id(parameter) in first:
            tied.append([name, first[id(parameter)]])
        else:
            first[id(parameter)] = name
    parameters = [[name, list(p.shape)] for name, p in model.named_parameters()]
    return {
        "model_type": config["model_type"],
        "kind": kind,
        "auto": auto.__name__,
        "class": type(model).__name__,
        "config": config,
        "parameters": parameters,
        "total": sum(p.numel() for p in model.parameters()),
        "tied": tied,
    }


# --- config_defaults.json -------------------------------------------------------------------


def small(model_type, **more):
    """A config.json with few layers, to try things on."""
    layers = 4 if model_type == "deepseek_v3" else 2
    return {"model_type": model_type, LAYER_FIELD.get(model_type, "num_hidden_layers"): layers, **more}


def outcome(config):
    """ "builds", or the name of the error."""
    try:
        build(config)
    except Exception as error:
        return type(error).__name__
    return "builds"


def family_defaults(model_type):
    """One entry of config_defaults.json."""
    cls = CONFIG_MAPPING[model_type]
    config = read_config({"model_type": model_type})
    held = config.to_dict()
    defaults = {k: v for k, v in held.items() if k not in DROP and k != "model_type" and plain(v)}
    fields = {f.name: f.default for f in dataclasses.fields(cls)}
    declared = {k: fields[k] for k in defaults if k in fields and plain(fields[k]) and fields[k] != defaults[k]}
    null = {}
    for name in fields:
        if name in DROP or name.startswith("_"):
            continue
        try:
            becomes = getattr(read_config(small(model_type, **{name: None})), name)
        except Exception:
            continue
        null[name] = {"becomes": becomes, "model": outcome(small(model_type, **{name: None}))}
    undeclared = {}
    before = {n: s for n, s in describe(small(model_type), "")["parameters"]}
    for name, value in (
        ("head_dim", 46),
        ("num_key_value_heads", 1),
        ("intermediate_size", 96),
        ("ffn_hidden_size", 96),
        ("n_inner", 96),
        ("attention_bias", None),
        ("mlp_bias", True),
        ("n_embed", 1136),
        ("num_local_experts", 3),
        ("num_experts", 3),
    ):
        if name in fields or (name in cls.attribute_map):
            continue
        if value is None:
            value = True
        try:
            after = {n: s for n, s in describe(small(model_type, **{name: value}), "")["parameters"]}
        except Exception as error:
            undeclared[name] = {"given": type(error).__name__}
            continue
        if after != before:
            changed = sorted(
                {
                    n.rsplit("layers.0.", 1)[-1]
                    for n in set(after) | set(before)
                    if after.get(n) != before.get(n) and ("layers.0." in n or "." not in n)
                }
            )
            undeclared[name] = {
                "given": "changes " + (", ".join(changed) or "the whole model"),
                "null": outcome(small(model_type, **{name: None})),
            }
    return {
        "class": cls.__name__,
        "causal_lm": describe(small(model_type), "")["class"],
        "defaults": defaults,
        "declared": declared,
        "attribute_map": dict(cls.attribute_map),
        "null": null,
        "undeclared": undeclared,
        "derived": DERIVED[model_type],
    }


# --- default_models.json --------------------------------------------------------------------


def sizes(rng, even=True):
    """heads, head size, hidden size in 48..200, a kv head count that divides heads, vocabulary, ffn."""
    while True:
        heads = rng.choice([2, 3, 4, 5, 6, 7, 8, 9, 12])
        head = rng.choice(range(6, 34, 2) if even else range(5, 34))
        if 48 <= heads * head <= 200:
            break
    kv = rng.choice([k for k in range(1, heads + 1) if heads % k == 0])
    return heads, head, heads * head, kv, rng.randrange(61, 300), rng.randrange(41, 260)


def random_config(model_type, k, rng):
    """The k-th (0..3) random config.json of a family.

    0: everything written out, switches the other way round than the defaults; 1: optional fields
    omitted; 2: nulls where they are legal and the other spellings; 3: a mixture.
    """
    heads, head, hidden, kv, vocab, ffn = sizes(rng)
    flip = k == 0 or (k == 3 and rng.random() < 0.5)
    config = {"model_type": model_type}
    layers = rng.choice([1, 2])

    def tie(default):
        if k == 0 or k == 2:
            config["tie_word_embeddings"] = (not default) if k == 0 else default
        elif k == 3:
            config["tie_word_embeddings"] = rng.random() < 0.5

    def llama_like(**more):
        config.update(
            vocab_size=vocab,
            hidden_size=hidden,
            intermediate_size=ffn,
            num_hidden_layers=layers,
            num_attention_heads=heads,
        )
        config.update(more)

    if model_type in ("llama", "olmo", "olmo2"):
        llama_like()
        if k in (0, 3):
            config["num_key_value_heads"] = kv
        if k == 2:
            config["num_key_value_heads"] = None
        if k == 3:
            config["head_dim"] = head + 2
        if model_type == "llama" and k == 2:
            config["head_dim"] = None
        if flip:
            config["attention_bias"] = True
            if model_type == "llama":
                config["mlp_bias"] = True
        elif model_type == "llama" and k == 3:
            config["mlp_bias"] = True
        tie(False)
    elif model_type in ("mistral", "mixtral"):
        llama_like()
        if k != 1:
            config["num_key_value_heads"] = kv
        else:  # num_key_value_heads is 8 when it is absent
            config.update(num_attention_heads=16, hidden_size=16 * 6)
        if k == 2:
            config["head_dim"] = None
            config["sliding_window"] = None
        if k in (0, 3):
            config["head_dim"] = head + 2 * k
        if model_type == "mixtral":
            config["num_experts" if k == 2 else "num_local_experts"] = rng.randrange(2, 6)
            if k == 3:
                config["num_experts_per_tok"] = 1
        tie(False)
    elif model_type in ("qwen2", "phi", "phi3"):
        llama_like()
        if k in (0, 3):
            config["num_key_value_heads"] = kv
        if k == 2:
            config["num_key_value_heads"] = None
        if k == 1 and model_type == "qwen2":  # 32 when absent
            config.update(num_attention_heads=32, hidden_size=32 * 6)
        if k == 3 and model_type != "phi3":
            config["head_dim"] = head + 2
        if model_type == "phi3":  # 32000 when absent: must be below vocab_size
            config["pad_token_id"] = None if k == 2 else 0
        if model_type == "phi" and k in (0, 2):
            config["qk_layernorm"] = True
        if model_type == "qwen2" and k == 0:
            config.update(use_sliding_window=True, sliding_window=32, max_window_layers=1)
        if model_type == "qwen2" and k == 2:
            config.update(layer_types=None, sliding_window=None)
        tie(False)
    elif model_type == "qwen2_moe":
        llama_like(
            num_hidden_layers=3,
            moe_intermediate_size=rng.randrange(20, 90),
            shared_expert_intermediate_size=rng.randrange(20, 90),
            num_experts=rng.randrange(2, 6),
        )
        if k == 1:  # 16 when absent
            config.update(num_attention_heads=16, hidden_size=16 * 10)
        else:
            config["num_key_value_heads"] = kv
        if k == 0:
            config.update(qkv_bias=False, mlp_only_layers=[1], num_experts_per_tok=1)
        if k == 2:
            config.update(mlp_only_layers=None, layer_types=None, sliding_window=None)
        if k == 3:
            config.update(decoder_sparse_step=2, head_dim=head + 2)
        tie(False)
    elif model_type == "qwen3":
        llama_like()
        if k in (0, 3):
            config.update(num_key_value_heads=kv, head_dim=head + 2)
        if k == 1:  # head_dim is 128, num_key_value_heads 32 when absent
            config.update(num_attention_heads=32, hidden_size=100)
        if k == 2:
            config.update(num_key_value_heads=None, head_dim=head, layer_types=None, sliding_window=None)
        if flip:
            config["attention_bias"] = True
        tie(False)
    elif model_type == "qwen3_moe":
        llama_like(num_hidden_layers=3, moe_intermediate_size=rng.randrange(20, 90))
        config["num_local_experts" if k == 2 else "num_experts"] = rng.randrange(2, 6)
        if k == 1:  # 4 when absent
            config.update(num_attention_heads=8, hidden_size=8 * 12)
        else:
            config["num_key_value_heads"] = kv
        if k == 0:
            config.update(attention_bias=True, mlp_only_layers=[0], head_dim=head + 4)
        if k == 2:
            config.update(mlp_only_layers=None, sliding_window=None)
        if k == 3:
            config.update(decoder_sparse_step=2, head_dim=head + 2)
        tie(False)
    elif model_type in ("gemma", "gemma2", "gemma3_text"):
        llama_like(num_hidden_layers=2 if k else 3)
        if k == 1:  # head_dim is 256; 16 or 4 kv heads when absent
            config.update(num_attention_heads=16, hidden_size=16 * 7)
        else:
            config["num_key_value_heads"] = kv
        if k in (0, 2, 3):
            config["head_dim"] = head + 2 * (k == 3)
        if k == 2 and model_type != "gemma":
            config.update(layer_types=None, sliding_window=None)
        if k == 0 and model_type == "gemma3_text":
            config["sliding_window_pattern"] = 2
        if flip:
            config["attention_bias"] = True
        tie(True)
    elif model_type in ("gpt2", "gptj", "gpt_bigcode"):
        names = ("n_embd", "n_layer", "n_head", "n_positions")
        if k in (2, 3):
            names = ("hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings")
        config.update(vocab_size=vocab)
        config.update(zip(names, (hidden, layers, heads, rng.randrange(17, 90))))
        if k in (0, 3):
            config["n_inner"] = ffn
        if k == 2:
            config["n_inner"] = None
        if model_type == "gptj":
            config["rotary_dim"] = 4
        if model_type == "gpt2" and k == 3:
            config["add_cross_attention"] = True
        if model_type == "gpt_bigcode" and k in (0, 3):
            config["multi_query"] = False
        if model_type == "gpt_bigcode" and k == 3:
            config["add_cross_attention"] = True
        tie(model_type != "gptj")
    elif model_type == "gpt_neox":
        llama_like()
        if k in (0, 3):
            config["attention_bias"] = False
        if k == 1:
            config["use_parallel_residual"] = False
        if k == 2:
            config["rotary_pct"] = 0.5
        tie(False)
    elif model_type == "opt":
        config.update(
            vocab_size=vocab,
            hidden_size=hidden,
            num_hidden_layers=layers,
            ffn_dim=ffn,
            num_attention_heads=heads,
            max_position_embeddings=rng.randrange(17, 90),
        )
        if k == 0:
            config.update(enable_bias=False, word_embed_proj_dim=hidden - 10, do_layer_norm_before=False)
        if k == 2:
            config["word_embed_proj_dim"] = None
        if k == 3:
            config.update(
                layer_norm_elementwise_affine=False, _remove_final_layer_norm=True, word_embed_proj_dim=hidden + 6
            )
        tie(True)
    elif model_type == "bloom":
        config.update(vocab_size=vocab)
        if k == 0:
            config.update(hidden_size=hidden, n_layer=layers, n_head=heads)
        elif k == 1:
            config.update(hidden_size=64)
        elif k == 2:
            config.update(n_embed=hidden, num_hidden_layers=layers, num_attention_heads=heads)
        else:
            config.update(hidden_size=hidden, n_embed=None, num_hidden_layers=1, n_layer=2, n_head=heads)
        tie(True)
    elif model_type == "falcon":
        config.update(vocab_size=vocab, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads)
        if k == 0:
            config.update(new_decoder_architecture=True, num_kv_heads=kv, bias=True, ffn_hidden_size=ffn)
        if k == 1:
            config.update(multi_query=False, parallel_attn=False, alibi=True)
        if k == 2:
            config.update(
                num_kv_heads=None,
                ffn_hidden_size=None,
                num_ln_in_parallel_attn=None,
                new_decoder_architecture=None,
                bias=None,
            )
        if k == 3:
            config.pop("hidden_size")
            config.update(n_embed=hidden, num_ln_in_parallel_attn=2, num_kv_heads=kv)
        tie(True)
    elif model_type == "starcoder2":
        llama_like()
        if k == 1:  # 2 when absent
            config.update(num_attention_heads=6, hidden_size=6 * 14)
        else:
            config["num_key_value_heads"] = kv
        if k in (0, 3):
            config["use_bias"] = False
        if k == 2:
            config.update(head_dim=None, sliding_window=None)
        if k == 3:
            config.update(head_dim=head + 2, use_bias=rng.random() < 0.5)
        tie(True)
    elif model_type in ("deepseek_v2", "deepseek_v3"):
        llama_like(
            num_hidden_layers=2,
            moe_intermediate_size=rng.randrange(20, 90),
            kv_lora_rank=rng.randrange(10, 40),
            qk_nope_head_dim=rng.randrange(6, 20),
            qk_rope_head_dim=rng.randrange(4, 16, 2),
            v_head_dim=rng.randrange(6, 20),
            n_shared_experts=rng.choice([1, 2, 3]),
            n_group=1,
            topk_group=1,
            num_experts_per_tok=2,
        )
        spelling = "n_routed_experts"
        if k == 2:
            spelling = "num_experts" if model_type == "deepseek_v2" else "num_local_experts"
        config[spelling] = rng.randrange(3, 7)
        if k != 1:
            config["first_k_dense_replace"] = rng.choice([0, 1])
        elif model_type == "deepseek_v3":  # 3 when absent
            config["num_hidden_layers"] = 4
        if k == 0:
            config.update(attention_bias=True, q_lora_rank=rng.randrange(10, 40), head_dim=98)
            if model_type == "deepseek_v2":
                config["mlp_bias"] = True
        elif k == 2:
            config.update(q_lora_rank=None, num_key_value_heads=None)
        elif k == 3:
            config.update(q_lora_rank=None, attention_bias=True)
        tie(False)
    elif model_type == "gpt_oss":
        llama_like()
        config["num_experts" if k == 2 else "num_local_experts"] = rng.randrange(2, 6)
        if k == 1:  # head_dim is 64, num_key_value_heads 8 when absent
            config.update(num_attention_heads=16, hidden_size=90)
        else:
            config.update(num_key_value_heads=kv, head_dim=head + 2 * (k == 3))
        if k in (0, 3):
            config["attention_bias"] = False
        if k == 2:
            config.update(layer_types=None, sliding_window=None)
        tie(False)
    elif model_type == "bert":
        llama_like(max_position_embeddings=rng.randrange(17, 90))
        if k in (0, 3):
            config["type_vocab_size"] = rng.choice([1, 3, 4])
        if k == 2:
            config.update(is_decoder=True, add_cross_attention=True, classifier_dropout=None)
        tie(True)
    else:
        raise ValueError(model_type)
    return config


def every_model():
    """All entries of default_models.json."""
    entries = []
    for model_type in FAMILIES:
        entries.append(describe(small(model_type), "default"))
        for k in range(4):
            rng = random.Random(f"{SEED}-{model_type}-{k}")
            entries.append(describe(random_config(model_type, k, rng), "random"))
    for k in (0, 1):
        rng = random.Random(f"{SEED}-bert-masked-{k}")
        entries.append(describe(random_config("bert", k, rng), "random", AutoModelForMaskedLM))
    return entries


# --- the presets -----------------------------------------------------------------------------


def check_presets(folder, table):
    """Build every preset; return a list of what is wrong."""
    wrong = []
    with open(table, newline="") as file:
        rows = {row["preset"]: row for row in csv.DictReader(file)}
    presets = {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    wrong += [f"{name}: no preset" for name in rows if name not in presets]
    wrong += [f"{name}: not in {table.name}" for name in presets if name not in rows]
    owner = {name: name for name in presets}
    for name, preset in presets.items():
        for alias in preset["aliases"]:
            if owner.setdefault(alias.lower(), name) != name:
                wrong.append(f"{name}: {alias} is also {owner[alias.lower()]}")
        fields = dict(preset["config"])
        cls = getattr(transformers, fields["architectures"][0])
        config = AutoConfig.for_model(fields.pop("model_type"), **fields)
        ignore = {"_name_or_path", "architectures"}
        if {k: v for k, v in read_config(preset["config"]).to_dict().items() if k not in ignore} != {
            k: v for k, v in config.to_dict().items() if k not in ignore
        }:
            wrong.append(f"{name}: reads differently from config.json")
        with torch.device("meta"):
            model = cls(config)
            model.tie_weights()
        parameters = dict(model.named_parameters())
        row = rows.get(name)
        if row is None:
            continue
        largest = max(p.numel() for p in parameters.values())
        for what, have, want in (
            ("preset parameters", preset["parameters"], int(row["total_params"])),
            ("parameters", sum(p.numel() for p in parameters.values()), int(row["total_params"])),
            ("tensors", len(parameters), int(row["n_tensors"])),
            ("largest tensor", largest, int(row["largest_tensor"])),
            (row["largest_tensor_name"], parameters[row["largest_tensor_name"]].numel(), largest),
            ("model_type", config.model_type, row["family"]),
        ):
            if have != want:
                wrong.append(f"{name}: {what} {have}, not {want}")
    print(f"{len(presets)} presets built, {len(rows)} rows, {len(wrong)} problems")
    return wrong


# --- writing --------------------------------------------------------------------------------


def dump(path, header, key, items):
    """JSON with one item a line, so that a change shows as one line."""
    lines = [f"{json.dumps(k)}: {json.dumps(v)}" for k, v in header.items()]
    if isinstance(items, dict):
        body = ",\n".join(f"{json.dumps(k)}: {json.dumps(v)}" for k, v in items.items())
        lines.append(f"{json.dumps(key)}: {{\n{body}\n}}")
    else:
        body = ",\n".join(json.dumps(v, separators=(",", ":")) for v in items)
        lines.append(f"{json.dumps(key)}: [\n{body}\n]")
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent)
    parser.add_argument("--presets", type=pathlib.Path, help="check the presets in this folder; write nothing")
    args = parser.parse_args()
    if transformers.__version__ != TRANSFORMERS:
        raise SystemExit(f"this needs transformers {TRANSFORMERS}, not {transformers.__version__}")
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    if args.presets:
        wrong = check_presets(args.presets, args.out / "models.csv")
        raise SystemExit("\n".join(wrong) if wrong else 0)
    header = {"transformers": TRANSFORMERS, "made": datetime.date.today().isoformat(), "command": COMMAND}
    models = every_model()
    dump(args.out / "default_models.json", {**header, "seed": SEED}, "models", models)
    dump(args.out / "config_defaults.json", header, "families", {t: family_defaults(t) for t in FAMILIES})


if __name__ == "__main__":
    main()
