"""Settings that training files share with transformers' TrainingArguments (transformers 5.24.0 training_args.py)."""

from __future__ import annotations

from typing import Any

from zeroplan.catalog.trainers.words import Said, Words

BATCH, STEPS = "per_device_train_batch_size", "gradient_accumulation_steps"
CHECKPOINTING = ("activation_checkpointing", "gradient_checkpointing")
"""The second is the older name; the first counts where both are there (training_args.py, __post_init__)."""
ATTENTIONS = ("eager", "sdpa", "flash_attention_2", "flash_attention_3")
HARMLESS = (
    "adam_*", "auto_find_*", "bf16_full_eval", "data_seed", "dataloader_*", "dataset*", "ddp_*", "deepspeed",
    "disable_tqdm", "do_*", "eval_*", "evaluation_strategy", "fp16_full_eval", "full_determinism", "greater_is_better",
    "hub_*", "ignore_data_skip", "include_*", "learning_rate", "length_column_name", "load_best_model_at_end",
    "local_rank", "log_*", "logging_*", "lr_*", "max_grad_norm", "max_steps", "metric_for_best_model", "model_revision",
    "num_train_epochs", "output_dir", "overwrite_*", "per_device_eval_*", "preprocessing_*", "project", "push_to_hub",
    "remove_unused_columns", "report_to", "resume_from_checkpoint", "run_name", "save_*", "seed", "tf32",
    "tokenizer_*", "trackio_*", "trust_remote_code", "wandb_*", "warmup_*", "weight_decay",
)  # fmt: skip
"""Patterns of keys that change no number of a step."""


def batch(words: Words) -> dict[str, Said]:
    """Micro-batch and accumulation."""
    return {
        "micro_batch": words.said(BATCH, words.whole(BATCH, 8)), "grad_accum": words.said(STEPS, words.whole(STEPS, 1)),
    }  # fmt: skip


def half(words: Words) -> Said | None:
    """The 16-bit type that the file asks for; None where it asks for none."""
    for key in ("fp16", "bf16"):
        if words.switch(key):
            return Said(key, key)
    return None


def checkpointing(words: Words, *, usual: bool = False, reentrant: bool = False) -> Said:
    """Which layers are checkpointed (transformers, trainer.py:train); `reentrant`: where the file does not say."""
    key = next((each for each in CHECKPOINTING if words(each) is not None), CHECKPOINTING[1])
    if not words.switch(key, usual):
        return words.said(key, "none")
    return words.said(key, kind(words(f"{key}_kwargs"), reentrant=reentrant))


def kind(more: Any, *, reentrant: bool) -> str:
    """The kind of checkpointing that its keyword arguments mean."""
    options = more if isinstance(more, dict) else {}
    every = options.get("every_n_layers", 1)
    which = f"every-{every}" if isinstance(every, int) and every > 1 else "full"
    said = options.get("use_reentrant")
    return which + "-reentrant" * bool(said if isinstance(said, bool) else reentrant)


def operators(words: Words, liger: str = "use_liger_kernel") -> dict[str, Said]:
    """Attention and kernels, where the file says them."""
    settings: dict[str, Said] = {}
    if (attention := words("attn_implementation")) in ATTENTIONS:
        settings["attention"] = Said(attention, "attn_implementation")
    if words.switch(liger):
        settings["kernels"] = Said("liger", liger)
    return settings


def named(words: Words, option: str, key: str) -> dict[str, Said]:
    """A text that the file has for an option."""
    value = words(key)
    return {option: Said(value, key)} if isinstance(value, str) else {}


def settings_of(words: Words) -> dict[str, Said]:
    """All that TrainingArguments say."""
    precision = half(words)
    return {
        **batch(words), **({"precision": precision} if precision else {}), "checkpointing": checkpointing(words),
        **operators(words), **named(words, "optim", "optim"), **named(words, "model", "model_name_or_path"),
    }  # fmt: skip
