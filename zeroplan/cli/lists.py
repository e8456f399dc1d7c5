"""`zeroplan models`, `gpus` and `clusters`: the presets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import click

from zeroplan.catalog import hardware, presets
from zeroplan.catalog.models import from_preset
from zeroplan.catalog.presets import RECORDED
from zeroplan.specs.cluster import Cluster, Gpu, SourcedValue
from zeroplan.specs.images import Images
from zeroplan.units import count, gib

if TYPE_CHECKING:
    from zeroplan.schema.json_object import JsonDocument
    from zeroplan.schema.presets import ClusterPreset, GpuPreset


def models(name: str | None, *, json: bool) -> int:
    """All model presets, or every tensor of one model (a preset, a config.json or org/name)."""
    if name is not None:
        return _tensors(name, json=json)
    rows = [_described(name) for name in presets.names("model")] + [_recorded(name) for name in presets.names(RECORDED)]
    if json:
        from zeroplan.schema.presets import ModelPreset, ModelPresets

        return _dumped(ModelPresets(models=[
            ModelPreset(model=one.name, family=one.family, parameters=one.parameters, layers=one.layers,
                        hidden=one.hidden, images=one.images) for one in rows
        ]))  # fmt: skip
    return _listed("models", ["model", "family", "parameters", "layers", "hidden", "images"], [
        (one.name, one.family, count(one.parameters), str(one.layers), str(one.hidden),
         one.images.short if one.images else "") for one in rows
    ])  # fmt: skip


class Row(NamedTuple):
    """A model preset."""

    name: str
    family: str
    parameters: int
    layers: int
    hidden: int
    images: Images | None = None


def _described(name: str) -> Row:
    model = from_preset(name)
    return Row(model.name, model.family, model.parameters, model.shape.layers, model.shape.hidden)


def _recorded(name: str) -> Row:
    """As its preset says: a recording takes longer to read."""
    _name, content = presets.load(RECORDED, name)
    images = Images(**content["images"]) if content["images"] else None
    parameters, layers, hidden = (content[key] for key in ("parameters", "layers", "hidden"))
    return Row(name, content["config"]["model_type"], parameters, layers, hidden, images)


def gpus(*, json: bool) -> int:
    """All GPU presets."""
    cards = [hardware.gpu(name) for name in presets.names("GPU")]
    if json:
        from zeroplan.schema.presets import Gpus

        return _dumped(Gpus(gpus=[_card(one) for one in cards]))
    return _listed("gpus", ["gpu", "shown", "evidence", "sustained matmul", "title"], [
        (one.name, gib(one.memory.value), one.memory.evidence, _teraflops(one.sustained_matmul), one.title)
        for one in cards
    ])  # fmt: skip


def clusters(*, json: bool) -> int:
    """All node presets."""
    nodes = [hardware.cluster(name) for name in presets.names("cluster")]
    if json:
        from zeroplan.schema.presets import Clusters

        return _dumped(Clusters(clusters=[_node(one) for one in nodes]))
    return _listed("clusters", ["cluster", "GPUs", "host memory", "network"], [
        (one.name, f"{one.gpus_per_node} x {one.gpu.name if one.gpu else '-'}",
         gib(one.host_memory) if one.host_memory else "-",
         f"{one.inter_node.value / 1e9:.0f} GB/s" if one.inter_node else "-")
        for one in nodes
    ])  # fmt: skip


def _card(card: Gpu) -> GpuPreset:
    """Numbers alone; the key has their unit."""
    from zeroplan.schema.presets import GpuPreset

    return GpuPreset(
        gpu=card.name,
        title=card.title,
        memory_bytes=int(card.memory.value),
        evidence=card.memory.evidence,
        memory_class_gb=card.memory_class,
        context_bytes=int(card.context.value) if card.context else None,
        memory_bandwidth_bytes_per_s=_value(card.memory_bandwidth),
        link_bytes_per_s=_value(card.link),
        host_link_bytes_per_s=_value(card.host_link),
        sustained_matmul_flops_per_s=_value(card.sustained_matmul),
        peak_flops_per_s={precision: figure.value for precision, figure in card.peak.items()},
        compute_capability=_value(card.compute_capability),
        usual_node=card.usual_node or None,
    )


def _node(node: Cluster) -> ClusterPreset:
    from zeroplan.schema.presets import ClusterPreset

    return ClusterPreset(
        cluster=node.name,
        gpu=node.gpu.name if node.gpu else None,
        gpus_per_node=node.gpus_per_node,
        host_memory_bytes=node.host_memory,
        nvme_bytes=node.nvme,
        intra_node_bytes_per_s=_value(node.intra_node),
        inter_node_bytes_per_s=_value(node.inter_node),
        nvme_read_bytes_per_s=_value(node.nvme_read),
        nvme_write_bytes_per_s=_value(node.nvme_write),
    )


def _value(figure: SourcedValue | None) -> float | None:
    return figure.value if figure else None


def _teraflops(figure: SourcedValue | None) -> str:
    return f"{figure.value / 1e12:.0f} TFLOP/s" if figure else ""


def _tensors(name: str, *, json: bool) -> int:
    from zeroplan.catalog.models import model

    whole = model(name)
    if json:
        from zeroplan.report import json_objects
        from zeroplan.schema.presets import ModelTensors, TensorObject

        tensors = [TensorObject(name=one.name, shape=one.shape, elements=one.elements) for one in whole.tensors]
        return _dumped(ModelTensors(model=json_objects.model_object(whole), tensors=tensors))
    from zeroplan.report import console

    grid = console.table(["tensor", "shape", "elements"])
    for tensor in whole.tensors:
        grid.add_row(tensor.name, " × ".join(map(str, tensor.shape)), f"{tensor.elements:,}")
    console.show(
        console.heading(f"{whole.name}: {whole.parameters:,} trainable parameters in {len(whole.tensors)} tensors"),
        [grid, f"source: {whole.source}"],
    )  # fmt: skip
    return 0


def _dumped(document: JsonDocument) -> int:
    from zeroplan.report import json_objects

    click.echo(json_objects.dumps(document))
    return 0


def _listed(command: str, columns: list[str], rows: Sequence[tuple[str, ...]]) -> int:
    from zeroplan.report import console

    grid = console.table(columns)
    if "title" in columns:
        grid.columns[-1].justify = "left"
        grid.columns[-1].no_wrap = False
    for row in rows:
        grid.add_row(*row)
    console.show(console.heading(f"{len(rows)} {command}"), [grid])
    return 0
