"""Seconds of collectives over a cluster's links, each call by its size."""

from __future__ import annotations

from typing import NamedTuple

from zeroplan.costs.timing.rates import link
from zeroplan.formulas import timing
from zeroplan.ledger import Transfer
from zeroplan.specs.cluster import Cluster, SourcedValue

HOP = SourcedValue(
    3.4e-6, "48 us over the 14 hops of an all-reduce of 8 A100, 33 us of 8 H200, as fitted to their sweeps",
    "2026-11-22", "published",
)  # fmt: skip
CROSSING = SourcedValue(
    6e-6, "370 us over the 62 steps of an all-reduce of 32 B200 in 4 nodes, as fitted to their sweep", "2026-11-22",
    "published",
)  # fmt: skip
LEVEL = SourcedValue(
    80e-6, "the same 370 us, had they been a tree's: two levels up and down, 8 GPUs in a chain", "2026-11-22", "assumed"
)


class CallTime(NamedTuple):
    """One call of a collective, all calls of its kind taken as equal in size."""

    seconds: float
    figures: tuple[SourcedValue, ...]
    """The link's rate, and what a hop takes."""
    symbols: dict[str, float]


def call(cluster: Cluster, transfer: Transfer) -> CallTime:
    """Seconds of one call; NCCL takes the ring, or for an all-reduce the tree where that is sooner there."""
    kind, ranks, inside = transfer.collective, transfer.ranks, min(transfer.ranks, cluster.gpus_per_node)
    speed, wire = link(cluster, ranks, kind), transfer.wire_bytes / transfer.calls
    latency_of_ring, filling = latency(cluster, kind, ranks), latency(cluster, kind, inside)
    crosses = between_nodes(cluster, transfer)
    hop = (cluster.crossing or CROSSING) if crosses else (cluster.hop or HOP)
    if kind == "all_to_all" and crosses:
        speed, latency_of_ring = shared(cluster), timing.ring_latency(ranks - 1, hop.value)
    symbols = {"wire": wire, "link": speed.value, "latency": latency_of_ring, "filling": filling}
    return CallTime(timing.piped(**symbols), (speed, hop), symbols)


def between_nodes(cluster: Cluster, transfer: Transfer) -> bool:
    """Whether ranks lie in several nodes; of qgZ's two exchanges the second is among one rank of each."""
    one_of_each = transfer.group == "qgz" and transfer.ranks == cluster.nodes > 1
    return transfer.ranks > cluster.gpus_per_node or one_of_each


def shared(cluster: Cluster) -> SourcedValue:
    """What one GPU has of its node's network, when all send what is their own; a ring crosses once for all of them."""
    network = cluster.network
    return network._replace(value=network.value / cluster.gpus_per_node)


def latency(cluster: Cluster, collective: str, ranks: int) -> float:
    """Seconds until a first piece has been everywhere: every step of a ring waits for its slowest hop."""
    passes = 2 if collective == "all_reduce" else 1
    hop = (cluster.hop or HOP).value
    if ranks <= cluster.gpus_per_node:
        return timing.ring_latency(passes * (ranks - 1), hop)
    crossing = (cluster.crossing or CROSSING).value
    ring = timing.ring_latency(passes * (ranks - 1), crossing)
    if collective != "all_reduce":
        return ring
    nodes = ranks / cluster.gpus_per_node
    return min(ring, timing.tree_latency(cluster.gpus_per_node - 1, hop, nodes, LEVEL.value))
