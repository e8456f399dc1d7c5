"""Training files of ms-swift 4.6, and of its 3: `swift sft FILE` hands each key on as an option (cli/main.py).

arguments/base_args, arguments/tuner_args.py and trainers/arguments.py have keys and defaults, and
pipelines/train/tuner.py makes of them what trains.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zeroplan.catalog.adapters import READERS
from zeroplan.catalog.trainers import training_arguments
from zeroplan.catalog.trainers.modules import linear_names
from zeroplan.catalog.trainers.stated import Stated, Trains
from zeroplan.catalog.trainers.swift_configs import PUTS
from zeroplan.catalog.trainers.words import Said, Words
from zeroplan.errors import SpecError
from zeroplan.specs.adapter import ALL_LINEAR, BIASES, CAUSAL_LM, Adapter
from zeroplan.specs.quantization import FP4, INT8, NF4, Quantization
from zeroplan.specs.trained import Trained

if TYPE_CHECKING:
    from zeroplan.specs.model import Model

LORA, FULL = "lora", "full"
KINDS = ("tuner_type", "train_type", "sft_type")
"""What the releases 4, 3 and 2 call what trains."""
SEQUENCES = 16
"""Sequences of a step, at the least, where nothing states the accumulation (trainers/arguments.py)."""
HARMLESS = (
    *training_arguments.HARMLESS, "ENV", "acc_strategy", "add_version", "aligner_lr", "cached_*", "check_model",
    "columns", "create_checkpoint_symlink", "custom_*", "external_plugins", "interleave_prob", "lazy_tokenize",
    "load_args", "load_from_cache_file", "logprobs", "loss_scale", "max_epochs", "max_new_tokens", "max_shard_size",
    "model_author", "model_name", "model_type", "packing_num_proc", "response_prefix", "safe_serialization",
    "shuffle_buffer_size", "split_dataset_ratio", "stopping_strategy", "streaming", "strict", "swanlab_*", "system",
    "template*", "temperature", "top_*", "train_dataloader_shuffle", "truncation_strategy", "use_chat_template",
    "use_hf", "val_dataset*", "vit_lr",
)  # fmt: skip
REFUSED = {
    "rlhf_type": "a second model, rewards and generation are not planned", "use_galore": "GaLore is not planned",
    "lisa_activated_layers": "LISA is not planned", "use_swift_lora": "its own LoRA is not planned",
    "fsdp": "FSDP is not planned", "lora_dtype": "adapters in another type than peft's are not planned",
    "optimizer": "its own optimizers are not planned", "freeze_parameters_ratio": "freeze_parameters and names say it",
}  # fmt: skip
DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp16"}
"""The mixed precision of each torch_dtype (arguments/base_args/model_args.py, _init_mixed_precision)."""
STORED = {"uint8": "uint8", "bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
ATTENTIONS = {"flash_attn": "flash_attention_2"} | {each: each for each in training_arguments.ATTENTIONS}


def read(words: Words) -> Stated:
    """What a file says. Raises `SpecError`."""
    key = next((each for each in KINDS if words(each) is not None), KINDS[0])
    how = words.word(key, LORA)
    if how not in (LORA, FULL):
        raise words.refuse(key, f"{LORA} or {FULL}: other tuners are not planned")
    words.refuse_any(REFUSED)
    if words.word("task_type", CAUSAL_LM.lower()) != CAUSAL_LM.lower():
        raise words.refuse("task_type", f"{CAUSAL_LM.lower()}: other heads and losses are not planned")
    if words.word("tuner_backend", "peft") != "peft":
        raise words.refuse("tuner_backend", "peft: Unsloth's kernels are not planned")
    if words.whole("sequence_parallel_size", 1) > 1:
        raise words.refuse("sequence_parallel_size", "1: its sequence parallelism is not planned")
    settings, quantization = _settings(words), _quantization(words, how, key)
    puts = {path: value for key, path in PUTS.items() if (value := words.whole(key)) is not None}
    steps = 0 if "grad_accum" in settings else SEQUENCES
    if how == FULL:
        return Stated(settings, _full(words), puts=puts, usual_batch=steps)
    return Stated(settings, _lora(words), quantization, f"{key} {how}", puts=puts, usual_batch=steps)


def _settings(words: Words) -> dict[str, Said]:
    batch, steps = training_arguments.BATCH, training_arguments.STEPS
    settings = {
        "micro_batch": words.said(batch, words.whole(batch, 1)), "precision": _precision(words),
        "checkpointing": training_arguments.checkpointing(words, usual=True, reentrant=True),
        **training_arguments.operators(words), **training_arguments.named(words, "optim", "optim"),
        **training_arguments.named(words, "model", "model"),
    }  # fmt: skip
    for name, key in (("grad_accum", steps), ("seq", "max_length")):
        if (value := words.whole(key)) is not None:
            settings[name] = Said(value, key)
    if attention := ATTENTIONS.get(str(words("attn_impl"))):
        settings["attention"] = Said(attention, "attn_impl")
    return settings


def _precision(words: Words) -> Said:
    if (half := training_arguments.half(words)) is not None:
        return half
    key = next((each for each in ("torch_dtype", "dtype") if words(each) is not None), "torch_dtype")
    dtype = words.word(key, "bfloat16", tuple(DTYPES))
    off = next((each for each in ("fp16", "bf16") if words(each) is not None and DTYPES[dtype] == each), None)
    return Said("fp32", off) if off else words.said(key, DTYPES[dtype])


def _quantization(words: Words, how: str, key: str) -> Quantization | None:
    """Weights that are quantized as they are loaded (arguments/base_args/quant_args.py)."""
    method, bits = words("quant_method"), words.whole("quant_bits")
    kind, double = words.word("bnb_4bit_quant_type", NF4, (NF4, FP4)), words.switch("bnb_4bit_use_double_quant", True)
    storage, compute = (words.word(f"bnb_4bit_{name}", usual) for name, usual in (("quant_storage", "uint8"),
                                                                                  ("compute_dtype", "")))  # fmt: skip
    if method is None:
        return None
    if method != "bnb" or bits not in (4, 8):
        wrong = "quant_method" if method != "bnb" else "quant_bits"
        raise words.refuse(wrong, "bnb, in 4 or 8 bits: others are not planned")
    if how != LORA:
        raise words.refuse(key, f"{LORA} beside quant_bits: quantized weights do not train")
    if bits == 8:
        return Quantization(kind=INT8)
    if storage not in STORED:
        raise words.refuse("bnb_4bit_quant_storage", ", ".join(STORED))
    return Quantization(kind=kind, double=double, storage=STORED[storage], compute=STORED.get(compute, ""))


def _full(words: Words) -> Trains:
    """All weights but those whose names begin as freeze_parameters say, and after these as trainable_parameters."""
    words.refuse_any(dict.fromkeys(("freeze_parameters_regex", "trainable_parameters_regex"), "names say it"))
    freeze, train = (words.names(f"{name}_parameters") for name in ("freeze", "trainable"))

    def trained(model: Model) -> Trained:
        _refuse_images(words, model)
        return Trained(freeze=tuple(f"{name}*" for name in freeze), train=tuple(f"{name}*" for name in train))

    return trained


def _lora(words: Words) -> Trains:
    targets = words.names("target_modules", (ALL_LINEAR,))
    regex = words("target_regex")
    saved = words.modules("modules_to_save")
    parameters, more = words("target_parameters"), {}
    if parameters and "target_parameters" in READERS:
        more = {"target_parameters": words.read("target_parameters", READERS["target_parameters"])}
    adapter = Adapter(
        r=words.rank("lora_rank", 8), lora_alpha=words.number("lora_alpha", 32),
        lora_dropout=words.probability("lora_dropout", 0.05), use_rslora=words.switch("use_rslora"),
        use_dora=words.switch("use_dora"), bias=words.word("lora_bias", BIASES[0], BIASES[:2]), modules_to_save=saved,
        task_type=CAUSAL_LM, autocast_adapter_dtype=True, **more,
    )  # fmt: skip

    def trained(model: Model) -> Trained:
        words.refuse_earlier_adapter("adapters")
        _refuse_images(words, model)
        if regex:
            return Trained(adapter=adapter._replace(target_modules=str(regex)))
        if special := next((each for each in (*targets, *saved) if each in ("all-embedding", "all-norm")), None):
            raise SpecError(words.at("target_modules"), special, "names of layers")
        names = [name for name in targets if name != ALL_LINEAR]
        if ALL_LINEAR in targets:
            output = "embed_out" if model.family == "gpt_neox" else "lm_head"
            names += linear_names(model, without=(output, "score", "v_head", "classifier"))
        return Trained(adapter=adapter._replace(target_modules=tuple(dict.fromkeys(names))))

    return trained


def _refuse_images(words: Words, model: Model) -> None:
    """Raise `SpecError` for a model with towers, which ms-swift freezes, and gives no adapters, by default."""
    if model.images is not None:
        raise SpecError(
            words.at("model"), f"{model.name}, of whose towers ms-swift trains what freeze_vit, freeze_aligner and "
            "freeze_llm say", "a language model (not planned)", "--config ds_config.json, and --freeze or --lora",
        )  # fmt: skip
