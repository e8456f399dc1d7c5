"""What a key of zero_optimization, its offload sections or aio costs for a model: the ledger under several values."""

from __future__ import annotations

from typing import Any, NamedTuple

from zeroplan.costs.deepspeed.fetch import with_room
from zeroplan.costs.ledger import ledger
from zeroplan.deepspeed.keys.key import Key
from zeroplan.deepspeed.read import read_config
from zeroplan.errors import ZeroplanError
from zeroplan.ledger import PHASES, Ledger, less_activations, total
from zeroplan.specs.job import Job

CPU = {"device": "cpu"}
NVME = {"device": "nvme", "nvme_path": "/local_nvme"}
ON_NVME = ("buffer_count", "buffer_size", "max_in_cpu", "nvme_path", "pipeline_read", "pipeline_write")
SURROUNDINGS: dict[str, dict[str, Any]] = {
    **dict.fromkeys(ON_NVME, NVME),
    **dict.fromkeys(("pin_memory", "ratio"), CPU),
}
"""What an offload section must say for its other keys to do something."""
SECTIONS = ("zero_optimization", "zero_optimization.offload_optimizer", "zero_optimization.offload_param", "aio")
PERSISTENCE = (0, 1_000_000, 1_000_000_000)

UNCOUNTED = frozenset({
    "zero_quantized_nontrainable_weights", "enable_sanity_checks",
    "save_muon_momentum_buffer_in_memory", "super_offload",
    "pipeline_loading_checkpoint", "stage3_gather_16bit_weights_on_model_save",
    "stage3_gather_fp16_weights_on_model_save", "pipeline_read", "pipeline_write",
})  # fmt: skip
"""Keys that move bytes which the ledger does not count yet, while training or while saving."""


class KeyCostRow(NamedTuple):
    """One value of a key, and what the job then holds and moves; or why DeepSpeed stops."""

    stage: int
    value: Any
    ledger: Ledger | None
    refused: str = ""
    job: Job | None = None
    """The job that holds and moves so much."""


def costs(job: Job, known: Key) -> list[KeyCostRow]:
    """The job under other values of the key, at a stage where they differ if there is one."""
    values = _values(job, known)
    if known.section not in SECTIONS or not known.stages or len(values) < 2:
        return []
    stages = sorted(known.stages, key=lambda stage: (stage != job.strategy.stage, -stage))
    tried = ([_row(job, known, stage, value) for value in values] for stage in stages)
    first = next(tried)
    return first if differ(first) else next((rows for rows in tried if differ(rows)), first)


def differ(rows: list[KeyCostRow]) -> bool:
    """Whether the values hold or move different amounts."""
    return len({_sums(row.ledger) for row in rows if row.ledger is not None}) > 1


def _sums(counted: Ledger) -> tuple[int, ...]:
    """All that a key may change."""
    held = [total(tier.resident) for tier in (counted.gpu, counted.host, counted.nvme)]
    moved = [number for t in counted.traffic for number in (t.calls, t.bytes)]
    moved += [entry.line.bytes for entry in counted.copies]
    return (*held, *(less_activations(counted.gpu, phase) for phase in PHASES), *moved)


def _row(job: Job, known: Key, stage: int, value: Any) -> KeyCostRow:
    try:
        fields = read_config(_config(known, stage, value), "this value").fields
        kept = {name: fields[name] for name in fields if name not in ("precision", "optimizer")}
        changed = job.at(**kept)
        roomy = changed if known.name == "buffer_size" else with_room(changed)
        return KeyCostRow(stage, value, ledger(roomy), job=roomy)
    except ZeroplanError as error:
        return KeyCostRow(stage, value, None, str(error).partition(";")[0])


def _config(known: Key, stage: int, value: Any) -> dict[str, Any]:
    """The smallest ds_config.json in which the key does something."""
    zero: dict[str, Any] = {"stage": stage}
    if known.section == "aio":
        zero |= {"offload_optimizer": NVME, "offload_param": NVME}
        return {"zero_optimization": zero, "aio": {known.name: value}}
    if known.section == "zero_optimization":
        return {"zero_optimization": zero | {known.name: value}}
    section = {**SURROUNDINGS.get(known.name, {}), known.name: value}
    if known.name == "device" and value == "nvme":
        section = NVME
    if known.name == "ratio":
        zero["sub_group_size"] = 100_000_000  # one sub-group cannot be divided
    return {"zero_optimization": zero | {known.section.rpartition(".")[2]: section}}


def _values(job: Job, known: Key) -> list[Any]:
    """Values worth comparing, the default among them."""
    shared = [size for size in sorted({1, 2, job.cluster.gpus_per_node}) if job.ranks % size == 0]
    chosen: dict[str, list[Any]] = {
        "stage3_model_persistence_threshold": list(PERSISTENCE), "ratio": [0.5, 1.0], "zero_hpz_partition_size": shared,
    }  # fmt: skip
    if known.choices:
        return list(known.choices)
    if known.name in chosen:
        return list(chosen[known.name])
    if known.kind.startswith("boolean"):
        return [False, True]
    if known.kind == "integer" and isinstance(known.default, int):
        tried = {0, known.default // 10, known.default, known.default * 10}
        least = 1 if known.section == "aio" or known.name == "buffer_count" else known.minimum or 0
        return sorted(value for value in tried if value >= least)
    return []
