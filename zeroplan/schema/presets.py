"""`models`, `gpus` and `clusters` with --json: the presets. Figures that no preset states are null."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from zeroplan.schema.job import ModelObject
from zeroplan.schema.json_object import JsonDocument, JsonObject
from zeroplan.specs.images import Images


@dataclass(frozen=True, kw_only=True)
class ModelPreset(JsonObject):
    """A model known by name."""

    model: str
    """The preset's name."""
    family: str
    """model_type of its config.json."""
    parameters: int
    """Trainable parameters, tied tensors once."""
    layers: int
    """Number of layers."""
    hidden: int
    """Elements of the hidden state of one token."""
    images: Images | None
    """Images of each sequence, where the preset is a recording of a model of images; else null."""


@dataclass(frozen=True, kw_only=True)
class ModelsDocument(JsonDocument):
    """What both forms of models have."""

    command: Literal["models"] = "models"
    """The command that ran."""


@dataclass(frozen=True, kw_only=True)
class ModelPresets(ModelsDocument):
    """All presets."""

    models: Sequence[ModelPreset]
    """Each model."""


@dataclass(frozen=True, kw_only=True)
class TensorObject(JsonObject):
    """A trainable tensor."""

    name: str
    """As transformers names it."""
    shape: Sequence[int]
    """Its widths, in elements."""
    elements: int
    """Number of elements."""


@dataclass(frozen=True, kw_only=True)
class ModelTensors(ModelsDocument):
    """Every tensor of one model."""

    model: ModelObject
    """The model."""
    tensors: Sequence[TensorObject]
    """Each tensor."""


Models = ModelPresets | ModelTensors


@dataclass(frozen=True, kw_only=True)
class GpuPreset(JsonObject):
    """A card known by name."""

    gpu: str
    """The preset's name."""
    title: str
    """The maker's name of it."""
    memory_bytes: int
    """Bytes that PyTorch reports as total memory."""
    evidence: str
    """Where that is from: measured, datasheet, published or assumed."""
    memory_class_gb: int
    """The number on the box, in GB."""
    context_bytes: int | None
    """Bytes that one process takes outside PyTorch's allocator."""
    memory_bandwidth_bytes_per_s: float | None
    """Bytes/s of the card's memory."""
    link_bytes_per_s: float | None
    """Bytes/s of its links to other cards."""
    host_link_bytes_per_s: float | None
    """Bytes/s of its link to the host."""
    sustained_matmul_flops_per_s: float | None
    """FLOP/s that large matrix products reach."""
    peak_flops_per_s: Mapping[str, float]
    """Dense FLOP/s by precision, fp32 accumulation."""
    compute_capability: float | None
    """NVIDIA's number of what a card can do; other makers have none."""
    usual_node: str | None
    """The node preset that stands for its links where none is named."""


@dataclass(frozen=True, kw_only=True)
class Gpus(JsonDocument):
    """All cards."""

    command: Literal["gpus"] = "gpus"
    """The command that ran."""
    gpus: Sequence[GpuPreset]
    """Each card."""


@dataclass(frozen=True, kw_only=True)
class ClusterPreset(JsonObject):
    """A node known by name."""

    cluster: str
    """The preset's name."""
    gpu: str | None
    """The card's preset."""
    gpus_per_node: int
    """GPUs of the node."""
    host_memory_bytes: int | None
    """Bytes of the node's memory."""
    nvme_bytes: int | None
    """Bytes of the node's disks."""
    intra_node_bytes_per_s: float | None
    """Bytes/s that one rank of a ring inside the node sends."""
    inter_node_bytes_per_s: float | None
    """Bytes/s of the node's network cards."""
    nvme_read_bytes_per_s: float | None
    """Bytes/s that its disks are read with."""
    nvme_write_bytes_per_s: float | None
    """Bytes/s that its disks are written with."""


@dataclass(frozen=True, kw_only=True)
class Clusters(JsonDocument):
    """All nodes."""

    command: Literal["clusters"] = "clusters"
    """The command that ran."""
    clusters: Sequence[ClusterPreset]
    """Each node."""
