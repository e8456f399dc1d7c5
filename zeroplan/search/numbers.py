"""Which values each number of a strategy takes: thresholds and buckets in elements, and what overlaps."""

from __future__ import annotations

from typing import Any

from zeroplan.record import NamedTuple
from zeroplan.specs.job import Job

Numbers = dict[str, tuple[Any, ...]]
"""Values of each number, the usual one first."""
PERSISTENCE = "param_persistence_threshold"
SUB_GROUP = "sub_group_size"
AT_STAGE_3 = (PERSISTENCE, "prefetch_bucket_size", "max_live_parameters", "max_reuse_distance")
M, G = 10**6, 10**9
ALL_GATHER = (500 * M, 50 * M, 200 * M, G)


class Grid(NamedTuple):
    """Values of reduce buckets at any stage, and of stage 3's other numbers, the usual one first."""

    reduce: tuple[int, ...]
    prefetch: tuple[int, ...]
    live: tuple[int, ...]
    reuse: tuple[int, ...]
    sub_group: tuple[int, ...]
    """The largest first: a smaller one takes longer, and its update fewer bytes."""


FINE = Grid(
    reduce=(
        500 * M, M, 2 * M, 3 * M, 4 * M, 5 * M, 6 * M, 7 * M, 8 * M, 10 * M, 15 * M, 20 * M, 25 * M, 30 * M, 40 * M,
        50 * M, 60 * M, 70 * M, 80 * M, 100 * M, 150 * M, 200 * M, 250 * M, 300 * M, 400 * M, 600 * M, 700 * M, 800 * M,
        G, 1500 * M, 2 * G,
    ),
    prefetch=(50 * M, 10 * M, 500 * M), live=(G, 100 * M, 500 * M, 2 * G, 10 * G, 50 * G), reuse=(G, 0, 10 * G),
    sub_group=(G, 800 * M, 600 * M, 500 * M, 400 * M, 300 * M, 200 * M, 100 * M, 50 * M, 20 * M, 10 * M),
)  # fmt: skip
COARSE = Grid(
    reduce=(500 * M, M, 10 * M, 20 * M, 50 * M, 100 * M, 200 * M, G), prefetch=(50 * M, 10 * M, 500 * M),
    live=(G, 100 * M, 10 * G), reuse=(G, 0), sub_group=(G, 300 * M, 10 * M),
)  # fmt: skip
"""Some of the others' values, the least among them: for the fewest bytes, and for fronts of seconds and bytes."""


def numbers(job: Job, choice: dict[str, Any], settled: dict[str, Any], *, fine: bool) -> Numbers:
    """What a choice leaves open; what is settled has one value.

    What persists is as the Trainer fills it: none at all would spare a step's small gathers one by one, but what it
    costs to unpack them with the others nobody has measured. Stage 2 keeps gradients side by side: freed one by one
    during backward they leave holes, whose bytes nobody has measured.
    """
    stage, hidden = choice["stage"], job.model.shape.hidden
    if stage == 0:
        return {}
    grid = FINE if fine else COARSE
    found: Numbers = {"overlap_comm": (True, False), "contiguous_gradients": (True, False) if stage != 2 else (True,)}
    found["reduce_bucket_size"] = (*grid.reduce, hidden * hidden)
    if stage < 3:
        found["allgather_bucket_size"] = ALL_GATHER
    else:
        found[PERSISTENCE] = (10 * hidden,)
        found["prefetch_bucket_size"] = (*grid.prefetch, int(0.9 * hidden * hidden))
        found["max_live_parameters"], found["max_reuse_distance"] = grid.live, grid.reuse
        if not (choice["offload_optimizer"] or choice["offload_param"]) and job.strategy.optimizer != "muon":
            found[SUB_GROUP] = grid.sub_group  # the host's bytes, Muon's matrices, do not just shrink with it
        if choice["offload_param"] and choice["offload_param"].device == "nvme":  # as many as there are buffers for
            found.update({name: found[name][:1] for name in ("max_live_parameters", "max_reuse_distance")})
        if job.ranks == 1 and not choice["offload_param"]:  # nothing is gathered
            found.update({name: found[name][:1] for name in AT_STAGE_3})
    return {
        name: (settled[name],) if name in settled else tuple(dict.fromkeys(values)) for name, values in found.items()
    }
