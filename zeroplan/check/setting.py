"""Who reads the config, and what the file does not say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zeroplan.check.arguments import Arguments
from zeroplan.check.device_map import DeviceMap
from zeroplan.check.planned import Planned
from zeroplan.deepspeed.keys import KEYS
from zeroplan.deepspeed.keys.table import KeyTable
from zeroplan.deepspeed.values import AUTO
from zeroplan.deepspeed.versions import key_table
from zeroplan.sources import DEEPSPEED as VERSION

DEEPSPEED, TRAINER, ACCELERATE, LIGHTNING = READERS = ("deepspeed", "hf", "accelerate", "lightning")
ANY = ""
"""The reader of a config that a program names by an option or key of its own: nobody knows."""


@dataclass(frozen=True)
class Setting:
    """How `check` was asked."""

    reader: str = DEEPSPEED
    gpus: int | None = None
    """Ranks that share the batch; None: unknown, and nothing that depends on it is an error."""
    accelerator: str = "cuda"
    client_optimizer: bool | None = None
    """Whether the training script builds an optimizer; None: unknown."""
    version: str = VERSION
    version_is_stated: bool = False
    """By an option or the project's table: no requirement beside the file is looked for."""
    transformers: str | None = None
    """The version of transformers whose Trainer reads the config; None: the newest."""
    accelerate: str | None = None
    """The version of Accelerate, where it reads the config; None: the newest."""
    trl: str | None = None
    """The version of TRL that the project asks for, where it says one."""
    swift: str | None = None
    """The version of ms-swift, likewise."""
    llama_factory: str | None = None
    """The version of LLaMA-Factory, likewise."""
    openrlhf: str | None = None
    """The version of OpenRLHF, likewise."""
    upgrades_from: str | None = None
    """The version before, where what changes is looked for."""
    arguments: Arguments | None = None
    """TrainingArguments that go with the config; None: unknown."""
    tool: str = ""
    """The tool that hands the config to Accelerate in place of a script, where that is known."""
    precision: str | None = None
    """What the training script asks for (Accelerate's mixed_precision), fp32 for none; None: unknown."""
    mixed_precision: str | None = None
    """What `accelerate launch` is given, by an option or its file; None: nothing."""
    by_launcher: bool = False
    """The launcher of Accelerate hands the config on: it is filled in before the Trainer compares it."""
    optimizer: str | None = None
    """What the script builds, by the names that `--optimizer` takes; None: unknown."""
    planned: Planned | None = None
    """The model, card and host of the run; None: nothing was said of any."""
    accumulates: int | None = None
    """Micro-batches of a step that the script's own Accelerator asks for; None: unknown, or it builds none."""
    clips: str = ""
    """The norm to which the script's own Accelerator is to clip, as its call has it; empty where it clips nothing."""
    quantized_by: str = ""
    """How the weights are quantized that lie in the folder which the arguments name; empty where they are not."""
    device_map: DeviceMap | None = None
    """Where the training script places its model itself; None: nowhere, or unknown."""
    pipeline: bool = False
    """Whether the script builds DeepSpeed's PipelineModule of its model."""
    reader_is_known: bool = False
    """By the script that names the config: it is not guessed from what that says."""

    @property
    def table(self) -> KeyTable:
        """The keys of that version."""
        return key_table(self.version)

    @property
    def fills(self) -> bool:
        """Whether "auto" is replaced by numbers before DeepSpeed sees it."""
        return self.reader in (TRAINER, ACCELERATE)

    @property
    def trainer_arguments(self) -> Arguments | None:
        """TrainingArguments, where the Trainer reads the config."""
        return self.arguments if self.reader == TRAINER else None


def guessed(config: dict[str, Any]) -> str:
    """The Trainer where it would fill an "auto", else DeepSpeed itself."""
    return TRAINER if _has_filled_auto(config, "") else DEEPSPEED


def _has_filled_auto(section: dict[str, Any], prefix: str) -> bool:
    for name, value in section.items():
        known = KEYS.get(prefix + name)
        if value == AUTO and known is not None and known.auto:
            return True
        if isinstance(value, dict) and _has_filled_auto(value, f"{prefix}{name}."):
            return True
    return False
