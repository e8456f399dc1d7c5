"""The cluster that was typed: `--gpus`, `--gpu`, `--gpu-mem`, `--host-mem`, `--nvme`, `--cluster`, `--hostfile`."""

from __future__ import annotations

import re

from zeroplan.cli.options import Options
from zeroplan.errors import ContradictionError, QuantityError, printable, shown
from zeroplan.specs.cluster import Cluster
from zeroplan.units import gib, rate, read_bytes, read_integer

USUAL_NODE = 8
LARGEST_CLUSTER = 1_000_000


def read_cluster(options: Options, assumed: list[str], default_gpus: int) -> Cluster:
    """Nodes, GPUs and capacities. What a bare number stands for is added to `assumed`."""
    cluster = Cluster()
    if options.cluster is not None:
        from zeroplan.catalog.hardware import cluster as preset

        cluster = preset(options.cluster)
    cluster = _counted(options, cluster, assumed, default_gpus)
    if cluster.gpus > LARGEST_CLUSTER:
        typed = shown(options.gpus or options.hostfile)
        raise QuantityError(
            f"--gpus: found {typed}, {cluster.gpus:,} GPUs, expected at most {LARGEST_CLUSTER:,}; "
            "write --gpus 8 or --gpus 4x8"
        )
    cluster = _linked(_card(options, cluster, assumed), assumed)
    if options.host_mem is not None:
        size = _size(options.host_mem, "--host-mem", "GiB", "512GiB", assumed)
        cluster = cluster._replace(host_memory=size)
    if options.nvme is not None:
        cluster = cluster._replace(nvme=_size(options.nvme, "--nvme", "GB", "3.8TB", assumed))
    return cluster


def _counted(options: Options, cluster: Cluster, assumed: list[str], default: int) -> Cluster:
    if options.hostfile is not None:
        if options.gpus is not None:
            raise ContradictionError("--gpus and --hostfile both count the GPUs; keep one")
        from zeroplan.catalog.hostfile import read_hostfile

        slots = read_hostfile(options.hostfile)
        if len(set(slots.values())) > 1:
            raise ContradictionError(
                f"{options.hostfile}: found hosts with {min(slots.values())} and {max(slots.values())} slots, "
                "expected the same on each; write --gpus NODESxGPUS for the part that is equal"
            )
        return cluster._replace(nodes=len(slots), gpus_per_node=next(iter(slots.values())))
    if options.gpus is None:
        if cluster.node_width:
            return cluster
        assumed.append(f"{default} GPU{'s' if default > 1 else ''} (--gpus)")
        return cluster._replace(nodes=1, gpus_per_node=default)
    return _nodes(options.gpus, cluster, assumed)


def _nodes(text: str, cluster: Cluster, assumed: list[str]) -> Cluster:
    match = re.fullmatch(r"([0-9]{1,18})(?:x([0-9]{1,18}))?", text)
    numbers = [int(part) for part in match.groups() if part] if match else []
    if not numbers or 0 in numbers:
        expected = "GPUs or nodes x GPUs, at least 1" if numbers else "GPUs or nodes x GPUs"
        raise QuantityError(f"--gpus: found {shown(text)}, expected {expected}; write --gpus 8 or --gpus 4x8")
    if len(numbers) == 2:
        return cluster._replace(nodes=numbers[0], gpus_per_node=numbers[1])
    if numbers[0] > LARGEST_CLUSTER:
        return cluster._replace(nodes=numbers[0], gpus_per_node=1)
    gpus, per_node = numbers[0], cluster.node_width or USUAL_NODE
    if gpus <= per_node:
        return cluster._replace(nodes=1, gpus_per_node=gpus)
    if gpus % per_node:
        even = max(width for width in range(1, per_node + 1) if gpus % width == 0)
        raise QuantityError(
            f"--gpus: found {gpus}, expected a multiple of {per_node} GPUs a node; "
            f"write --gpus {gpus // even}x{even}, or another nodes x GPUs"
        )
    if not cluster.node_width:
        assumed.append(f"nodes of {per_node} GPUs (--gpus {gpus // per_node}x{per_node})")
    return cluster._replace(nodes=gpus // per_node, gpus_per_node=per_node)


def _card(options: Options, cluster: Cluster, assumed: list[str]) -> Cluster:
    if options.gpu is not None:
        from zeroplan.catalog.hardware import gpu
        from zeroplan.catalog.presets import usual_of

        card = gpu(options.gpu)
        if cluster.gpu and cluster.gpu.name != card.name:
            raise ContradictionError(
                f"--gpu {card.name} contradicts --cluster {cluster.name}, which has {cluster.gpu.name}; keep one"
            )
        cluster = cluster._replace(gpu=card, capacity=int(card.memory.value))
        if others := usual_of("GPU", options.gpu):
            *some, last = others
            named = f"{', '.join(some)} or {last}" if some else last
            assumed.append(f"{printable(options.gpu)} is {card.title} (--gpu {named} otherwise)")
    if options.gpu_mem is None:
        return cluster
    if re.fullmatch(r"[0-9]{1,4}", options.gpu_mem) and int(options.gpu_mem) > 0:
        from zeroplan.catalog.hardware import gpu_of_class

        if cluster.gpu is not None:
            if cluster.gpu.memory_class != int(options.gpu_mem):
                raise ContradictionError(
                    f"--gpu-mem {options.gpu_mem} contradicts {cluster.gpu.title}, a card of "
                    f"{cluster.gpu.memory_class} GB; leave --gpu-mem out, or write --gpu-mem {options.gpu_mem}GB"
                )
            return cluster
        card = gpu_of_class(int(options.gpu_mem))
        shown_by_torch = gib(card.memory.value)
        assumed.append(
            f"a card of {options.gpu_mem} GB shows PyTorch {shown_by_torch} ({card.title}; write "
            f"--gpu-mem {options.gpu_mem}GiB for the round number)"
        )
        return cluster._replace(gpu=card, capacity=int(card.memory.value))
    return cluster._replace(capacity=read_bytes(options.gpu_mem, "--gpu-mem"))


def _linked(cluster: Cluster, assumed: list[str]) -> Cluster:
    """Of a card whose node nobody named, the links of the node it usually comes in."""
    if cluster.name or cluster.gpus == 1 or cluster.gpu is None or not cluster.gpu.usual_node:
        return cluster
    from zeroplan.catalog.hardware import cluster as preset

    usual = preset(cluster.gpu.usual_node)
    found = cluster.linked_as(usual)
    if found.intra_node:
        links = f"{rate(found.intra_node.value)} between GPUs"
        if found.nodes > 1 and found.inter_node:
            links += f", {rate(found.inter_node.value)} between nodes"
        assumed.append(f"links of {usual.name}: {links} (--cluster)")
    return found


def _size(text: str, flag: str, bare_unit: str, example: str, assumed: list[str]) -> int:
    if re.fullmatch(r"[0-9]+", text):
        read_integer(text, flag, example)
        assumed.append(f"{flag} {text} read as {text} {bare_unit}")
        text += bare_unit
    return read_bytes(text, flag, example)
