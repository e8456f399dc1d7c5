"""Which tool a training file is of, told by its keys."""

from __future__ import annotations

from collections.abc import Iterable

LLAMA_FACTORY, AXOLOTL, TRL = "LLaMA-Factory", "axolotl", "TRL"
TRAINER = "transformers' TrainingArguments"
LLAMA_FACTORY_1, SWIFT, OPEN_INSTRUCT = "LLaMA-Factory v1", "ms-swift", "open-instruct"
UNREAD = (LLAMA_FACTORY_1, OPEN_INSTRUCT)
"""Tools whose files are known, and not read."""

NOT_TRAINING = frozenset({
    "compute_environment", "distributed_type", "zero_optimization", "train_micro_batch_size_per_gpu",
})  # fmt: skip
"""Keys of Accelerate's own config and of a ds_config.json."""
OF_AXOLOTL = frozenset({
    "sequence_len", "micro_batch_size", "adapter", "num_epochs", "sample_packing", "val_set_size", "load_in_4bit",
    "load_in_8bit",
})  # fmt: skip
OF_LLAMA_FACTORY = frozenset({
    "finetuning_type", "cutoff_len", "lora_target", "additional_target", "quantization_bit", "freeze_trainable_layers",
    "freeze_trainable_modules", "freeze_extra_modules", "pure_bf16", "dataset_dir",
})  # fmt: skip
OF_TRL = frozenset({
    "use_peft", "lora_r", "lora_target_modules", "lora_task_type", "load_in_4bit", "load_in_8bit", "dataset_mixture",
    "dataset_mixer", "dataset_name", "max_length", "max_seq_length", "max_completion_length",
})  # fmt: skip
OF_TRL_ALONE = frozenset({"use_peft", "lora_r", "lora_target_modules", "dataset_mixture", "dataset_mixer"})
"""Those of TRL's and of the alignment handbook's that no example of transformers has."""
OF_EXAMPLES = frozenset({
    "block_size", "dataset_config_name", "line_by_line", "max_source_length", "max_target_length", "mlm_probability",
    "pad_to_max_length", "preprocessing_num_workers", "validation_split_percentage",
})  # fmt: skip
"""Arguments of transformers' own example scripts, which take dataset_name and max_seq_length as TRL's do."""
OF_SWIFT = frozenset({
    "attn_impl", "freeze_aligner", "freeze_llm", "freeze_vit", "lazy_tokenize", "padding_free", "quant_bits",
    "quant_method", "split_dataset_ratio", "truncation_strategy", "vit_lr",
})  # fmt: skip

RULES: tuple[tuple[frozenset[str], frozenset[str], str], ...] = (
    (frozenset({"base_model"}), OF_AXOLOTL, AXOLOTL),
    (frozenset({"model"}), frozenset({"peft_config", "dist_config", "model_class"}), LLAMA_FACTORY_1),
    (frozenset(), frozenset({"tuner_type", "train_type", "sft_type"}), SWIFT),
    (frozenset({"model"}), OF_SWIFT, SWIFT),
    (frozenset({"model_type"}), frozenset({"template_type", "model_id_or_path"}), SWIFT),
    (frozenset(), frozenset({"use_lora", "use_qlora"}), OPEN_INSTRUCT),
    (frozenset({"model_name_or_path"}), OF_LLAMA_FACTORY, LLAMA_FACTORY),
    (frozenset(), frozenset({"finetuning_type"}), LLAMA_FACTORY),
    (frozenset({"model_name_or_path"}), OF_TRL_ALONE, TRL),
    (frozenset({"output_dir"}), OF_EXAMPLES, TRAINER),
    (frozenset({"model_name_or_path"}), OF_TRL, TRL),
    (frozenset({"output_dir"}), frozenset({"per_device_train_batch_size", "num_train_epochs"}), TRAINER),
)
"""Keys that a file has, others of which it has one, and the tool."""


def tool_of(keys: Iterable[str]) -> str | None:
    """The tool that reads a file of these keys; None for what is no training file. The first rule that holds counts:
    several words, such as lora_r and load_in_4bit, are those of more than one tool.
    """
    names = set(keys)
    if names & NOT_TRAINING:
        return None
    return next((tool for has, one_of, tool in RULES if has <= names and names & one_of), None)
