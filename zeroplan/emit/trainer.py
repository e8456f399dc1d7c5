"""TrainingArguments of transformers 5.23 that go with a ds_config.json for the Trainer."""

from __future__ import annotations

import json
from typing import Any

from zeroplan.specs.checkpointing import Recomputing
from zeroplan.specs.job import Job
from zeroplan.specs.target import HF, is_told

NAMES = {
    "optimizer": {"lr": "learning_rate", "eps": "adam_epsilon", "weight_decay": "weight_decay"},
    "scheduler": {
        "warmup_max_lr": "learning_rate",
        "warmup_num_steps": "warmup_steps",
        "total_num_steps": "max_steps",
    },
}


def training_arguments(job: Job, given: dict[str, Any] | None = None) -> dict[str, Any]:
    """What must stand in TrainingArguments for `"auto"` to mean this plan.

    The Trainer also stops where its own value differs from one that the config states (transformers
    integrations/deepspeed.py, fill_match), so those are repeated.
    """
    strategy = job.strategy
    arguments: dict[str, Any] = {
        "per_device_train_batch_size": strategy.micro_batch,
        "gradient_accumulation_steps": strategy.grad_accum,
        "max_grad_norm": strategy.gradient_clipping,
    }
    if strategy.precision != "fp32":
        arguments["fp16" if strategy.precision == "fp16" else "bf16"] = True
    if strategy.recomputing.every and is_told(HF, strategy.checkpointing):  # else it would replace what the script does
        arguments["gradient_checkpointing"] = True
        if words := checkpointing_words(strategy.recomputing):
            arguments["gradient_checkpointing_kwargs"] = words
    if not strategy.has_optimizer_section:
        arguments["optim"] = strategy.trainer_optim
    if strategy.weight_decay:
        arguments["weight_decay"] = strategy.weight_decay
    if strategy.kernels != "transformers":
        arguments["use_liger_kernel"] = True
    if strategy.backend == "cpu":
        arguments["use_cpu"] = True
    if strategy.kernels == "liger-loss":
        arguments["liger_kernel_config"] = dict.fromkeys(("rope", "rms_norm", "swiglu", "geglu"), False)
    return arguments | (_repeated(given) if given else {})


def checkpointing_words(recomputing: Recomputing) -> dict[str, Any]:
    """gradient_checkpointing_kwargs, where they differ from what transformers does unasked."""
    words: dict[str, Any] = {"every_n_layers": recomputing.every} if recomputing.every > 1 else {}
    return words | ({"use_reentrant": True} if recomputing.reentrant else {})


def arguments_file(arguments: dict[str, Any], config: str) -> str:
    """As `HfArgumentParser.parse_json_file` reads them."""
    return json.dumps({**arguments, "deepspeed": config}, indent=2) + "\n"


def words(arguments: dict[str, Any]) -> list[str]:
    """The same as `HfArgumentParser` reads them from a command line: each name, and after it its value."""
    return [
        text for name, value in arguments.items()
        for text in (f"--{name}", json.dumps(value) if isinstance(value, dict) else str(value))
    ]  # fmt: skip


def _repeated(given: dict[str, Any]) -> dict[str, Any]:
    """What a config states of the optimizer and the scheduler, as TrainingArguments names it."""
    from zeroplan.deepspeed.names import canonical  # the table of all keys: only a given config needs it
    from zeroplan.deepspeed.values import AUTO

    given = canonical(given)
    arguments: dict[str, Any] = {}
    for section, names in NAMES.items():
        params = (given.get(section) or {}).get("params") or {}
        for key, name in names.items():
            if params.get(key, AUTO) != AUTO:
                arguments[name] = params[key]
    betas = ((given.get("optimizer") or {}).get("params") or {}).get("betas", AUTO)
    if betas != AUTO:
        arguments["adam_beta1"], arguments["adam_beta2"] = betas
    return arguments
