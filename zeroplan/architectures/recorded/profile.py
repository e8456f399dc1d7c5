"""The profile of a recorded model: of each program that it holds the tree of modules, run as a described family's."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, partial
from typing import TYPE_CHECKING

from zeroplan.architectures.module import Module
from zeroplan.architectures.profile import TracedProfile, TreeProfile
from zeroplan.architectures.recorded.assembled import assemble
from zeroplan.architectures.recorded.recording import Recording, Variant
from zeroplan.errors import SpecError
from zeroplan.specs.checkpointing import PLAIN, Recomputing
from zeroplan.specs.execution import AllocatedActivations, Execution, Timeline
from zeroplan.specs.model import DEFAULT_LEAVES, LeafModules, TimelineRequest

if TYPE_CHECKING:
    from zeroplan.specs.account import BackwardShare, Flops, RecomputedShare, SavedActivations

Change = Callable[[Module], Module]
"""Puts other modules into a tree: adapters, packed weights."""


class RecordedProfile(TreeProfile):
    """Chooses the program that a request runs."""

    def __init__(self, recording: Recording, source: str, changes: tuple[Change, ...] = ()) -> None:
        """`source`: the file."""
        self.recording, self.source, self.changes = recording, source, changes
        self.orders: list[Execution] = []
        self.traced = cache(self._traced)

    @property
    def root(self) -> Module:
        return self.traced(0).root

    @property
    def model_type(self) -> str:
        return self.recording.model_type

    def changed(self, change: Change) -> RecordedProfile:
        return RecordedProfile(self.recording, self.source, (*self.changes, change))

    def _traced(self, at: int) -> TracedProfile:
        """Of one of the variants."""
        build = partial(_built, self.recording, self.recording.variants[at], self.changes)
        return TracedProfile(build(None), self.model_type, None, build, self.orders)

    def of(self, request: TimelineRequest) -> TracedProfile:
        """The profile of what the request runs. Raises `SpecError` where that was not recorded."""
        dtype = "fp32" if request.width == FLOAT else "fp16" if request.half else "bf16"
        backend = "cpu" if request.kernel == "cpu" else "cuda"
        variants, checkpoints = self.recording.variants, request.recomputing.every > 0
        serving = [
            at for at, each in enumerate(variants)
            if each.serves(request.attention, dtype, backend, checkpoints=checkpoints)
        ]  # fmt: skip
        if not serving or request.autocast_bytes:
            known = dict.fromkeys(f"{each.attention} in {'/'.join(each.dtypes)}" for each in variants)
            wanted = f"{request.attention} in {dtype}{' on the CPU' * (backend == 'cpu')}"
            wanted += " under torch.autocast" * bool(request.autocast_bytes)
            raise SpecError(self.source, f"no program of {wanted}", f"what was recorded: {', '.join(known)}")
        for at in serving:
            if variants[at].holds(request.batch, request.seq):
                return self.traced(at)
        ranges = dict.fromkeys(_range(variants[at]) for at in serving)
        several = f"{request.batch} sequences of " if request.batch > 1 else ""
        found = f"no program of {several}{request.seq:,} tokens{'' if several else ' a sequence'}"
        raise SpecError(self.source, found, f"what was recorded: {', '.join(ranges)}")

    def execution(
        self, leaves: LeafModules = DEFAULT_LEAVES, *, eager: bool = False, flash: bool = False,
        kernels: str = "transformers", recomputing: Recomputing = PLAIN, frozen: frozenset[int] = frozenset(),
    ) -> Execution:  # fmt: skip
        attention = "eager" if eager else "flash_attention_2" if flash else "sdpa"
        variants = self.recording.variants
        wanted = ((attention, None), (attention, recomputing.every > 0))
        chosen = next((at for at, each in enumerate(variants) if (each.attention, each.checkpoints) in wanted), 0)
        return self.traced(chosen).execution(
            leaves, eager=eager, flash=flash, kernels=kernels, recomputing=recomputing, frozen=frozen
        )

    def timeline(self, request: TimelineRequest, leaves: LeafModules = DEFAULT_LEAVES) -> Timeline | None:
        return self.of(request).timeline(request, leaves)

    def alone(self, request: TimelineRequest, leaves: LeafModules = DEFAULT_LEAVES) -> tuple[int, int, int] | None:
        return self.of(request).alone(request, leaves)

    def allocated(
        self, request: TimelineRequest, leaves: LeafModules = DEFAULT_LEAVES, *, backward: bool, at: int, size: int,
        named: bool = False,
    ) -> AllocatedActivations:  # fmt: skip
        return self.of(request).allocated(request, leaves, backward=backward, at=at, size=size, named=named)

    def places(self, request: TimelineRequest, leaves: LeafModules = DEFAULT_LEAVES, *, backward: bool) -> list[str]:
        return self.of(request).places(request, leaves, backward=backward)

    def peak(self, request: TimelineRequest, *, backward: bool) -> AllocatedActivations | None:
        return self.of(request).peak(request, backward=backward)

    def flops(self, request: TimelineRequest, *, causal: bool = False) -> Flops | None:
        return self.of(request).flops(request, causal=causal)

    def recomputed_share(self, request: TimelineRequest) -> RecomputedShare | None:
        return self.of(request).recomputed_share(request)

    def backward_share(self, request: TimelineRequest) -> BackwardShare | None:
        return self.of(request).backward_share(request)

    def offloaded_inputs(self, request: TimelineRequest) -> tuple[int, ...]:
        return self.of(request).offloaded_inputs(request)

    def saved(self, request: TimelineRequest) -> SavedActivations | None:
        return self.of(request).saved(request)


FLOAT = 4


def _built(recording: Recording, variant: Variant, changes: tuple[Change, ...], _config: object) -> Module:
    root = assemble(recording.modules, recording.programs[variant.program], recording.input_embeddings)
    for change in changes:
        root = change(root)
    return root


def _range(variant: Variant) -> str:
    least, most = variant.tokens
    if variant.batches[0] == variant.batches[1] > 1:
        return f"{variant.batches[0]} sequences {_range(variant._replace(batches=(1, 1)))}"
    if least == most:
        return f"{least:,} tokens a sequence"
    multiples = f"multiples of {variant.multiple} " if variant.multiple > 1 else ""
    return f"{multiples}from {least:,} tokens" + (f" to {most:,}" if most else "")
