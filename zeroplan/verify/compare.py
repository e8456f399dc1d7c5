"""Predicted beside measured, line by line: what is held, what moves, and each phase's peak."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from zeroplan.costs.deepspeed.stage_3 import less_in_forward
from zeroplan.costs.memory import beside_token_ids
from zeroplan.costs.passes import alone, timeline_of
from zeroplan.ledger import FIRST, PHASES, Checked, Ledger, less_activations, total
from zeroplan.specs.checkpointing import DEEPSPEED
from zeroplan.specs.job import Job

NAMES = {
    "flat parameters": "parameters", "parameter partitions": "parameters",
    "frozen parameter partitions": "frozen parameters", "fp32 master": "master copy",
    "16-bit master copy": "master copy", "fp32 master copy": "master copy", "gradient partitions": "gradients",
    "step counters": "optimizer states", "norm scalars": "norm and flags", "overflow flag": "norm and flags",
    "fused optimizer's flag": "norm and flags",
    "engine.optimizer.torch_autocast_gradscaler._scale": "norm and flags",
    "engine.optimizer.torch_autocast_gradscaler._growth_tracker": "norm and flags",
    "engine.optimizer.backup_optimizer.param_groups.params": "placeholder",
    "gathered parameters": "emptied leaves",
    "persistent parameters, replaced in forward": "persistent parameters",
    "engine.basic_optimizer.state.sum": "optimizer states", "Muon's momentum": "optimizer states",
}  # fmt: skip
"""What the measurement and the ledger call the same thing."""
KEPT = "engine._modules.module."
"""How what a module keeps in an attribute is called (rope_deltas of Qwen's): it is planned among activations."""
MODEL = "model"
"""Who asked for a copy of sizes that a recorded model reads, which are not planned."""
NOT_PROMISED = 1e9
OF_LIBRARIES = 4096
"""Bytes that libraries keep on a card for themselves, in tensors that nothing else holds: tables, flags."""
PEAK = 0.01
"""Peaks are promised within this share of the measured bytes."""


def compare(job: Job, ledger: Ledger, measured: dict[str, Any]) -> list[Checked]:
    """One row for each line, collective and phase."""
    return [
        *_held(ledger, measured), *_host(ledger, measured), *_files(ledger, measured), *_traffic(job, ledger, measured),
        *_copies(job, ledger, measured), *_activations(job, measured), *_whole_peaks(job, ledger, measured),
        *_peaks(job, ledger, measured),
        *_first_step(job, ledger, measured), *_card(ledger, measured),
    ]  # fmt: skip


def _rows(group: str, unit: str, predicted: Counter[str], observed: Counter[str]) -> Iterator[Checked]:
    for name in sorted(predicted.keys() | observed.keys(), key=lambda name: -max(predicted[name], observed[name])):
        if predicted[name] or observed[name]:
            yield Checked(group, name, unit, predicted[name], observed[name], 0.0)


def _held(ledger: Ledger, measured: dict[str, Any]) -> Iterator[Checked]:
    predicted, observed = Counter[str](), Counter[str]()
    for line in ledger.gpu.resident:
        predicted[f"{NAMES.get(line.name, line.name)} {line.dtype}"] += line.bytes
    if measured["case"].get("mode") == "real":  # one memory, which the CPU accelerator calls the GPU's
        for line in ledger.host.resident:
            predicted[f"{NAMES.get(line.name, line.name)} {line.dtype}"] += line.symbols["size"]
    for entry in measured["held"]:
        if entry["tier"] == "gpu" and entry["kind"] != "inputs" and not entry["kind"].startswith(KEPT):
            kind = "optimizer states" if entry["kind"].startswith("optimizer state ") else entry["kind"]
            observed[f"{NAMES.get(kind, kind)} {entry['dtype']}"] += entry["bytes"]
    if "card" in measured:
        observed = Counter({name: size for name, size in observed.items() if name in predicted or size > OF_LIBRARIES})
    yield from _rows("held on the GPU", "bytes", predicted, observed)


def _host(ledger: Ledger, measured: dict[str, Any]) -> Iterator[Checked]:
    """One rank's, as it asked for them: rounding page-locked blocks up is the allocator's."""
    predicted, observed = Counter[str](), Counter[str]()
    if measured["case"].get("mode") == "real":
        return
    for line in ledger.host.resident:
        kind = "pageable" if line.rule.__name__ == "pageable_on_node" else "page-locked"
        predicted[f"{kind} {line.dtype}"] += line.symbols["size"]
    for entry in measured["held"]:
        if entry["tier"] != "gpu":
            kind = "pageable" if entry["tier"] == "host" else "page-locked"
            observed[f"{kind} {entry['dtype']}"] += entry["bytes"]
    yield from _rows("held on the host", "bytes", predicted, observed)


def _files(ledger: Ledger, measured: dict[str, Any]) -> Iterator[Checked]:
    """One rank's; gradients lie in the optimizer's folder."""
    predicted, observed = Counter[str](), Counter[str]()
    for line in ledger.nvme.resident:
        predicted["parameters" if line.name == "parameter files" else "optimizer"] += line.symbols["size"]
    for entry in measured["files"]:
        observed["optimizer" if entry["folder"] == "optimizer" else "parameters"] += entry["bytes"]
    yield from _rows("files on NVMe", "bytes", predicted, observed)


def _traffic(job: Job, ledger: Ledger, measured: dict[str, Any]) -> Iterator[Checked]:
    """Calls and bytes of a whole optimizer step."""
    if job.ranks == 1:
        return
    calls, size, made, sent = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    for transfer in ledger.traffic:
        times = transfer.times(job.strategy.micro_steps)
        name = _group(transfer.collective, transfer.dtype, transfer.ranks, job.ranks)
        calls[name] += times * transfer.calls
        size[name] += times * transfer.bytes
    for entry in measured["traffic"]:
        if entry["step"] == measured["case"]["steps"] and entry["collective"] != "barrier":
            name = _group(entry["collective"], entry["dtype"], entry["ranks"], job.ranks)
            made[name] += entry["calls"]
            sent[name] += entry["bytes"]
    yield from _rows("collectives of a step", "calls", calls, made)
    yield from _rows("collectives of a step", "bytes", size, sent)


def _group(collective: str, dtype: str, ranks: int, world: int) -> str:
    return f"{collective} {dtype}" if ranks == world else f"{collective} {dtype} of {ranks}"


def _copies(job: Job, ledger: Ledger, measured: dict[str, Any]) -> Iterator[Checked]:
    """One rank's between GPU, host and NVMe; with real tensors GPU and host are one."""
    predicted, observed = Counter[str](), Counter[str]()
    if measured["case"].get("mode") == "real":
        return
    last = measured["case"]["steps"]
    for copied in ledger.copies:
        predicted[f"{copied.source} to {copied.target}"] += copied.line.bytes
    reads = (MODEL,) if job.model.is_recorded and job.strategy.checkpointing != DEEPSPEED else ()
    ways = {"to_gpu": "host to gpu", "to_host": "gpu to host", "read": "nvme to host", "write": "host to nvme"}
    for entry in (*measured["pcie_traffic"], *measured["disk_traffic"]):
        if entry["step"] == last and entry.get("asked_by") not in reads:
            observed[ways[entry["way"]]] += entry["bytes"]
    yield from _rows("copies of a step", "bytes", predicted, observed)


def _activations(job: Job, measured: dict[str, Any]) -> Iterator[Checked]:
    """The model alone, without DeepSpeed: what forward saves for backward, and both peaks; that run casts nothing."""
    recorded = measured.get("activations")
    counted = alone(job) if recorded and not job.strategy.autocast else None
    if recorded and counted:
        for name, predicted in counted._asdict().items():
            yield Checked("activations", name.replace("_", " "), "bytes", predicted, recorded[name], 0.0)


def _whole_peaks(job: Job, ledger: Ledger, measured: dict[str, Any]) -> Iterator[Checked]:
    """Forward and backward, DeepSpeed and the model together, where GPU and host are told apart."""
    last, counted = measured["case"]["steps"], timeline_of(job) and not job.strategy.autocast
    if measured["case"].get("mode") == "real" or not counted:
        return
    for phase in ("forward", "backward"):
        peaks = [e["peak"]["gpu"] for e in measured["phases"] if e["phase"] == phase and e["step"] == last]
        predicted = total(ledger.gpu.worst(phase).lines)
        yield Checked("peaks", phase, "bytes", predicted, max(peaks), PEAK, _less(job, phase))


def _peaks(job: Job, ledger: Ledger, measured: dict[str, Any]) -> Iterator[Checked]:
    """The optimizer's step is the last micro-step's; other phases at their largest. On a card backward has a thread of
    its own, in which DeepSpeed's tensors are not told from the model's.
    """
    last = measured["case"]["steps"]
    if "card" in measured:
        return
    of_inputs = 8 * job.tokens + sum(each.bytes for each in beside_token_ids(job) if job.model.inputs)
    for phase in PHASES:
        peaks = [
            entry["peak"]["gpu_less_activations"]
            for entry in measured["phases"]
            if entry["phase"] == phase and entry["step"] in (0, last)
            and (phase != "step" or entry["micro"] == job.strategy.micro_steps)
        ]  # fmt: skip
        predicted = less_activations(ledger.gpu, phase) + (of_inputs if phase == "init" else 0)
        yield Checked("peaks less activations", phase, "bytes", predicted, max(peaks), PEAK, _less(job, phase))


def _less(job: Job, phase: str) -> int:
    return less_in_forward(job) if phase == "forward" else 0


def _first_step(job: Job, ledger: Ledger, measured: dict[str, Any]) -> Iterator[Checked]:
    """Forward and backward of the run's first optimizer step, or of the later ones where those need as much."""
    if "card" in measured:
        return
    for phase, first in zip(("forward", "backward"), FIRST, strict=True):
        peaks = [e["peak"]["gpu_less_activations"] for e in measured["phases"] if e["phase"] == phase]
        predicted = max(less_activations(ledger.gpu, name) for name in ledger.gpu.phases if name in (phase, first))
        less = _less(job, phase) if predicted == less_activations(ledger.gpu, phase) else 0
        yield Checked("peaks less activations", f"{phase}, any step", "bytes", predicted, max(peaks), PEAK, less)


def _card(ledger: Ledger, measured: dict[str, Any]) -> Iterator[Checked]:
    """A card's own numbers, with activations: cuBLAS's workspaces and rounding are in them, for which is no promise."""
    last = measured["case"]["steps"]
    if "card" not in measured:
        return
    for phase in PHASES:
        readings = [p["card"] for p in measured["phases"] if p["phase"] == phase and p["step"] in (0, last)]
        predicted = total(ledger.gpu.worst(phase).lines)
        for number, name in (("max_memory_allocated", "allocated"), ("max_memory_reserved", "reserved")):
            most = max(entry[number] for entry in readings)
            yield Checked(measured["card"]["name"], f"{phase}, {name}", "bytes", predicted, most, NOT_PROMISED)
