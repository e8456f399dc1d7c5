"""Training files of LLaMA-Factory (hiyouga/LLaMA-Factory ff6d4d12, src/llamafactory).

hparams/parser.py hands values to dataclasses as they are; finetuning_args.py, model_args.py and data_args.py beside it
have the defaults, and model/adapter.py and model/model_utils make of them what trains.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from zeroplan.catalog.trainers import training_arguments
from zeroplan.catalog.trainers.modules import linear_names
from zeroplan.catalog.trainers.stated import Stated, Trains
from zeroplan.catalog.trainers.words import Said, Words
from zeroplan.errors import SpecError, shown
from zeroplan.specs.adapter import CAUSAL_LM, Adapter
from zeroplan.specs.quantization import FP4, INT8, NF4, Quantization
from zeroplan.specs.trained import Trained

if TYPE_CHECKING:
    from zeroplan.specs.model import Model

LORA, FREEZE, FULL, OFT = "lora", "freeze", "full", "oft"
ALL = "all"
HARMLESS = (
    *training_arguments.HARMLESS, "cache_dir", "compute_accuracy", "custom_*", "default_system", "disable_shuffling",
    "early_stopping_steps", "enable_thinking", "export_*", "freeze_language_model", "freeze_multi_modal_projector",
    "freeze_vision_tower", "hf_hub_token", "ignore_pad_token_for_loss", "infer_*", "interleave_probs",
    "low_cpu_mem_usage", "mask_history", "max_samples", "media_dir", "mix_strategy", "ms_hub_token", "om_hub_token",
    "pissa_*", "plot_loss",
    "preserve_thinking", "print_param_status", "ray_*", "split_special_tokens", "streaming", "swanlab_*", "template",
    "tokenized_path", "tool_format", "train_on_prompt", "use_fast_tokenizer", "use_swanlab", "val_size",
)  # fmt: skip
REFUSED = {
    "use_galore": "GaLore is not planned", "use_apollo": "APOLLO is not planned", "use_badam": "BAdam is not planned",
    "use_adam_mini": "Adam-mini is not planned", "use_muon": "its own Muon is not planned",
    "use_unsloth": "Unsloth's kernels are not planned", "use_unsloth_gc": "Unsloth's checkpointing is not planned",
    "use_kt": "KTransformers is not planned", "mixture_of_depths": "mixture of depths is not planned",
    "shift_attn": "shifted attention is not planned", "use_mca": "Megatron is not planned",
    "use_megatron_bridge": "Megatron is not planned", "use_hyper_parallel": "HyperParallel is not planned",
    "use_asft_loss": "a reference model is not planned",
}  # fmt: skip
ATTENTIONS = {"disabled": "eager", "sdpa": "sdpa", "fa2": "flash_attention_2", "fa3": "flash_attention_3"}


def read(words: Words) -> Stated:
    """What a file says. Raises `SpecError`."""
    if words.word("stage", "sft") not in ("pt", "sft"):
        raise words.refuse("stage", "pt or sft: a second model, rewards and pairs of answers are not planned")
    how = words.word("finetuning_type", LORA)
    if how not in (LORA, FREEZE, FULL):
        raise words.refuse("finetuning_type", f"{LORA}, {FREEZE} or {FULL}{': OFT is not planned' * (how == OFT)}")
    words.refuse_any(REFUSED)
    if how == FULL and words.switch("use_llama_pro"):
        raise words.refuse("use_llama_pro", f"finetuning_type {LORA} or {FREEZE} beside it (LLaMA-Factory refuses it)")
    settings = _settings(words)
    quantization = _quantization(words, how, settings.get("precision"))
    if how == FULL:
        return Stated(settings)
    if how == LORA:
        return Stated(settings, _lora(words), quantization, "finetuning_type lora")
    notes = ("LLaMA-Factory checkpoints only layers that train; all are counted as checkpointed",)
    recomputes = settings["checkpointing"].value != "none"
    return Stated(settings, _freeze(words), None, "finetuning_type freeze", notes if recomputes else ())


def _settings(words: Words) -> dict[str, Said]:
    settings = {
        **training_arguments.batch(words), "seq": words.said("cutoff_len", words.whole("cutoff_len", 2048)),
        "checkpointing": _checkpointing(words), **training_arguments.operators(words, "enable_liger_kernel"),
        **training_arguments.named(words, "optim", "optim"),
        **training_arguments.named(words, "model", "model_name_or_path"),
    }  # fmt: skip
    if (precision := training_arguments.half(words)) is not None:
        settings["precision"] = precision
    elif not words("pure_bf16"):
        settings["precision"] = Said("fp32", "bf16", stated=False)
    if attention := ATTENTIONS.get(str(words("flash_attn"))):
        settings["attention"] = Said(attention, "flash_attn")
    return settings


def _checkpointing(words: Words) -> Said:
    """On unless it is disabled, and reentrant (model/model_utils/checkpointing.py, prepare_model_for_training)."""
    reentrant = words.switch("use_reentrant_gc", True)
    if words.switch("disable_gradient_checkpointing"):
        stated = training_arguments.checkpointing(words)
        return stated if stated.value != "none" else Said("none", "disable_gradient_checkpointing")
    for name in training_arguments.CHECKPOINTING:  # switched on twice, the same way
        words.look_at(name, f"{name}_kwargs")
    return words.said("disable_gradient_checkpointing", "full-reentrant" if reentrant else "full")


def _quantization(words: Words, how: str, precision: Said | None) -> Quantization | None:
    """Weights that are quantized as they are loaded (model/model_utils/quantization.py, configure_quantization)."""
    bits = words("quantization_bit")
    method = words.word("quantization_method", "bnb")
    quant_type = words.word("quantization_type", NF4, (NF4, FP4))
    double = words.switch("double_quantization", True)
    if bits is None:
        return None
    if how != LORA:
        raise words.refuse("quantization_bit", f"finetuning_type {LORA} beside it (LLaMA-Factory refuses {how})")
    if method not in ("bnb", "bitsandbytes"):
        raise words.refuse("quantization_method", "bnb: other methods are not planned")
    if type(bits) is not int or bits not in (4, 8):
        raise words.refuse("quantization_bit", "4 or 8, a number")
    if bits == 8:
        return Quantization(kind=INT8)
    half = precision.value if precision and precision.value in ("fp16", "bf16") else "bf16"
    return Quantization(kind=quant_type, double=double, storage=half)


def _lora(words: Words) -> Trains:
    rank = words.rank("lora_rank", 8)
    alpha = words.number("lora_alpha") or 2 * rank
    targets = words.names("lora_target", (ALL,), split=True)
    saved = words.modules("additional_target", split=True)
    pro, layers = words.switch("use_llama_pro"), words.whole("freeze_trainable_layers", 2, signed=True)
    adapter = Adapter(
        r=rank, lora_alpha=alpha, lora_dropout=words.probability("lora_dropout"),
        use_rslora=words.switch("use_rslora"), use_dora=words.switch("use_dora"), modules_to_save=saved,
        task_type=CAUSAL_LM, autocast_adapter_dtype=True,
    )  # fmt: skip
    words.look_at("adapter_name_or_path", "create_new_adapter", "resize_vocab")

    def trained(model: Model) -> Trained:
        words.refuse_earlier_adapter("adapter_name_or_path")
        if words.switch("resize_vocab") and not saved:
            raise words.refuse("resize_vocab", "additional_target beside it", "additional_target: embed_tokens,lm_head")
        names = linear_names(model, without=("lm_head",)) if targets == (ALL,) else targets
        chosen = adapter._replace(target_modules=names)
        if pro:
            chosen = chosen._replace(layers_to_transform=_expanded(words, model, layers))
        return Trained(adapter=chosen)

    return trained


def _freeze(words: Words) -> Trains:
    """Layers that train, and modules beside them (model/adapter.py, _setup_freeze_tuning)."""
    count = words.whole("freeze_trainable_layers", 2, signed=True)
    modules = words.names("freeze_trainable_modules", (ALL,), split=True)
    extra = words.names("freeze_extra_modules", split=True)
    pro = words.switch("use_llama_pro")

    def trained(model: Model) -> Trained:
        inside, outside = _modules(model)
        for key, names, known in (("freeze_trainable_modules", modules, {ALL, *inside}),
                                  ("freeze_extra_modules", extra, outside)):  # fmt: skip
            if unknown := [name for name in names if name not in known]:
                raise SpecError(words.at(key), shown(unknown[0]), f"names such as {', '.join(sorted(known)[:6])}")
        layers = model.shape.layers
        if pro:
            numbers = _expanded(words, model, count)
        else:
            numbers = tuple(range(max(0, layers - count), layers) if count > 0 else range(min(-count, layers)))
        patterns = [f"*.{number}.{'' if name == ALL else name}*" for name in modules for number in numbers]
        return Trained(freeze=("*",), train=(*patterns, *(f"*{name}*" for name in extra)))

    return trained


def _modules(model: Model) -> tuple[set[str], set[str]]:
    """Names of modules of a layer, and of those outside of layers."""
    inside, outside = set(), set()
    for tensor in model.tensors:
        if ".0." in tensor.name:
            inside.add(tensor.name.split(".0.")[-1].split(".")[0])
        if re.search(r"\.\d+\.", tensor.name) is None and "." in tensor.name:
            outside.add(tensor.name.split(".")[-2])
    return inside, outside


def _expanded(words: Words, model: Model, count: int) -> tuple[int, ...]:
    """The layers that LLaMA Pro has put between the others."""
    layers = model.shape.layers
    if count <= 0 or layers % count:
        raise SpecError(words.at("freeze_trainable_layers"), str(count), f"a divisor of {model.name}'s {layers} layers")
    stride = layers // count
    return tuple(range(stride - 1, layers + stride - 1, stride))
