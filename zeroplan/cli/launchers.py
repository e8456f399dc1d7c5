"""How many GPUs, as launchers count them: `--gpus` has nodes x GPUs of a node.

deepspeed: --num_gpus of a node, --num_nodes. torchrun: --nproc-per-node, --nnodes. accelerate launch: --num_processes
of all nodes, --num_machines.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from zeroplan.errors import ContradictionError, QuantityError, shown

Place = Literal["nodes", "of a node", "of one node", "of all"]
PLACES: dict[str, Place] = {
    **dict.fromkeys(("num-nodes", "nnodes", "num-machines", "n-nodes", "nodes"), "nodes"),
    **dict.fromkeys(("num-gpus",), "of one node"),
    **dict.fromkeys(("nproc-per-node", "gpus-per-node", "num-gpus-per-node", "n-gpus-per-node"), "of a node"),
    **dict.fromkeys(("world-size", "num-processes", "n-gpus", "ngpus"), "of all"),
}  # fmt: skip
"""`of one node`: all of them, unless nodes are counted too."""


def placed(counts: Mapping[Place, tuple[str, str]], gpus: str | None) -> str | None:
    """What --gpus says of these counts, each with its name as typed; None where the typed --gpus says it all.

    Raises `ContradictionError` for counts that do not make a cluster, and `QuantityError`.
    """
    nodes, each, every = counts.get("nodes"), counts.get("of a node") or counts.get("of one node"), counts.get("of all")
    if len(counts) == 1 and nodes is None and "of a node" not in counts:
        (_name, value), = counts.values()  # fmt: skip
        return value
    number = {place: _number(name, value) for place, (name, value) in counts.items()}
    if nodes and each is None and every is None:
        return _nodes_alone(nodes, number["nodes"], gpus)
    total, width = number.get("of all"), number.get("of a node") or number.get("of one node")
    count = number.get("nodes") or (total // width if total and width else 1)
    width = width or (total or 0) // count
    if total is not None and count * width != total:
        said = " and ".join(f"{name} {value}" for name, value in counts.values())
        raise ContradictionError(f"{said}: found no even number of GPUs a node; write --gpus NODESxGPUS, as in 4x8")
    return f"{count}x{width}"


def _nodes_alone(nodes: tuple[str, str], count: int, gpus: str | None) -> str | None:
    name, value = nodes
    if gpus is None:
        raise ContradictionError(f"{name}: found {value} and no GPUs of a node; write --gpus {count}x8")
    if count == 1 or gpus.startswith(f"{count}x"):
        return None
    if gpus.isdigit() and int(gpus) % count == 0:
        raise ContradictionError(
            f"{name} {value} beside --gpus {gpus}, which counts all; write --gpus {count}x{int(gpus) // count}, "
            f"or --gpus {count}x{gpus}"
        )
    raise ContradictionError(f"{name} {value} beside --gpus {gpus}: --gpus counts nodes too; write --gpus {count}x8")


def _number(name: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= 7 and int(value)):
        raise QuantityError(f"{name}: found {shown(value)}, expected a whole number from 1; write --gpus 4x8")
    return int(value)
