"""A cluster: GPUs, how they are connected, and what a node holds beside them."""

from typing import NamedTuple

NVIDIA = "NVIDIA"


class SourcedValue(NamedTuple):
    """A number of a preset with where it comes from. Bytes, bytes/s, FLOP/s or a plain count."""

    value: float
    """The number, in the unit of what it stands for."""
    source: str
    """Where it was read."""
    date: str
    """Day on which it was read."""
    evidence: str
    """measured, datasheet, published or assumed."""
    kind: str = ""
    """What carries it: 'NVLink4', 'PCIe4 x16'."""


DEFAULT_NETWORK = SourcedValue(25e9, "judgement: 200 Gb/s between nodes", "2026-11-22", "assumed")
NETWORK_REACHED = 0.98
"""Share of the cards' nominal rate for endless messages: 32 B200 all-reduce 16 GiB at 381.8 of 400 GB/s, less the
smaller the message, as fitted to that sweep (stas00/ml-engineering network/README.md)."""


class Gpu(NamedTuple):
    name: str
    title: str
    memory: SourcedValue
    """What PyTorch reports as total memory, in bytes; less than the number on the box."""
    memory_class: int
    """The number on the box, in GB."""
    peak: dict[str, SourcedValue]
    """Dense FLOP/s by precision, fp32 accumulation."""
    memory_bandwidth: SourcedValue | None = None
    sustained_matmul: SourcedValue | None = None
    link: SourcedValue | None = None
    host_link: SourcedValue | None = None
    context: SourcedValue | None = None
    """Bytes one process takes outside PyTorch's allocator."""
    attention: dict[str, SourcedValue] = {}  # noqa: RUF012 (a tuple's default, never changed)
    """FLOP/s of attention kernels, forward and backward together, by name; of the pairs of tokens they compute."""
    compute_capability: SourcedValue | None = None
    """NVIDIA's number of what a card can do, 9.0 for Hopper; other makers have none."""
    usual_node: str = ""
    """The node preset that stands for its links where none is named."""
    stands_for_class: bool = False
    """Only the memory was asked for (`--gpu-mem 80`): this card stands for all of that class."""

    @property
    def maker(self) -> str:
        return self.title.split()[0]

    def peak_in(self, precision: str) -> SourcedValue | None:
        """Dense FLOP/s in a precision, or in 16 bit where the card has no rate for it."""
        return self.peak.get(precision) or self.peak.get("bf16") or self.peak.get("fp16")


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
    intra_node: SourcedValue | None = None
    """Bytes/s that one rank of a ring inside a node sends."""
    inter_node: SourcedValue | None = None
    """Bytes/s of one node's network cards."""
    node_width: int = 0
    """GPUs of a whole node, whose network cards `inter_node` counts together; 0: not known, as many as are used."""
    all_reduce: SourcedValue | None = None
    """Bytes/s as `intra_node`, of an all-reduce over a whole node whose switch adds up (NVLink SHARP)."""
    effective_inter_node: SourcedValue | None = None
    """Bytes/s of one node that the engine reaches, where that is less than its cards have."""
    hop: SourcedValue | None = None
    """Seconds of one hop of a ring inside a node; `crossing`: between nodes."""
    crossing: SourcedValue | None = None
    host_adam: SourcedValue | None = None
    """Parameters/s that DeepSpeedCPUAdam updates on one node."""
    nvme_read: SourcedValue | None = None
    """Bytes/s of one node's disks; `nvme_write` likewise."""
    nvme_write: SourcedValue | None = None
    name: str = ""

    def linked_as(self, other: "Cluster") -> "Cluster":
        """With the links, inside nodes and between them, that another cluster has."""
        return self._replace(
            intra_node=other.intra_node, inter_node=other.inter_node, all_reduce=other.all_reduce,
            effective_inter_node=other.effective_inter_node, hop=other.hop, crossing=other.crossing,
            node_width=other.node_width,
        )  # fmt: skip

    @property
    def gpus(self) -> int:
        return self.nodes * self.gpus_per_node

    @property
    def network(self) -> SourcedValue:
        """Bytes/s between nodes that large messages reach, of one node's GPUs that are used."""
        if self.effective_inter_node:
            return self.effective_inter_node
        if self.inter_node is None:
            return DEFAULT_NETWORK
        share = NETWORK_REACHED * self.used_width
        return self.inter_node._replace(
            value=share * self.inter_node.value, source=f"{share:g} of {self.inter_node.source}"
        )

    @property
    def used_width(self) -> float:
        """The share of a node's GPUs that is used, and with them of its network cards."""
        return min(1.0, self.gpus_per_node / self.node_width) if self.node_width else 1.0

    @property
    def maker(self) -> str:
        """The maker of its cards; NVIDIA where nothing was said."""
        return self.gpu.maker if self.gpu else NVIDIA
