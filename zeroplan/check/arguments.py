"""TrainingArguments of transformers 5.23, as a JSON or YAML file states them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zeroplan.check.document import Document
from zeroplan.check.json_reader import NotReadableError, read_json
from zeroplan.errors import SpecError

EXPECTED = "TrainingArguments"
DEFAULTS: dict[str, Any] = {
    "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "max_grad_norm": 1.0, "learning_rate": 5e-5,
    "adam_beta1": 0.9, "adam_beta2": 0.999, "adam_epsilon": 1e-8, "weight_decay": 0.0, "warmup_steps": 0,
    "max_steps": -1, "fp16": False, "bf16": False, "fp16_full_eval": False, "bf16_full_eval": False,
    "optim": "adamw_torch_fused", "load_best_model_at_end": False, "gradient_checkpointing": False,
}  # fmt: skip
"""What transformers takes where nothing is stated (training_args.py), of what bears on a ds_config.json."""
YAML = (".yaml", ".yml")


@dataclass(frozen=True)
class Arguments:
    """A file of TrainingArguments; keys of anything else in it are not looked at."""

    document: Document

    def stated(self, name: str) -> Any:
        """None where the file says nothing."""
        return self.document.config.get(name)

    def __call__(self, name: str) -> Any:
        """As the Trainer has it: texts that YAML leaves of numbers such as 1e-4 are taken for the numbers meant."""
        value = self.stated(name)
        if value is None:
            return DEFAULTS[name]
        if isinstance(value, str) and isinstance(DEFAULTS[name], float | int):
            try:
                return float(value)
            except ValueError:
                return value
        return value

    def place(self, name: str) -> str:
        """Where a message points to."""
        member = self.document.members.get((name,))
        if member is None:
            return f"the default of {name}"
        return f"{self.document.name}:{self.document.place(member.start).line}"


def read_arguments(name: str, text: str) -> Arguments:
    """Raises `SpecError` for a file that is neither JSON nor YAML, or no object."""
    if name.endswith(YAML):
        from zeroplan.check.yaml_reader import read_yaml

        return Arguments(read_yaml(name, text, EXPECTED))
    try:
        return Arguments(read_json(name, text))
    except NotReadableError as error:
        line = text.count("\n", 0, error.offset) + 1
        raise SpecError(f"{name}:{line}", f"text that is not JSON ({error})", EXPECTED) from error
