"""Training files of axolotl (axolotl-ai-cloud/axolotl 067b021c, src/axolotl).

utils/schemas (peft.py, config.py, training.py) has keys and defaults, and pydantic converts values; loaders/adapter.py,
loaders/model.py and utils/freeze.py make of them what trains.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from zeroplan.catalog.adapters import READERS
from zeroplan.catalog.trainers import training_arguments
from zeroplan.catalog.trainers.modules import linear_names
from zeroplan.catalog.trainers.stated import Stated, Trains
from zeroplan.catalog.trainers.words import Said, Words
from zeroplan.errors import SpecError, shown
from zeroplan.specs.adapter import CAUSAL_LM, SEQ_CLS, TOKEN_CLS, Adapter
from zeroplan.specs.quantization import FP4, INT8, NF4, Quantization
from zeroplan.specs.trained import Trained

if TYPE_CHECKING:
    from zeroplan.specs.model import Model

LORA, QLORA = "lora", "qlora"
AUTO = "auto"
HARMLESS = (
    *training_arguments.HARMLESS, "added_tokens_overrides", "chat_template*", "datasets", "debug",
    "default_system_message", "early_stopping_patience", "eot_tokens", "evals_per_epoch", "group_by_length",
    "hf_use_auth_token", "is_*_derived_model", "lora_on_cpu", "loss_watchdog_*", "merge_*", "mlflow_*", "model_type",
    "num_epochs", "pad_to_*", "peft_init_lora_weights", "pretraining_dataset", "profiler_*", "ray_*",
    "revision_of_model", "saves_per_epoch", "shuffle_*", "special_tokens", "strict", "test_datasets", "tokens",
    "train_on_inputs", "type_of_model", "use_ray", "use_tensorboard", "val_set_size",
)  # fmt: skip
REFUSED = {
    "rl": "a second model, rewards and generation are not planned", "reward_model": "reward models are not planned",
    "process_reward_model": "reward models are not planned", "gptq": "GPTQ weights are not planned",
    "fsdp": "FSDP is not planned", "fsdp_config": "FSDP is not planned", "relora": "ReLoRA is not planned",
    "relora_steps": "ReLoRA is not planned", "relora_prune_ratio": "ReLoRA is not planned",
    "jagged_restart_steps": "ReLoRA is not planned", "peft_layer_replication": "repeated layers are not planned",
    "spectrum_top_fraction": "which parameters Spectrum trains is not in the file",
    "selective_checkpointing": "its selective checkpointing is not planned",
    "activation_offloading": "activations offloaded to the host are not planned",
    "layer_offloading": "layers offloaded to the host are not planned",
    "quantize_moe_experts": "quantized experts are not planned", "unsloth": "Unsloth's kernels are not planned",
}  # fmt: skip
PARALLEL = ("tensor_parallel_size", "context_parallel_size", "sequence_parallel_degree")
FLAGS = {
    "flash_attention": "flash_attention_2", "sdp_attention": "sdpa", "eager_attention": "eager",
}  # fmt: skip
STORAGES = {"uint8": "uint8", "bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def read(words: Words) -> Stated:
    """What a file says. Raises `SpecError`."""
    words.refuse_any(REFUSED)
    for key in PARALLEL:
        if words.whole(key, 1) > 1:
            raise words.refuse(key, "1: ZeRO alone shards the model here")
    adapter = words("adapter")
    if adapter not in (None, LORA, QLORA):
        raise words.refuse("adapter", f"{LORA}, {QLORA} or nothing: other adapters are not planned")
    patterns = words.names("unfrozen_parameters")
    settings = _settings(words, has_patterns=bool(patterns))
    quantization, notes = _quantization(words, adapter)
    if adapter and patterns:
        raise words.refuse(
            "unfrozen_parameters", "it left out beside adapter: its patterns are compared with peft's names, so that "
            "adapters are frozen too"
        )  # fmt: skip
    if adapter:
        notes += ("fused kernels such as lora_mlp_kernel, which axolotl may switch on by itself, are not counted",)
        return Stated(settings, _lora(words), quantization, f"adapter {adapter}", notes)
    if patterns:
        return Stated(settings, _unfrozen(words, patterns), None, "unfrozen_parameters", notes)
    return Stated(settings, notes=notes)


def _settings(words: Words, *, has_patterns: bool) -> dict[str, Said]:
    micro, steps = words.whole("micro_batch_size", 1), words.whole("gradient_accumulation_steps")
    words.look_at("batch_size")  # the schema fills in an accumulation of 1 before it would count (schemas/training.py)
    settings = {
        "micro_batch": words.said("micro_batch_size", micro),
        "grad_accum": words.said("gradient_accumulation_steps", steps or 1),
        "seq": words.said("sequence_len", words.whole("sequence_len", 512)), "precision": _precision(words),
        "checkpointing": _checkpointing(words, has_patterns=has_patterns),
        **training_arguments.operators(words), **training_arguments.named(words, "optim", "optimizer"),
        **training_arguments.named(words, "model", "base_model"),
    }  # fmt: skip
    for key, attention in FLAGS.items():
        if words.switch(key):
            settings.setdefault("attention", Said(attention, key))
    return settings


def _precision(words: Words) -> Said:
    """bf16 where the card has it and the file does not say (utils/config/__init__.py, resolve_dtype)."""
    value, key = words("bf16"), "bf16"
    if value is None or str(value).lower() == AUTO:
        if value is None and (words.switch("fp16") or words.switch("float16")):
            return Said("fp16", "fp16" if words("fp16") else "float16")
        return words.said(key, AUTO)
    if value == "full" or words.switch("bf16"):
        return Said("bf16", key)
    if words.switch("bfloat16"):
        return Said("bf16", "bfloat16")
    if words.switch("fp16") or words.switch("float16"):
        return Said("fp16", "fp16")
    return Said("fp32", key)


def _checkpointing(words: Words, *, has_patterns: bool) -> Said:
    """Reentrant where nothing says otherwise (utils/config/__init__.py, normalize_config)."""
    key = "gradient_checkpointing"
    value = words(key)
    if isinstance(value, str) and value.startswith("offload"):
        raise words.refuse(key, "true or false: checkpoints that are offloaded are not planned")
    if not words.switch(key):
        return words.said(key, "none")
    more = words(f"{key}_kwargs")
    return Said(training_arguments.kind(more, reentrant=more is None and not has_patterns), key)


def _quantization(words: Words, adapter: str | None) -> tuple[Quantization | None, tuple[str, ...]]:
    """4 bit under qlora alone, 8 bit under lora alone (loaders/model.py, _set_quantization_config)."""
    four, eight = words.switch("load_in_4bit"), words.switch("load_in_8bit")
    more = words("bnb_config_kwargs")
    for key, said in (("load_in_4bit", four), ("load_in_8bit", eight)):
        if said and adapter is None:
            raise words.refuse(key, "an adapter beside it (axolotl refuses it: quantized weights do not train)")
    if adapter == QLORA:
        if eight:
            raise words.refuse("load_in_8bit", "false beside adapter qlora (axolotl refuses it)")
        if not four:
            raise words.refuse("adapter", "load_in_4bit: true beside it (axolotl refuses it)")
        return _four_bit(words, more if isinstance(more, dict) else {}), ()
    if eight:
        return Quantization(kind=INT8), ()
    unused = "load_in_4bit does nothing beside adapter lora: the weights stay in 16 bit (axolotl asks for qlora)"
    return None, (unused,) if four else ()


def _four_bit(words: Words, more: dict[str, Any]) -> Quantization:
    kind, double = more.get("bnb_4bit_quant_type", NF4), more.get("bnb_4bit_use_double_quant", True)
    storage = str(more.get("bnb_4bit_quant_storage", "bfloat16")).removeprefix("torch.")
    if kind not in (NF4, FP4) or not isinstance(double, bool) or storage not in STORAGES:
        raise words.refuse("bnb_config_kwargs", f"{NF4} or {FP4}, true or false, and {', '.join(STORAGES)}")
    return Quantization(kind=kind, double=double, storage=STORAGES[storage])


def _lora(words: Words) -> Trains:
    """The LoraConfig that loaders/adapter.py (_build_peft_lora_config) makes."""
    for key in ("lora_r", "lora_alpha"):
        if words(key) is None:
            raise SpecError(words.at(key), "nothing", "a number, which axolotl does not fill in", f"{key}: 16")
    rank, linear = words.rank("lora_r"), words.switch("lora_target_linear")
    targets = words.read("lora_target_modules", READERS["target_modules"], ())
    more = {
        "rank_pattern": "lora_rank_pattern", "alpha_pattern": "lora_alpha_pattern",
        "layers_to_transform": "peft_layers_to_transform", "layers_pattern": "peft_layers_pattern",
        "modules_to_save": "lora_modules_to_save", "exclude_modules": "lora_exclude_modules",
        "target_parameters": "lora_target_parameters",
    }  # fmt: skip
    fields = {
        field: words.read(key, READERS[field]) for field, key in more.items()
        if words(key) not in (None, [], {}) and field in READERS
    }  # fmt: skip
    unplanned = ["peft_trainable_token_indices", "peft_ensure_weight_tying"]
    unplanned += [key for field, key in more.items() if field not in READERS]
    words.refuse_any(dict.fromkeys(unplanned, "not planned"))
    if not targets and not linear and "target_parameters" not in fields:
        raise SpecError(words.at("lora_target_modules"), "nothing", "names of layers", "lora_target_linear: true")
    adapter = Adapter(
        r=rank, lora_alpha=words.number("lora_alpha"), lora_dropout=words.probability("lora_dropout"),
        use_dora=words.switch("peft_use_dora"), use_rslora=words.switch("peft_use_rslora"),
        autocast_adapter_dtype=words.switch("peft_autocast_adapter_dtype", True), **fields,
    )  # fmt: skip
    words.look_at("lora_fan_in_fan_out", "lora_model_dir", "peft")

    def trained(model: Model) -> Trained:
        words.refuse_earlier_adapter("lora_model_dir")
        names = targets
        if linear:
            own = (targets,) if isinstance(targets, str) else targets
            output = "embed_out" if model.family == "gpt_neox" else "lm_head"
            names = tuple(dict.fromkeys((*own, *linear_names(model, named=lambda name: name != output))))
        return Trained(adapter=adapter._replace(target_modules=names, task_type=_task(model)))

    return trained


def _task(model: Model) -> str:
    if "SequenceClassification" in model.architecture:
        return SEQ_CLS
    return TOKEN_CLS if "TokenClassification" in model.architecture else CAUSAL_LM


def _unfrozen(words: Words, patterns: tuple[str, ...]) -> Trains:
    """Parameters whose names begin as a pattern says train, all others do not (utils/freeze.py): a point stands for
    itself, and rows behind a name cut off gradients alone.
    """
    expressions = []
    for pattern in patterns:
        name = re.sub(r"^(.+)\[[0-9]*(?::[0-9]*)?\]$", r"\1", pattern)
        try:
            expressions.append(re.compile(re.sub(r"\.(?!\+)", r"\\.", name)))
        except re.error as error:
            place = words.at("unfrozen_parameters")
            raise SpecError(place, shown(pattern), f"a regular expression ({error})") from error

    def trained(model: Model) -> Trained:
        names = tuple(t.name for t in model.tensors if any(each.match(t.name) for each in expressions))
        if not names:
            raise words.refuse("unfrozen_parameters", f"names such as {model.tensors[0].name}: no parameter trains")
        return Trained(freeze=("*",), train=names)

    return trained
