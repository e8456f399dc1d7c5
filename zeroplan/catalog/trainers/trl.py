"""Training files of TRL and of recipes built on it (huggingface/trl f2cd5771, trl/trainer).

model_config.py, base_config.py and sft_config.py have keys and defaults, of which utils.py (get_peft_config,
get_quantization_config) makes what trains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zeroplan.catalog.adapters import READERS
from zeroplan.catalog.trainers import training_arguments
from zeroplan.catalog.trainers.stated import Stated, Trains
from zeroplan.catalog.trainers.words import Said, Words
from zeroplan.errors import SpecError, shown
from zeroplan.specs.adapter import CAUSAL_LM, SEQ_CLS, Adapter
from zeroplan.specs.quantization import FP4, INT8, NF4, STORAGES, Quantization
from zeroplan.specs.trained import Trained

if TYPE_CHECKING:
    from zeroplan.specs.model import Model

HARMLESS = (
    *training_arguments.HARMLESS, "assistant_only_loss", "auto_insert_empty_system_msg", "chat_template*",
    "completion_only_loss", "decontaminate", "env", "eos_token", "hf_token", "pad_token", "preprocessing_*", "script_*",
    "shuffle_dataset", "truncation_mode", "use_auth_token",
)  # fmt: skip
SECOND_MODEL = "a second model, rewards and generation are not planned"
REFUSED = dict.fromkeys(
    ("beta", "center_rewards_coefficient", "max_completion_length", "max_prompt_length", "num_generations",
     "precompute_ref_log_probs", "ref_model_name_or_path", "reward_funcs", "reward_model_name_or_path",
     "reward_model_path", "rpo_alpha", "sync_ref_model", "teacher_model_name_or_path", "use_vllm"), SECOND_MODEL,
) | {"activation_offloading": "activations offloaded to the host are not planned"}  # fmt: skip
"""Words of trainers that compare answers, score or generate them."""
QUERY_VALUE, ATTENTION = ("q_proj", "v_proj"), ("query_key_value",)
DEFAULT_TARGETS = {
    "llama": QUERY_VALUE, "mistral": QUERY_VALUE, "qwen2": QUERY_VALUE, "qwen3": QUERY_VALUE, "gemma": QUERY_VALUE,
    "gemma2": QUERY_VALUE, "gemma3_text": QUERY_VALUE, "gptj": QUERY_VALUE, "opt": QUERY_VALUE,
    "gpt2": ("c_attn",), "gpt_bigcode": ("c_attn",), "gpt_neox": ATTENTION, "bloom": ATTENTION, "falcon": ATTENTION,
    "bert": ("query", "value"), "phi": ("q_proj", "v_proj", "fc1", "fc2"),
}  # fmt: skip
"""Layers that get adapters where nothing names them, by model_type (peft 0.21.2 utils/constants.py), of the described
families; for all others peft stops."""
DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "auto": ""}


def read(words: Words) -> Stated:
    """What a file says. Raises `SpecError`."""
    words.refuse_any(REFUSED)
    adapts = words.switch("use_peft")
    settings = _settings(words)
    quantization = _quantization(words, adapts=adapts)
    if not adapts:
        unused = [key for key in ("lora_r", "lora_target_modules") if words(key) is not None]
        note = f"{unused[0]} does nothing without use_peft: all weights train" if unused else ""
        words.look_at("use_dora", "use_rslora", *(key for key in words.content if key.startswith("lora_")))
        return Stated(settings, notes=(note,) if note else ())
    return Stated(settings, _lora(words), quantization, "use_peft", reentrant_at_stage_3=True)


def _settings(words: Words) -> dict[str, Said]:
    length = next((key for key in ("max_length", "max_seq_length") if words(key) is not None), "max_length")
    precision = training_arguments.half(words)
    if precision is None:
        precision = Said("bf16" if words("bf16") is None else "fp32", "bf16", stated=words("bf16") is not None)
    settings = {
        **training_arguments.batch(words), "seq": words.said(length, words.whole(length, 1024)), "precision": precision,
        "checkpointing": training_arguments.checkpointing(words, usual=True), **training_arguments.operators(words),
        **training_arguments.named(words, "optim", "optim"),
        **training_arguments.named(words, "model", "model_name_or_path"),
    }  # fmt: skip
    if loaded := DTYPES.get(_dtype(words)):
        key = next((key for key in ("dtype", "torch_dtype") if words(key) is not None), "dtype")
        settings["built_in"] = Said(loaded, key, stated=words(key) is not None)
    if words.switch("use_flash_attention_2"):
        settings.setdefault("attention", Said("flash_attention_2", "use_flash_attention_2"))
    if words.switch("use_liger"):
        settings.setdefault("kernels", Said("liger", "use_liger"))
    return settings


def _quantization(words: Words, *, adapts: bool) -> Quantization | None:
    four, eight = words.switch("load_in_4bit"), words.switch("load_in_8bit")
    kind, double = words.word("bnb_4bit_quant_type", NF4, (NF4, FP4)), words.switch("use_bnb_nested_quant")
    storage = words.word("bnb_4bit_quant_storage", "uint8").removeprefix("torch.")
    if four and eight:
        raise words.refuse("load_in_8bit", "one of load_in_4bit and load_in_8bit (TRL refuses both)")
    for key, said in (("load_in_4bit", four), ("load_in_8bit", eight)):
        if said and not adapts:
            raise words.refuse(key, "use_peft: true beside it: quantized weights do not train")
    if eight:
        return Quantization(kind=INT8)
    if not four:
        return None
    storage = DTYPES.get(storage, storage)
    if storage not in STORAGES:
        raise words.refuse("bnb_4bit_quant_storage", "uint8, bfloat16, float16 or float32")
    return Quantization(kind=kind, double=double, storage=storage, compute=DTYPES.get(_dtype(words), ""))


def _dtype(words: Words) -> str:
    """The dtype that the model is loaded in (model_config.py)."""
    return words.word("dtype", words.word("torch_dtype", "float32")).removeprefix("torch.")


def _lora(words: Words) -> Trains:
    targets = words.read("lora_target_modules", _targets)
    task = words.word("lora_task_type", CAUSAL_LM)
    if task == SEQ_CLS:
        raise words.refuse("lora_task_type", f"{CAUSAL_LM}: reward models are not planned")
    parameters, more = words("lora_target_parameters"), {}
    if parameters and "target_parameters" not in READERS:
        raise words.refuse("lora_target_parameters", "it left out (not planned)")
    if parameters:
        more = {"target_parameters": words.read("lora_target_parameters", READERS["target_parameters"])}
    adapter = Adapter(
        r=words.rank("lora_r", 16), lora_alpha=words.number("lora_alpha", 32),
        lora_dropout=words.probability("lora_dropout", 0.05), use_rslora=words.switch("use_rslora"),
        use_dora=words.switch("use_dora"), modules_to_save=words.modules("lora_modules_to_save"),
        task_type=words.read("lora_task_type", READERS["task_type"], CAUSAL_LM), **more,
    )  # fmt: skip

    def trained(model: Model) -> Trained:
        names = _default_targets(words, model) if targets is None and not parameters else targets or ()
        return Trained(adapter=adapter._replace(target_modules=names))

    return trained


def _targets(value: object, place: str) -> tuple[str, ...] | str:
    """A list of one name is that name, which peft takes for a regular expression (model_config.py, __post_init__)."""
    single = value[0] if isinstance(value, list) and len(value) == 1 else value
    read: tuple[str, ...] | str = READERS["target_modules"](single, place)
    return read


def _default_targets(words: Words, model: Model) -> tuple[str, ...]:
    kind = model.family
    if kind not in DEFAULT_TARGETS:
        raise SpecError(
            words.at("lora_target_modules"), f"nothing, and peft has no layers of its own for {shown(kind)}",
            "names of layers", "lora_target_modules: all-linear",
        )  # fmt: skip
    return DEFAULT_TARGETS[kind]
