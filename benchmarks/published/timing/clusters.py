"""The cluster that a row ran on: from what its columns say of cards, links and nodes."""

from __future__ import annotations

import csv
import re
from functools import cache
from math import prod

from benchmarks.published.rows import FILE, Row, UncomputableError
from zeroplan.catalog import hardware
from zeroplan.specs.cluster import Cluster, Gpu, SourcedValue

CARDS = (
    (r"gb300", "gb300"), (r"gb200", "gb200"), (r"b300", "b300"), (r"b200", "b200"), (r"gh200", "gh200"),
    (r"h200", "h200"), (r"h100.*pcie", "h100-pcie"), (r"h100.*nvl\b", "h100-nvl"), (r"h[18]00", "h100-80gb"),
    (r"a100.*pcie.*40", "a100-pcie-40gb"), (r"a100.*pcie", "a100-pcie-80gb"), (r"a[18]00.*40 ?gb", "a100-40gb"),
    (r"a[18]00", "a100-80gb"), (r"v100.*16", "v100-16gb"), (r"v100", "v100-32gb"), (r"5090", "rtx-5090"),
    (r"4090", "rtx-4090"), (r"3090", "rtx-3090"), (r"pro 6000", "rtx-pro-6000"), (r"a6000", "a6000"), (r"a30\b", "a30"),
    (r"a10g?\b", "a10g"), (r"mi325x", "mi325x"), (r"mi300x", "mi300x"), (r"mi250", "mi250x"), (r"mi210", "mi210"),
    (r"l40s", "l40s"), (r"\bl4\b", "l4"), (r"\bt4\b", "t4"), (r"gaudi ?3", "gaudi3"), (r"gaudi ?2", "gaudi2"),
)  # fmt: skip
NODES = {"b200": "dgx-b200", "h200": "dgx-h200", "h100-80gb": "dgx-h100", "a100-80gb": "dgx-a100",
         "a100-40gb": "dgx-a100-40gb", "v100-32gb": "dgx-2", "v100-16gb": "p3.16xlarge"}  # fmt: skip
"""The node that each card usually comes in."""
OF_A_SOURCE = {"bigscience-workshop": "jean-zay-v100"}
"""Sources that measured on one cluster all of us can name."""
CUT = 158e9
"""Bytes/s on the ring of A800 and H800, whose NVLink is cut to 400 GB/s both ways."""
HBM2E = 2.4e12, 570e12
"""Memory bandwidth and sustained matmul of the H100 with 96 GB of HBM2e, a card of lower power: fitted to torchtitan's
one-node rows."""
DATE = "2026-11-22"
EARLY_FLASH = {
    name: SourcedValue(rate, "fitted to llm-foundry's rows with 32K tokens and more", DATE, "published")
    for name, rate in (("a100-80gb", 98e12), ("a100-40gb", 98e12), ("h100-80gb", 182e12))
}
EARLY = (0, 10)
"""DeepSpeed before which stage 3 reached no more between nodes than `EARLY_NETWORK`."""
EARLY_NETWORK = SourcedValue(
    35e9, "fitted: what DeepSpeed of 2021 to 2023 at stage 3 reached a node (SC21, ZeRO++)", DATE, "published"
)  # fmt: skip


def cluster_of(row: Row) -> Cluster:
    """Raises `UncomputableError` for a card that no preset has."""
    text = row.lower("gpu_type")
    name = next((card for pattern, card in CARDS if re.search(pattern, text)), None)
    if name is None:
        raise UncomputableError(f"no preset for {row.column('gpu_type')!r}")
    card = _variant(hardware.gpu(name), text)
    own = (cluster for source, cluster in OF_A_SOURCE.items() if source in row.column("source"))
    known = next(own, NODES.get(name))
    usual = hardware.cluster(known) if known else Cluster(gpus_per_node=8)
    per_node = _per_node(row, usual.gpus_per_node)
    gpus = row.gpus
    cluster = usual._replace(
        gpu=card, capacity=int(card.memory.value), nodes=max(1, gpus // per_node), gpus_per_node=min(gpus, per_node),
    )  # fmt: skip
    if re.search(r"[ah]800", text):
        cluster = cluster._replace(intra_node=_stated(CUT, "the cut NVLink of A800 and H800"), all_reduce=None)
    if network := _network(row):
        cluster = cluster._replace(inter_node=network)
    if host := _host(row):
        cluster = cluster._replace(host_adam=host)
    if "deepspeed" in row.lower("framework") and row.stage == 3 and _is_early(row):
        cluster = cluster._replace(effective_inter_node=_least(cluster.network, EARLY_NETWORK))
    return cluster


def _is_early(row: Row) -> bool:
    """By DeepSpeed's version; where a row states none, by its card: there was none of the later ones then."""
    version = row.version("deepspeed")
    return version < EARLY if version else bool(re.search(r"v100|a100", row.lower("gpu_type")))


def _least(one: SourcedValue, other: SourcedValue) -> SourcedValue:
    return min(one, other, key=lambda figure: figure.value)


def _variant(card: Gpu, text: str) -> Gpu:
    if "hbm2e" not in text or card.name != "h100-80gb":
        return card
    memory, products = HBM2E
    share = products / card.sustained_matmul.value if card.sustained_matmul else 1.0
    return card._replace(
        memory_bandwidth=_stated(memory, "2.4 TB/s, as the row says"),
        sustained_matmul=_stated(products, "lower power, fitted to torchtitan's one-node rows"),
        attention={kernel: figure._replace(value=share * figure.value) for kernel, figure in card.attention.items()},
    )  # fmt: skip


def with_early_flash(card: Gpu | None) -> Gpu | None:
    """The card with llm-foundry's attention of 2023: triton's or the first flash kernels."""
    if card is None or card.name not in EARLY_FLASH:
        return card
    return card._replace(attention={"flash_attention_2": EARLY_FLASH[card.name]})


def _per_node(row: Row, usual: int) -> int:
    text = f"{row.lower('gpu_type')} {row.lower('notes')}"
    match = re.search(
        r"\b([0-9]+)(?:x| x|gpus?| gpus?)?/node|\b([0-9]+) gpus? per node|([0-9]+) nodes? x ?([0-9]+)", text
    )
    if not match:
        return usual
    return int(match[1] or match[2] or match[4])


@cache
def hosts() -> dict[str, SourcedValue]:
    """Parameters/s of the CPUs' Adam by source, where its rows tell."""
    with FILE.with_name("hosts.csv").open(newline="") as file:
        return {
            entry["source"]: _stated(float(entry["parameters_per_s"]), entry["evidence"])
            for entry in csv.DictReader(file)
        }


def _host(row: Row) -> SourcedValue | None:
    return next((rate for source, rate in hosts().items() if source in row.column("source")), None)


def _network(row: Row) -> SourcedValue | None:
    """Bytes/s of one node, where the row states its network."""
    text = " ".join(map(row.lower, ("gpu_type", "notes", "what_was_measured")))
    patterns = (
        (r"inter-node ([0-9]+) ?gb(?:ps|it/s)/node", 1e9 / 8), (r"([0-9]+)x([0-9]+)gb", 1e9 / 8),
        (r"~?([0-9]+) ?gb/s all-reduce", 1e9),
        (r"\b([0-9]+)xib\b", 12.5e9),
    )  # fmt: skip
    for pattern, unit in patterns:
        match = re.search(pattern, text)
        if match:
            return _stated(unit * prod(map(float, match.groups())), f"the row states {match[0]!r}")
    return None


def _stated(value: float, source: str) -> SourcedValue:
    return SourcedValue(value, source, DATE, "published")
