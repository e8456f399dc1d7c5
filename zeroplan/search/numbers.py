"""Which values each number of a strategy takes: thresholds and buckets in elements, and what overlaps."""

from __future__ import annotations

from typing import Any

from zeroplan.specs.job import Job

Numbers = dict[str, tuple[Any, ...]]
"""Values of each number, the usual one first."""
PERSISTENCE = "param_persistence_threshold"
AT_STAGE_3 = (PERSISTENCE, "prefetch_bucket_size", "max_live_parameters", "max_reuse_distance")
REDUCE = (500_000_000, 1_000_000, 10_000_000, 20_000_000, 50_000_000, 100_000_000, 200_000_000, 1_000_000_000)
REDUCE_AT_STAGE_3 = (500_000_000, 50_000_000, 200_000_000, 1_000_000_000)
ALL_GATHER = (500_000_000, 50_000_000, 200_000_000, 1_000_000_000)
PREFETCH, LIVE, REUSE = (50_000_000, 500_000_000), (1_000_000_000, 10_000_000_000), (1_000_000_000,)


def numbers(job: Job, choice: dict[str, Any], settled: dict[str, Any]) -> Numbers:
    """What a choice leaves open; what is settled has one value.

    Stage 2 keeps gradients side by side: freed one by one during backward they leave holes, whose bytes nobody has
    measured.
    """
    stage, hidden, every = choice["stage"], job.model.shape.hidden, job.model.parameters
    if stage == 0:
        return {}
    found: Numbers = {"overlap_comm": (True, False), "contiguous_gradients": (True, False) if stage != 2 else (True,)}
    found["reduce_bucket_size"] = (*(REDUCE if stage < 3 else REDUCE_AT_STAGE_3), hidden * hidden)
    if stage < 3:
        found["allgather_bucket_size"] = ALL_GATHER
    else:
        may_live = not (choice["offload_optimizer"] or choice["offload_param"]) and every > LIVE[0]
        found[PERSISTENCE] = (10 * hidden,)
        found["prefetch_bucket_size"] = (*PREFETCH, int(0.9 * hidden * hidden))
        found["max_live_parameters"] = LIVE if may_live else LIVE[:1]
        found["max_reuse_distance"] = REUSE
        if job.ranks == 1 and not choice["offload_param"]:  # nothing is gathered
            found.update({name: found[name][:1] for name in AT_STAGE_3})
    return {
        name: (settled[name],) if name in settled else tuple(dict.fromkeys(values)) for name, values in found.items()
    }
