"""GPU and cluster presets as specs."""

from __future__ import annotations

import os
import re
from typing import Any

from zeroplan.catalog import node_file, presets
from zeroplan.errors import QuantityError, SpecError, printable, shown
from zeroplan.specs.cluster import NVIDIA, Cluster, Gpu, SourcedValue
from zeroplan.units import read_bytes, read_rate

LINKS = ("intra_node", "inter_node", "all_reduce", "effective_inter_node", "nvme_read", "nvme_write")
PLAIN = {"host_adam": "/s", "hop": "s", "crossing": "s"}
"""Figures of a cluster that are neither bytes nor rates of bytes, with their units."""
UNITS = {"memory_bandwidth": "B/s", "sustained_matmul": "FLOP/s", "link": "B/s", "host_link": "B/s"}


def gpu(name: str) -> Gpu:
    """A GPU preset by name or alias. Raises `UnknownNameError`."""
    preset, content = presets.load("GPU", name, "`zeroplan gpus` lists them; or write --gpu-mem 80GB")
    rates = {key: _rate(content[key], f"{preset}.{key}", unit) for key, unit in UNITS.items() if key in content}
    return Gpu(
        name=preset,
        title=content["title"],
        memory=_size(content["memory"], f"{preset}.memory"),
        memory_class=content["memory_class"],
        peak={
            precision: _rate(entry, f"{preset}.peak.{precision}", "FLOP/s")
            for precision, entry in content.get("peak", {}).items()
        },
        context=_size(content["context"], f"{preset}.context") if "context" in content else None,
        memory_bandwidth=rates.get("memory_bandwidth"),
        sustained_matmul=rates.get("sustained_matmul"),
        link=rates.get("link"),
        host_link=rates.get("host_link"),
        compute_capability=_bare(content, "compute_capability", preset),
        usual_node=content.get("usual_node", ""),
        attention={
            kernel: _rate(entry, f"{preset}.attention.{kernel}", "FLOP/s")
            for kernel, entry in content.get("attention", {}).items()
        },
    )


def gpu_of_class(gigabytes: int) -> Gpu:
    """The card that a bare `--gpu-mem N` stands for. Raises `QuantityError` when no card has that number on it."""
    names = presets.having("GPU", memory_class=gigabytes, class_default=True)
    if not names:
        raise QuantityError(
            f"--gpu-mem: found {gigabytes}, expected the size of a known card ({', '.join(map(str, classes()))}) "
            f"or a size with its unit; write {gigabytes}GB or {gigabytes}GiB"
        )
    return gpu(names[0])._replace(stands_for_class=True)


def larger(cluster: Cluster, precision: str) -> list[Gpu]:
    """Cards of the same maker with more memory that compute in this precision: one of each size, the smallest first."""
    maker, least = cluster.gpu.maker if cluster.gpu else NVIDIA, cluster.capacity or 0
    cards = (card for card in _one_of_each_size() if card.maker == maker and precision in card.peak)
    return sorted((card for card in cards if card.memory.value > least), key=lambda card: card.memory.value)


def classes() -> list[int]:
    """The memory sizes in GB that a bare number may name."""
    return sorted({card.memory_class for card in _one_of_each_size()})


def _one_of_each_size() -> list[Gpu]:
    """The cards that a bare number stands for."""
    return [gpu(name) for name in presets.having("GPU", class_default=True)]


def cluster(name: str) -> Cluster:
    """One node: a preset by name or alias, or a file. Raises `UnknownNameError`, and for a file `SpecError`."""
    if node_file.is_file(name):
        place, content = name, node_file.read_node(name)
    elif os.path.isdir(name) and os.sep in name:
        raise SpecError(f"--cluster {shown(name)}", "a folder", node_file.EXPECTED, "the name of a file in it")
    else:
        hint = "`zeroplan clusters` lists them; or write the name of a file, node.yaml or node.json"
        place, content = presets.load("cluster", name, hint)
    card = _stated(gpu(content["gpu"]), place, content) if "gpu" in content else None
    sizes = {key: int(_size(content[key], f"{place}.{key}").value) for key in ("host_memory", "nvme") if key in content}
    figures: dict[str, Any] = {
        **{key: _rate(content[key], f"{place}.{key}", "B/s") for key in LINKS if key in content},
        **{key: _plain(content[key], f"{place}.{key}", unit) for key, unit in PLAIN.items() if key in content},
    }
    if node_file.is_file(name):
        stated = {key: figure.value for key, figure in figures.items()}
        stated |= {key: getattr(card, key).value for key in node_file.CARD if key in content}
        for key, value in (*sizes.items(), *stated.items()):
            node_file.check_bounds(name, key, value, content[key]["value"])
    return Cluster(
        name=printable(place),
        gpus_per_node=content.get("gpus_per_node", 1),
        node_width=content.get("gpus_per_node", 0),
        gpu=card,
        capacity=int(card.memory.value) if card else None,
        host_memory=sizes.get("host_memory"),
        nvme=sizes.get("nvme"),
    )._replace(**figures)


def _stated(card: Gpu, place: str, content: dict[str, Any]) -> Gpu:
    """The card with the figures that its node's file has of it."""
    measured = [key for key in node_file.CARD if key in content]
    stated: dict[str, Any] = {key: _rate(content[key], f"{place}.{key}", UNITS[key]) for key in measured}
    return card._replace(**stated)


def _size(entry: dict[str, Any], what: str) -> SourcedValue:
    return _figure(entry, read_bytes(str(entry["value"]), what), what)


def _rate(entry: dict[str, Any], what: str, unit: str) -> SourcedValue:
    return _figure(entry, read_rate(str(entry["value"]), what, unit), what)


def _plain(entry: dict[str, Any], what: str, unit: str) -> SourcedValue:
    """A number with its unit, written as in "3.4e-6 s"."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]{1,2})?) " + re.escape(unit), str(entry["value"]))
    if match is None:
        raise QuantityError(f"{what}: found {shown(entry['value'])}, expected a number and the unit {unit}")
    return _figure(entry, float(match[1]), what)


def _bare(content: dict[str, Any], key: str, place: str) -> SourcedValue | None:
    """A number without a unit, where it is stated."""
    entry = content.get(key)
    return _figure(entry, float(entry["value"]), f"{place}.{key}") if entry else None


def _figure(entry: dict[str, Any], value: float, what: str) -> SourcedValue:
    if not value > 0:
        raise QuantityError(f"{what}: found {shown(entry['value'])}, expected more than zero")
    return SourcedValue(value, str(entry["source"]), str(entry["date"]), entry["evidence"], str(entry.get("kind", "")))
