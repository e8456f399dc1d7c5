"""JSON files that stand beside a config.json and are given in its place: each is named as what it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zeroplan.catalog.trainers.tools import TRAINER, tool_of
from zeroplan.errors import SpecError, shown

ADAPTER, ADAPTER_FILE = "peft_type", "adapter_config.json"
DEEPSPEED = frozenset({
    "zero_optimization", "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
    "zero_allow_untested_optimizer", "activation_checkpointing", "gradient_clipping",
})  # fmt: skip
KINDS: tuple[tuple[frozenset[str], str], ...] = (
    (frozenset({"log_history", "trial_params", "best_global_step"}), "the Trainer's state (trainer_state.json)"),
    (frozenset({"weight_map"}), "the index of a model's weight files"),
    (frozenset({"_diffusers_version", "_class_name"}), "a part of a diffusers pipeline"),
    (
        frozenset({"image_processor_type", "feature_extractor_type", "image_mean", "processor_class", "do_resize"}),
        "a preprocessor's settings (preprocessor_config.json)",
    ),
    (
        frozenset({"added_tokens_decoder", "tokenizer_class", "add_bos_token", "clean_up_tokenization_spaces",
                   "chat_template", "pre_tokenizer"}),
        "a tokenizer's settings (tokenizer_config.json or tokenizer.json)",
    ),
    (
        frozenset({"_from_model_config", "do_sample", "max_new_tokens", "temperature", "top_p", "max_length"}),
        "the settings of generation (generation_config.json)",
    ),
    (frozenset({"per_device_train_batch_size", "output_dir"}), "the arguments of a Trainer"),
)  # fmt: skip
"""Keys that one kind of file has, each on its own, and what that file is; none has a model_type."""


def check_is_model(content: Mapping[str, Any], place: str, expected: str) -> None:
    """Refuse a file that is no model's config.json and is known for what it is."""
    if ADAPTER in content:
        raise adapter(content, place)
    if content.get("model_type") is not None:
        return
    if content.keys() & DEEPSPEED:
        raise SpecError(place, "a DeepSpeed configuration", expected, f"--config {place} for that")
    tool = tool_of(content)
    if tool not in (None, TRAINER):
        raise SpecError(place, f"a training file of {tool}", expected, f"--config {place} for that")
    for keys, what in KINDS:
        if content.keys() & keys:
            raise SpecError(place, what, expected, "the config.json beside it")


def adapter(content: Mapping[str, Any], place: str) -> SpecError:
    """The error for a PEFT adapter, which names the model under it."""
    base = content.get("base_model_name_or_path")
    kind = shown(content[ADAPTER], 20).strip("'\"")
    named = f"--model {shown(base)[1:-1]} " if isinstance(base, str) and base else "--model config.json "
    return SpecError(place, f"a PEFT adapter ({kind})", "the model under it", f"{named}--adapter {place}")
