"""What numbers are of: model, cluster, workload and strategy, and the scope in which they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from zeroplan.schema.json_object import JsonObject
from zeroplan.specs.model import Unplanned
from zeroplan.specs.strategy import Strategy, Workload


@dataclass(frozen=True, kw_only=True)
class ModelObject(JsonObject):
    """A model, or a shape inferred from a number of parameters."""

    name: str
    """As it was written: a preset, a path, org/name or a size."""
    family: str
    """model_type of its config.json."""
    parameters: int
    """Parameters, tied tensors once: those of adapters too, and quantized weights as the weights that they are."""
    packed_elements: int | None
    """Elements of the tensors that hold quantized weights; null where none are."""
    source: str
    """Where tensors and shape come from: a preset, a config.json, or inferred from a count."""
    inferred: bool
    """Whether the shape is inferred from the number of parameters."""
    architecture: str | None
    """transformers' class; null where the shape is inferred."""
    approximate: float
    """Share by which memory may be off, where the shape was read from a family that is not described; else 0."""
    unread: Sequence[str]
    """Keys of its config.json that nothing reads and that might change what is counted."""


@dataclass(frozen=True, kw_only=True)
class ClusterObject(JsonObject):
    """GPUs and nodes."""

    name: str | None
    """The node preset; null where none is named."""
    nodes: int
    """Number of nodes."""
    gpus_per_node: int
    """GPUs of a node that are used."""
    gpus: int
    """All GPUs, which are the data-parallel ranks."""
    gpu: str | None
    """The card's preset; null where no card is named."""


@dataclass(frozen=True, kw_only=True)
class JobObject(JsonObject):
    """One model under one strategy on one cluster."""

    model: ModelObject
    """The model that is trained."""
    cluster: ClusterObject
    """Where it is trained."""
    workload: Workload
    """What was asked for, whatever the strategy."""
    strategy: Strategy
    """What a ds_config.json and the launch decide; what is on NVMe with the path and buffers that its file states."""
    not_counted: Sequence[str]
    """Keys of the ds_config.json that do something which no number has in it."""
    accounting: str
    """Whose bytes the numbers are: deepspeed or paper."""


@dataclass(frozen=True, kw_only=True)
class ScopeObject(JsonObject):
    """The job that the numbers are of."""

    trains: str
    """What is trained: every weight, or how many of the parameters."""
    model: str
    """The model, with its class where one is known."""
    loss: str
    """The loss that training minimizes."""
    tokens_per_sequence: int
    """Tokens of every sequence, none shorter and none padded."""
    excluded: Sequence[str]
    """Parts of a training job that no number has in it."""
    unplanned: Sequence[Unplanned]
    """What of the user's own job is not planned, with --partial."""
    line: str
    """The same in a sentence."""


@dataclass(frozen=True, kw_only=True)
class KeptFree(JsonObject):
    """What --headroom keeps free of each card."""

    share: float
    """Share of the card's capacity."""
    bytes: int
    """Bytes of the card, which fit.capacity is without."""
