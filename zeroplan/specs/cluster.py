"""A cluster: GPUs, how they are connected, and what a node holds beside them."""

from __future__ import annotations

from typing import NamedTuple

NVIDIA = "NVIDIA"


class Figure(NamedTuple):
    """A number of a preset with where it comes from. Bytes, bytes/s, FLOP/s or a plain count."""

    value: float
    source: str
    date: str
    evidence: str
    kind: str = ""
    """What carries it: 'NVLink4', 'PCIe4 x16'."""


class Gpu(NamedTuple):
    name: str
    title: str
    memory: Figure
    """What PyTorch reports as total memory, in bytes; less than the number on the box."""
    memory_class: int
    """The number on the box, in GB."""
    peak: dict[str, Figure]
    """Dense FLOP/s by precision, fp32 accumulation."""
    memory_bandwidth: Figure | None = None
    sustained_matmul: Figure | None = None
    link: Figure | None = None
    host_link: Figure | None = None
    context: Figure | None = None
    """Bytes one process takes outside PyTorch's allocator."""
    stands_for_class: bool = False
    """Only the memory was asked for (`--gpu-mem 80`): this card stands for all of that class."""

    @property
    def maker(self) -> str:
        return self.title.split()[0]


class Cluster(NamedTuple):
    nodes: int = 1
    gpus_per_node: int = 1
    gpu: Gpu | None = None
    capacity: int | None = None
    """Usable bytes of one GPU; None when nothing was said."""
    host_memory: int | None = None
    """Bytes of one node."""
    nvme: int | None = None
    """Bytes of one node's local disks."""
    intra_node: Figure | None = None
    inter_node: Figure | None = None
    name: str = ""

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def maker(self) -> str:
        """Of its cards; NVIDIA where nothing was said."""
        return self.gpu.maker if self.gpu else NVIDIA
