"""TrainingArguments of transformers 5.24, as a JSON or YAML file states them, or a training file of another tool."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from zeroplan.catalog.trainers.tools import AXOLOTL, LLAMA_FACTORY, SWIFT, TRAINER, TRL, tool_of
from zeroplan.check.document import Document
from zeroplan.check.interpolated import is_interpolated
from zeroplan.check.json_reader import NotReadableError, read_json
from zeroplan.errors import SpecError

if TYPE_CHECKING:
    from zeroplan.catalog.trainers.file import TrainerFile
    from zeroplan.check.script_job import ScriptJob

EXPECTED = "TrainingArguments"
DEFAULTS: dict[str, Any] = {
    "per_device_train_batch_size": 8, "gradient_accumulation_steps": 1, "max_grad_norm": 1.0, "learning_rate": 5e-5,
    "adam_beta1": 0.9, "adam_beta2": 0.999, "adam_epsilon": 1e-8, "weight_decay": 0.0, "warmup_steps": 0,
    "max_steps": -1, "fp16": False, "bf16": False, "fp16_full_eval": False, "bf16_full_eval": False,
    "optim": "adamw_torch_fused", "load_best_model_at_end": False, "gradient_checkpointing": False,
    "save_only_model": False, "auto_find_batch_size": False,
}  # fmt: skip
"""What transformers takes where nothing is stated (training_args.py), of what bears on a ds_config.json."""
OTHER_DEFAULTS: dict[str, dict[str, Any]] = {
    AXOLOTL: {"per_device_train_batch_size": 1, "bf16": True, "learning_rate": None, "optim": "adamw_torch_fused"},
    LLAMA_FACTORY: {"gradient_checkpointing": True},
    TRL: {"bf16": True, "gradient_checkpointing": True, "learning_rate": None},
    SWIFT: {"per_device_train_batch_size": 1, "gradient_accumulation_steps": None, "learning_rate": None,
            "weight_decay": 0.1, "adam_beta2": None, "bf16": None, "fp16": None, "warmup_steps": None,
            "gradient_checkpointing": True},
}
"""What other tools take in their place; None: what the file does not tell. ms-swift's follow torch_dtype, how the model
is trained and the release (swift/trainers/arguments.py of 3.8).
"""
OTHER_NAMES = {
    AXOLOTL: {
        "per_device_train_batch_size": "micro_batch_size", "optim": "optimizer", "lr_scheduler_type": "lr_scheduler",
    },
}  # fmt: skip
"""What other tools call them."""
TRAINER_ARGUMENTS = frozenset({
    "gradient_checkpointing", "flash_attention", "use_flash_attention", "learning_rate", "lr", "num_train_epochs",
    "epochs", "max_steps", "max_grad_norm", "weight_decay", "warmup_steps", "warmup_ratio", "lr_scheduler_type",
    "per_device_train_batch_size", "per_device_eval_batch_size", "output_dir", "save_steps", "save_strategy",
    "eval_steps", "logging_steps", "seed", "tf32", "dataloader_num_workers", "report_to", "deepspeed", "torch_compile",
    "max_seq_length", "mixed_precision", "num_processes", "zero3_init_flag", "zero_stage", "model_name_or_path",
})  # fmt: skip
"""What people mistake for keys of DeepSpeed: transformers' TrainingArguments, accelerate's plugin, scripts' options."""
OWN = frozenset({
    "per_device_train_batch_size", "per_device_eval_batch_size", "num_train_epochs", "output_dir", "save_strategy",
    "save_steps", "eval_strategy", "logging_steps", "lr_scheduler_type", "warmup_ratio", "report_to", "max_grad_norm",
    "adam_beta1", "adam_beta2", "adam_epsilon", "bf16_full_eval", "fp16_full_eval", "load_best_model_at_end",
    "gradient_checkpointing", "optim", "dataloader_num_workers",
})  # fmt: skip
"""Names that hardly any other framework's file has at its top level."""
SWITCHES = ("bf16", "fp16")
"""On or off there, and sections of a ds_config."""
OF_GAUDI = ("use_habana", "gaudi_config_name")
"""Names that GaudiTrainingArguments have beside the Trainer's (optimum-habana 1.20 transformers/training_args.py)."""
YAML = (".yaml", ".yml")


def has_own(config: Mapping[str, Any]) -> bool:
    """Whether arguments of the Trainer stand among these keys."""
    return bool(config.keys() & OWN) or any(isinstance(config.get(name), bool) for name in SWITCHES)


@dataclass(frozen=True)
class Arguments:
    """A file of TrainingArguments; keys of anything else in it are not looked at."""

    document: Document
    command_of: str = ""
    """The tool whose command takes these arguments, where that is known: its keys tell else."""
    job: ScriptJob | None = None
    """What the script that is given them is given beside; None for a file."""
    has_reference: bool = False
    """Whether the trainer that takes them has a reference model beside the one that trains."""
    command_line: Arguments | None = None
    """Those of the command line that names this file, which take the place of its own (trl 1.16 TrlParser)."""

    @cached_property
    def tool(self) -> str:
        """Whose training file it is: the Trainer's own where its keys do not tell."""
        return self.command_of or tool_of(self.document.config) or TRAINER

    @property
    def of_other_tool(self) -> bool:
        return self.tool != TRAINER

    @property
    def of_gaudi(self) -> bool:
        """Whether GaudiTrainingArguments take them, which compare no fp16 or bf16 with it (optimum-habana 1.16
        and 1.20 transformers/integrations/deepspeed.py), and whose package asks for a transformers before 5.
        """
        return any(name in self.document.config for name in OF_GAUDI)

    @cached_property
    def file(self) -> TrainerFile | None:
        """What it says of a job; None where its tool is not read. Raises `SpecError` for what is not planned."""
        from zeroplan.catalog.trainers.file import read_as, read_trainer_file  # where a job is planned

        content, place = self.document.config, self.document.name
        if self.job is None:
            return read_trainer_file({**content, **self._typed}, place, TRAINER)
        usual = {name: value for name, value in OTHER_DEFAULTS.get(self.tool, {}).items() if value is not None}
        return read_as(TRAINER, {**usual, **content}, place)

    def stated(self, name: str) -> Any:
        """None where the file says nothing, or what another file decides."""
        typed = None if self.command_line is None else self.command_line.stated(name)
        own = self.document.config.get(self.spelled(name)) if typed is None else typed
        return None if is_interpolated(own) else own

    @property
    def _typed(self) -> dict[str, Any]:
        """What the command line says in place of the file. Raises `SpecError` where it says what trains."""
        if self.command_line is None or self.command_line.job is None:
            return {}
        job = self.command_line.job
        if job.hindrance:
            both = f"{job.hindrance}, beside {self.document.name}"
            raise SpecError(self.command_line.document.name, both, "it in the file", "--model and --lora")
        taken = {one.option.lstrip("-"): one.value for one in (job.model, job.seq) if one and one.place}
        return self.command_line.document.config | taken

    def spelled(self, name: str) -> str:
        """An argument as the file's tool calls it."""
        return OTHER_NAMES.get(self.tool, {}).get(name, name)

    def __call__(self, name: str) -> Any:
        """As the Trainer has it: texts that YAML leaves of numbers such as 1e-4 are taken for the numbers meant."""
        value = self.stated(name)
        if value is None:
            return None if is_interpolated(self.document.config.get(self.spelled(name))) else self._default(name)
        if name == "bf16" and value == "auto":  # axolotl's
            return True
        if isinstance(value, str) and isinstance(DEFAULTS[name], float | int):
            try:
                return float(value)
            except ValueError:
                return value
        return value

    def _default(self, name: str) -> Any:
        usual = OTHER_DEFAULTS.get(self.tool, {}).get(name, DEFAULTS[name])
        if name == "bf16" and name in OTHER_DEFAULTS.get(self.tool, {}):
            return usual and self.stated("fp16") is not True
        return usual

    def place(self, name: str) -> str:
        """Where a message points to."""
        if self.command_line is not None and self.command_line.stated(name) is not None:
            return self.command_line.place(name)
        member = self.document.members.get((self.spelled(name),))
        if member is None:
            return f"the default of {self.spelled(name)}"
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
