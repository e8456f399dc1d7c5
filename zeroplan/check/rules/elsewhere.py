"""Where an unknown key was meant to stand, and what its name was meant to be."""

from __future__ import annotations

import difflib

from zeroplan.check.subject import Entry
from zeroplan.deepspeed.keys import KEYS, children

TRAINER_ARGUMENTS = frozenset({
    "gradient_checkpointing", "flash_attention", "use_flash_attention", "learning_rate", "lr", "num_train_epochs",
    "epochs", "max_steps", "max_grad_norm", "weight_decay", "warmup_steps", "warmup_ratio", "lr_scheduler_type",
    "per_device_train_batch_size", "per_device_eval_batch_size", "output_dir", "save_steps", "save_strategy",
    "eval_steps", "logging_steps", "seed", "tf32", "dataloader_num_workers", "report_to", "deepspeed", "torch_compile",
    "max_seq_length", "mixed_precision", "num_processes", "zero3_init_flag", "zero_stage", "model_name_or_path",
})  # fmt: skip
"""What people mistake for keys of DeepSpeed: transformers' TrainingArguments, accelerate's plugin, scripts' options."""
LIKELY = 0.75
COMMON = frozenset({
    "enabled", "type", "params", "seed", "dtype", "mode", "profile", "verbose", "project", "team", "group", "device",
    "pipeline",
})  # fmt: skip
"""Names of several sections, or of everyday words: no hint of where one belongs."""


_HOMES: dict[str, list[str]] = {}
for _known in KEYS.values():
    for _name in {_known.name, *_known.aliases} - COMMON:
        _HOMES.setdefault(_name, []).append(_known.path)


def at_home(name: str) -> tuple[str, ...]:
    """Paths of the table that end in this name, in its own or another spelling."""
    return tuple(_HOMES.get(name, ()))


def likely(entry: Entry) -> str:
    """The key of the same section that a name most likely meant; empty when none is near."""
    names = [name for known in children(entry.section) for name in (known.name, *known.aliases)]
    return (difflib.get_close_matches(entry.name.lower(), names, n=1, cutoff=LIKELY) or [""])[0]
