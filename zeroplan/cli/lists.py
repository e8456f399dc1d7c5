"""`zeroplan models`, `gpus` and `clusters`: the presets."""

from __future__ import annotations

from typing import Any

import typer

from zeroplan.catalog import hardware, presets
from zeroplan.catalog.models import from_preset
from zeroplan.specs.model import Model
from zeroplan.units import count, gib


def models(name: str | None, *, json: bool) -> int:
    """All model presets, or every tensor of one model (a preset, a config.json or org/name)."""
    if name is not None:
        return _tensors(name, json=json)
    rows = [_model_row(from_preset(preset)) for preset in presets.names("model")]
    return _listed("models", ["model", "family", "parameters", "layers", "hidden"], rows, json=json)


def gpus(*, json: bool) -> int:
    """All GPU presets."""
    rows = []
    for name in presets.names("GPU"):
        card = hardware.gpu(name)
        matmul = f"{card.sustained_matmul.value / 1e12:.0f} TFLOP/s" if card.sustained_matmul else ""
        rows.append({
            "gpu": name, "title": card.title, "memory": int(card.memory.value), "shown": gib(card.memory.value),
            "sustained matmul": matmul, "evidence": card.memory.evidence,
        })  # fmt: skip
    return _listed("gpus", ["gpu", "shown", "evidence", "sustained matmul", "title"], rows, json=json)


def clusters(*, json: bool) -> int:
    """All node presets."""
    rows = []
    for name in presets.names("cluster"):
        node = hardware.cluster(name)
        assert node.gpu is not None
        network = f"{node.inter_node.value / 1e9:.0f} GB/s" if node.inter_node else "-"
        rows.append({
            "cluster": name, "GPUs": f"{node.gpus_per_node} x {node.gpu.name}",
            "host memory": gib(node.host_memory) if node.host_memory else "-", "network": network,
            "host_memory": node.host_memory, "nvme": node.nvme,
        })  # fmt: skip
    return _listed("clusters", ["cluster", "GPUs", "host memory", "network"], rows, json=json)


def _model_row(model: Model) -> dict[str, Any]:
    shape = model.shape
    return {
        "model": model.name, "family": model.family, "parameters": count(model.parameters),
        "count": model.parameters, "layers": str(shape.layers), "hidden": str(shape.hidden),
    }  # fmt: skip


def _tensors(name: str, *, json: bool) -> int:
    from zeroplan.catalog.models import model

    found = model(name)
    if json:
        from zeroplan.report import machine

        tensors = [{"name": t.name, "shape": list(t.shape), "elements": t.elements} for t in found.tensors]
        typer.echo(machine.dumps({"command": "models", "model": machine.model_object(found), "tensors": tensors}))
        return 0
    from zeroplan.report import console

    grid = console.table(["tensor", "shape", "elements"])
    for tensor in found.tensors:
        grid.add_row(tensor.name, " × ".join(map(str, tensor.shape)), f"{tensor.elements:,}")
    console.show(
        console.heading(f"{found.name}: {found.parameters:,} trainable parameters in {len(found.tensors)} tensors"),
        grid, f"source: {found.source}",
    )  # fmt: skip
    return 0


def _listed(command: str, columns: list[str], rows: list[dict[str, Any]], *, json: bool) -> int:
    if json:
        from zeroplan.report import machine

        typer.echo(machine.dumps({"command": command, command: rows}))
        return 0
    from zeroplan.report import console

    grid = console.table(columns)
    if "title" in columns:
        grid.columns[-1].justify = "left"
        grid.columns[-1].no_wrap = False
    for row in rows:
        grid.add_row(*(str(row[column]) for column in columns))
    console.show(console.heading(f"{len(rows)} {command}"), grid)
    return 0
