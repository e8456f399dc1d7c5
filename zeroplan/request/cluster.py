"""The cluster that was stated: `--gpus`, `--gpu`, `--gpu-mem`, `--host-mem`, `--nvme`, `--cluster`, `--hostfile`; and
what of each card is kept free, `--headroom`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zeroplan.errors import ContradictionError, QuantityError, printable, shown
from zeroplan.request.options import Options
from zeroplan.request.values import HEADROOM, CardMemory, Written, flag, is_bare, no_gpus
from zeroplan.specs.cluster import Cluster
from zeroplan.units import gib, rate

if TYPE_CHECKING:
    from zeroplan.specs.headroom import Headroom

USUAL_NODE = 8
LARGEST_CLUSTER = 1_000_000
Assumed = tuple[str, ...]


def read_cluster(options: Options, default_gpus: int) -> tuple[Cluster, Assumed]:
    """Nodes, GPUs and capacities, and what was assumed of them, such as the unit of a bare number."""
    cluster = Cluster()
    if options.cluster is not None:
        from zeroplan.catalog.hardware import cluster as preset

        cluster = preset(options.cluster)
    cluster, counted = _counted(options, cluster, default_gpus)
    if cluster.gpus > LARGEST_CLUSTER:
        typed = shown(options.gpus.text if options.gpus else options.hostfile)
        raise QuantityError(
            f"--gpus: found {typed}, {cluster.gpus:,} GPUs, expected at most {LARGEST_CLUSTER:,}; "
            "write --gpus 8 or --gpus 4x8"
        )
    cluster, card = _named_card(options, cluster)
    cluster, memory = _card_memory(options.gpu_mem, cluster)
    cluster, links = _linked(cluster)
    sizes = (*_unit("host_mem", options.host_mem, "GiB"), *_unit("nvme", options.nvme, "GB"))
    if options.host_mem is not None:
        cluster = cluster._replace(host_memory=options.host_mem.value)
    if options.nvme is not None:
        cluster = cluster._replace(nvme=options.nvme.value)
    return cluster, (*counted, *card, *memory, *links, *sizes)


def _counted(options: Options, cluster: Cluster, default: int) -> tuple[Cluster, Assumed]:
    if options.hostfile is not None:
        if options.gpus is not None:
            raise ContradictionError("--gpus and --hostfile both count the GPUs; keep one")
        return _of_hostfile(options.hostfile, cluster), ()
    if options.gpus is not None:
        return _nodes(options.gpus, cluster)
    if cluster.node_width:
        return cluster, ()
    return cluster._replace(nodes=1, gpus_per_node=default), (f"{default} GPU{'s' if default > 1 else ''} (--gpus)",)


def _of_hostfile(path: str, cluster: Cluster) -> Cluster:
    from zeroplan.catalog.hostfile import read_hostfile

    slots = read_hostfile(path)
    if len(set(slots.values())) > 1:
        raise ContradictionError(
            f"{path}: found hosts with {min(slots.values())} and {max(slots.values())} slots, "
            "expected the same on each; write --gpus NODESxGPUS for the part that is equal"
        )
    return cluster._replace(nodes=len(slots), gpus_per_node=next(iter(slots.values())))


def _nodes(stated: Written[tuple[int, ...]], cluster: Cluster) -> tuple[Cluster, Assumed]:
    numbers = stated.value
    if not numbers:
        raise no_gpus(stated.text)
    if len(numbers) == 2:
        return cluster._replace(nodes=numbers[0], gpus_per_node=numbers[1]), ()
    if numbers[0] > LARGEST_CLUSTER:
        return cluster._replace(nodes=numbers[0], gpus_per_node=1), ()
    gpus, per_node = numbers[0], cluster.node_width or USUAL_NODE
    if gpus <= per_node:
        return cluster._replace(nodes=1, gpus_per_node=gpus), ()
    if gpus % per_node:
        even = max(width for width in range(1, per_node + 1) if gpus % width == 0)
        raise QuantityError(
            f"--gpus: found {gpus}, expected a multiple of {per_node} GPUs a node; "
            f"write --gpus {gpus // even}x{even}, or another nodes x GPUs"
        )
    nodes = gpus // per_node
    assumed = () if cluster.node_width else (f"nodes of {per_node} GPUs (--gpus {nodes}x{per_node})",)
    return cluster._replace(nodes=nodes, gpus_per_node=per_node), assumed


def _named_card(options: Options, cluster: Cluster) -> tuple[Cluster, Assumed]:
    if options.gpu is None:
        return cluster, ()
    from zeroplan.catalog.hardware import gpu
    from zeroplan.catalog.presets import usual_of

    card = gpu(options.gpu)
    if cluster.gpu and cluster.gpu.name != card.name:
        raise ContradictionError(
            f"--gpu {card.name} contradicts --cluster {cluster.name}, which has {cluster.gpu.name}; keep one"
        )
    cluster = cluster._replace(gpu=card, capacity=int(card.memory.value))
    others = usual_of("GPU", options.gpu)
    if not others:
        return cluster, ()
    *some, last = others
    named = f"{', '.join(some)} or {last}" if some else last
    return cluster, (f"{printable(options.gpu)} is {card.title} (--gpu {named} otherwise)",)


def _card_memory(stated: CardMemory | None, cluster: Cluster) -> tuple[Cluster, Assumed]:
    """The card of that size, where none is named; bytes hold for any card."""
    if stated is None:
        return cluster, ()
    if stated.size_class is None:
        return cluster._replace(capacity=stated.bytes), ()
    if cluster.gpu is not None:
        if cluster.gpu.memory_class != stated.size_class:
            raise ContradictionError(
                f"--gpu-mem {stated.text} contradicts {cluster.gpu.title}, a card of "
                f"{cluster.gpu.memory_class} GB; leave --gpu-mem out, or write --gpu-mem {stated.text}GB"
            )
        return cluster, ()
    from zeroplan.catalog.hardware import gpu_of_class

    card = gpu_of_class(stated.size_class)
    assumed = (
        f"a card of {stated.text} GB shows PyTorch {gib(card.memory.value)} ({card.title}; write "
        f"--gpu-mem {stated.text}GiB for the round number)"
    )
    return cluster._replace(gpu=card, capacity=int(card.memory.value)), (assumed,)


def _linked(cluster: Cluster) -> tuple[Cluster, Assumed]:
    """The cluster with the links of the node that its card usually comes in, where nobody named one."""
    if cluster.name or cluster.gpus == 1 or cluster.gpu is None or not cluster.gpu.usual_node:
        return cluster, ()
    from zeroplan.catalog.hardware import cluster as preset

    usual = preset(cluster.gpu.usual_node)
    linked = cluster.linked_as(usual)
    if not linked.intra_node:
        return linked, ()
    links = f"{rate(linked.intra_node.value)} between GPUs"
    if linked.nodes > 1 and linked.inter_node:
        links += f", {rate(linked.inter_node.value)} between nodes"
    return linked, (f"links of {usual.name}: {links} (--cluster)",)


def _unit(name: str, stated: Written[int] | None, unit: str) -> Assumed:
    """The unit in which a number without one was read."""
    if stated is None or not is_bare(stated.text):
        return ()
    return (f"{flag(name)} {stated.text} read as {stated.text} {unit}",)


def read_headroom(stated: Written[Headroom] | None, cluster: Cluster) -> Headroom | None:
    """What is kept free of the cluster's cards. Raises `ZeroplanError` for all of a card or more, and for no card."""
    if stated is None:
        return None
    if cluster.capacity is None:
        raise ContradictionError("--headroom keeps a part of each card free, and no card is named; write --gpu-mem 80")
    kept = stated.value
    if kept.bytes is not None and kept.bytes >= cluster.capacity:
        raise QuantityError(
            f"--headroom: found {shown(stated.text)}, expected less than the {gib(cluster.capacity)} of a card; "
            f"write --headroom {HEADROOM}"
        )
    return kept


def kept_free(headroom: Headroom) -> str:
    """The headroom in the words of the list of what was assumed."""
    return f"{headroom} of each card kept free (--headroom)"


def refuse_headroom(options: Options, command: str) -> None:
    """For a command that asks nothing about what fits."""
    if options.headroom is not None:
        raise ContradictionError(f"{command} asks of nothing that fits; leave out --headroom, or write estimate")
