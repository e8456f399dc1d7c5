"""Memory and traffic: lines of bytes with their formulas, peaks by phase, collectives and copies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from zeroplan.ledger import Activations
from zeroplan.schema.json_object import JsonObject


@dataclass(frozen=True, kw_only=True)
class NamedBytes(JsonObject):
    """Bytes under one name."""

    name: str
    """As tables name the line."""
    bytes: int
    """Bytes of one GPU, or of one node in host and nvme."""


@dataclass(frozen=True, kw_only=True)
class LineObject(NamedBytes):
    """Bytes under one name, and how they came about."""

    dtype: str
    """As torch names it; empty where several are mixed."""
    formula: str
    """The equation that gave the bytes; of what was counted, in words what was."""
    symbols: Mapping[str, int]
    """Values by symbol that the formula was worked out with, or what was counted and the bytes of one."""
    source: str
    """Where the formula is from: a paper or a file of DeepSpeed, with the place."""
    evidence: str
    """Kind of the source."""


@dataclass(frozen=True, kw_only=True)
class PhasedLine(LineObject):
    """A line of a tier."""

    phases: Sequence[str]
    """Phases whose peak has it in it; resident: held between steps."""


@dataclass(frozen=True, kw_only=True)
class MomentObject(JsonObject):
    """The moment at which most is allocated."""

    bytes: int
    """Bytes allocated at that moment."""
    phase: str
    """init, forward, backward, step, first_forward or first_backward."""
    place: str
    """The module at work, by its path, or what else happens."""
    layer: int | None
    """Number of the layer that the module lies in; null outside of the layers."""
    largest: Sequence[NamedBytes]
    """Its three largest lines."""


@dataclass(frozen=True, kw_only=True)
class MemoryTier(JsonObject):
    """One place that holds bytes: a GPU, a node's host memory or a node's NVMe."""

    lines: Sequence[PhasedLine]
    """Each line once; those that name a phase sum up to its peak."""
    resident: int
    """Bytes held between steps."""
    phases: Mapping[str, int]
    """Bytes of each phase's peak; first_forward and first_backward where the run's first step needs more."""
    phases_less_activations: Mapping[str, int]
    """Bytes of each phase's peak without activations."""
    peak: MomentObject
    """The largest moment of all phases."""


@dataclass(frozen=True, kw_only=True)
class Letter(JsonObject):
    """What a letter of a formula stands for in the model."""

    value: int
    """Its value in this job."""
    unit: str
    """Unit of the value."""
    meaning: str
    """What it counts."""


@dataclass(frozen=True, kw_only=True)
class MemoryLevel(JsonObject):
    """Bytes of one GPU at its fullest, by one instrument."""

    bytes: int
    """Likely bytes."""
    low: int
    """Least bytes that are likely."""
    high: int
    """Most bytes that are likely."""
    evidence: str
    """measured: compared with runs to within 1 %; published: read in others' rows; assumed: nobody measured it here."""
    reason: str
    """What the range was read from."""


@dataclass(frozen=True, kw_only=True)
class GpuMemory(MemoryTier):
    """Memory of one GPU."""

    letters: Mapping[str, Letter]
    """Letters of the formulas that are in the model's own sizes."""
    activations: Activations | None
    """Activations of the model alone; null where its forward is not written out."""
    closed_forms: Sequence[LineObject] | None = None
    """Under the paper's accounting, activations as Korthikanti and ZeRO-Infinity count them."""
    outside: Sequence[LineObject]
    """The CUDA context and NCCL's buffers, not in the peak."""
    levels: Mapping[str, MemoryLevel]
    """The peak by instrument: allocated, reserved, and nvidia-smi, which is in use on the card whoever made it."""


@dataclass(frozen=True, kw_only=True)
class HostMemory(MemoryTier):
    """Host memory of one node."""

    beside: Sequence[LineObject]
    """What a node's processes, a model being saved and files take on top of the peak at most."""


@dataclass(frozen=True, kw_only=True)
class MemoryObject(JsonObject):
    """All tiers."""

    gpu: GpuMemory
    """Memory of one GPU."""
    host: HostMemory
    """Host memory of one node."""
    nvme: MemoryTier
    """NVMe of one node."""


@dataclass(frozen=True, kw_only=True)
class HeldTier(JsonObject):
    """What one tier holds between steps."""

    bytes: int
    """Bytes held between steps."""
    lines: Sequence[LineObject]
    """Lines that sum up to them."""


@dataclass(frozen=True, kw_only=True)
class Held(JsonObject):
    """What still holds of a job of which a part is not planned."""

    gpu: HeldTier
    """Of one GPU."""
    host: HeldTier
    """Of one node's memory."""
    nvme: HeldTier
    """Of one node's NVMe."""


@dataclass(frozen=True, kw_only=True)
class Collective(JsonObject):
    """One kind of collective, each time that `when` comes."""

    when: str
    """micro_step or step: how often it comes."""
    collective: str
    """As torch.distributed names it: all_reduce, all_gather, reduce_scatter, ..."""
    dtype: str
    """dtype of what is sent."""
    calls: int
    """Number of calls."""
    bytes: int
    """Bytes of the full tensors of all calls."""


@dataclass(frozen=True, kw_only=True)
class TransferObject(Collective):
    """A collective with its group and formula."""

    wire_bytes: int
    """Bytes that one rank sends on a ring."""
    group: str
    """The process group."""
    ranks: int
    """Ranks of the group."""
    formula: str
    """The equation that gave the bytes; of what was counted, in words what was."""
    source: str
    """Where the formula is from."""


@dataclass(frozen=True, kw_only=True)
class CopiedObject(LineObject):
    """Bytes that one rank copies between tiers in an optimizer step."""

    from_: str
    """The tier that is read: gpu, host or nvme."""
    to: str
    """The tier that is written: gpu, host or nvme."""


@dataclass(frozen=True, kw_only=True)
class TierFitObject(JsonObject):
    """Needed against capacity of one tier."""

    capacity: int | None
    """Bytes that may be used, less what --headroom keeps free; null where it is not known."""
    needed: int
    """Bytes counted: of a GPU the peak, the CUDA context and NCCL's buffers."""
    most: int
    """Bytes that such runs took at most; of the host with memory.host.beside."""
    headroom: int | None
    """Bytes that stay free; less than zero: that are missing; null where no capacity is known."""
    fits: bool | None
    """Whether the verdict is fits; null where no capacity is known."""
    verdict: str | None
    """fits, tight or does_not_fit; null where no capacity is known."""


@dataclass(frozen=True, kw_only=True)
class FitObject(TierFitObject):
    """The GPU's numbers, with fits and verdict of all tiers together."""

    host: TierFitObject
    """Host memory of one node."""
    nvme: TierFitObject
    """NVMe of one node."""
