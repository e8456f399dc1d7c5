"""Collectives by size, where `torchrun` started several ranks, and the link that the clock's formula finds in them.

Run on no GPU yet; a test runs it with gloo on the CPU.
"""

from __future__ import annotations

import os
from functools import partial
from math import sqrt
from typing import NamedTuple

from zeroplan.calibrate.findings import Findings, timed

SIZES = tuple(1 << power for power in range(13, 31))
"""Bytes of the whole tensor, from 8 KiB to 1 GiB."""
QUICK_SIZES = SIZES[::4] + SIZES[-1:]


class Sweep(NamedTuple):
    """Seconds of a collective by its bytes."""

    collective: str
    ranks: int
    seconds: dict[int, float]

    @property
    def passes(self) -> int:
        """Rounds of a ring: an all-reduce reduces, then gathers."""
        return 2 if self.collective == "all_reduce" else 1

    @property
    def latency(self) -> float:
        """The latency of the smallest message."""
        return self.seconds[min(self.seconds)]

    @property
    def hop(self) -> float:
        return self.latency / (self.passes * (self.ranks - 1))

    @property
    def link(self) -> float:
        """Bytes/s of messages without end, from the largest."""
        size = max(self.seconds)
        wire = self.passes * size * (self.ranks - 1) / self.ranks
        return link_of(self.seconds[size], wire, self.latency)


def link_of(seconds: float, wire: float, latency: float) -> float:
    """The rate ℓ with which x/ℓ + H + √(H·x/ℓ), `formulas.timing.piped` inside a node, gives these seconds."""
    root = (sqrt(max(4 * seconds - 3 * latency, latency)) - sqrt(latency)) / 2
    return wire / root**2 if root else wire / seconds


def measure(device: str, *, quick: bool, sizes: tuple[int, ...] = ()) -> list[Sweep]:
    """All-reduce and all-gather over all ranks; the process group is the caller's."""
    import torch
    import torch.distributed as dist

    ranks, sweeps = dist.get_world_size(), []
    sizes = sizes or (QUICK_SIZES if quick else SIZES)
    wait = torch.cuda.synchronize if device != "cpu" else lambda: None
    for collective in ("all_reduce", "all_gather"):
        spent = {}
        for size in sizes:
            count = size // 2 // ranks * ranks
            whole = torch.zeros(count, dtype=torch.bfloat16, device=device)
            part = torch.zeros(count // ranks, dtype=torch.bfloat16, device=device)

            act = partial(dist.all_reduce, whole)
            if collective == "all_gather":
                act = partial(dist.all_gather_into_tensor, whole, part)
            # As many times on each rank: none may stop waiting for the others by its own clock.
            spent[2 * count] = timed(act, wait, seconds=0.0, least=5 if quick else 20)
        sweeps.append(Sweep(collective, ranks, spent))
    return sweeps


def keep(findings: Findings, sweeps: list[Sweep], backend: str) -> None:
    """Inside one node the link and the hop; over several nodes what their network gives."""
    import torch

    one_node = os.environ.get("LOCAL_WORLD_SIZE") == os.environ.get("WORLD_SIZE")
    for sweep in sweeps:
        how = f"{sweep.collective} of {sweep.ranks} ranks by {backend}, {len(sweep.seconds)} sizes up to "
        how += f"{max(sweep.seconds) >> 20} MiB, fitted by its smallest and its largest; torch {torch.__version__}"
        reduces = sweep.collective == "all_reduce"
        if one_node:
            findings.add("all_reduce" if reduces else "intra_node", sweep.link, "B/s", how)
        elif not reduces:
            findings.add("effective_inter_node", sweep.link, "B/s", how)
        if reduces == one_node:
            findings.add("hop" if one_node else "crossing", sweep.hop, "s", how)
        for size, spent in sweep.seconds.items():
            call = f"{sweep.collective} of {size:,} B on {sweep.ranks} ranks"
            findings.observations.append(f"{call}: {spent * 1e6:.4g} us")
