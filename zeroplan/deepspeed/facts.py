"""What a ds_config.json says, or DeepSpeed takes where it says nothing: the words that the refusals are written in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zeroplan.deepspeed.keys import CURRENT, KEYS
from zeroplan.deepspeed.keys.optimizer_classes import optimizer_class
from zeroplan.deepspeed.keys.table import KeyTable
from zeroplan.deepspeed.values import AUTO, DTYPES, checked


@dataclass(frozen=True)
class Facts:
    """A config by canonical names (`zeroplan.deepspeed.names`)."""

    config: dict[str, Any]
    place: str
    table: KeyTable = CURRENT

    def section(self, path: str) -> dict[str, Any]:
        """The object at a dotted path; {} when there is none."""
        value: Any = self.config
        for part in path.split(".") if path else ():
            value = value.get(part) if isinstance(value, dict) else None
        return value if isinstance(value, dict) else {}

    def states(self, path: str) -> bool:
        """Whether the key is there, with null or without."""
        return path.rpartition(".")[2] in self.section(path.rpartition(".")[0])

    def stated(self, path: str) -> Any:
        """The value as it stands; None when absent."""
        return self.section(path.rpartition(".")[0]).get(path.rpartition(".")[2])

    def __call__(self, path: str) -> Any:
        """The value as DeepSpeed reads it or its default; "auto" where the Trainer fills it. Of a key that this version
        does not read, the newest's default.
        """
        known = self.table.keys.get(path)
        if known is None:
            return KEYS[path].default
        section = self.section(known.section)
        if section.get(known.name) == AUTO:
            return AUTO if known.auto else known.default
        return checked(section, known.section, known.name, self.place, known.default, table=self.table)

    @property
    def stage(self) -> int:
        return int(self("zero_optimization.stage"))

    @property
    def overlaps(self) -> bool:
        """zero_optimization.overlap_comm, by default at stage 3 only (runtime/zero/config.py:overlap_comm_valid)."""
        stated = self("zero_optimization.overlap_comm")
        return self.stage == 3 if stated is None else bool(stated)

    @property
    def offloads_optimizer(self) -> bool:
        return self.stage > 0 and self("zero_optimization.offload_optimizer.device") != "none"

    @property
    def optimizer(self) -> str:
        """optimizer.type in small letters; empty where the training script builds the optimizer."""
        named = self.stated("optimizer.type")
        return named.lower() if isinstance(named, str) else ""

    @property
    def builds_cpu_adam(self) -> bool:
        """Whether DeepSpeedCPUAdam runs, as far as this file decides (runtime/engine.py:2375-2402)."""
        torch_adam = self.stated("optimizer.params.torch_adam")
        return self.offloads_optimizer and self.optimizer in ("", "adam", "adamw") and not torch_adam

    @property
    def optimizer_class(self) -> str:
        """What optimizer.type becomes (`zeroplan.deepspeed.keys.optimizer_classes`); empty for a name of none."""
        named = self.stated("optimizer.type")
        params, offload = self.section("optimizer.params"), self.section("zero_optimization.offload_optimizer")
        if self.table.before("0.17.6") and self.optimizer == "muon":
            return "torch.Muon" if named == "Muon" else ""
        return "" if not isinstance(named, str) else optimizer_class(
            named, on_host=offload.get("device") in ("cpu", "nvme"), torch_adam=bool(params.get("torch_adam")),
            decoupled=bool(params.get("adam_w_mode", True)),
            zenflow=self.stated("zero_optimization.zenflow") is not None,
        )  # fmt: skip

    @property
    def dtype(self) -> str | None:
        """The model's dtype; None while the Trainer decides (runtime/engine.py:get_data_types)."""
        fp16, bf16 = self("fp16.enabled"), self("bf16.enabled")
        if AUTO in (fp16, bf16) and True not in (fp16, bf16):
            return None
        return "fp16" if fp16 is True else "bf16" if bf16 is True else "fp32"

    def stated_dtype(self, path: str) -> str | None:
        """The dtype at a path, in its short spelling; None when absent, null or unknown."""
        stated = self.stated(path)
        return DTYPES.get(stated) if isinstance(stated, str) else None
