"""`zeroplan recommend --gpus auto`: the fewest GPUs that are enough, or those that cost least."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from zeroplan.errors import ContradictionError
from zeroplan.plan import plan
from zeroplan.progress import tell
from zeroplan.request.cluster import USUAL_NODE
from zeroplan.request.goal import NOTHING, Goal, card_named
from zeroplan.request.options import Options
from zeroplan.request.request import Request
from zeroplan.request.several import label
from zeroplan.request.values import AUTO, flag
from zeroplan.results.planning import check_timed, read_plan
from zeroplan.sizing import Fewest, fewest
from zeroplan.specs.job import Job
from zeroplan.training import least_seconds, run_of

MOST = 4096
"""GPUs that are tried."""


def as_few_as_are_enough(stated: Mapping[str, Any]) -> dict[str, Any]:
    """`--objective fewest-gpus` is `--gpus auto`. Raises `ContradictionError` where a number is typed."""
    for name in ("gpus", "hostfile"):
        if stated.get(name) not in (None, AUTO):
            raise ContradictionError(
                f"--objective fewest-gpus looks for the number of GPUs; leave out {flag(name)} "
                f"{label(name, stated[name])}"
            )
    return {**stated, "gpus": AUTO}


def fewest_gpus(options: Options, goal: Goal = NOTHING) -> Fewest:
    """One GPU, two, ... up to a whole node, then whole nodes."""
    one, wanted = _sized(options, 1), goal.at(card_named(options))
    check_timed(one.job(), goal)
    total, each = one.workload.global_batch, options.micro_batch or 1
    even = [gpus for gpus in _counts(one) if total is None or total % (gpus * each) == 0]

    def sized(gpus: int) -> tuple[Job, dict[str, Any]]:
        tell(f"trying {gpus:,} GPU{'s' if gpus > 1 else ''}")
        request = _sized(options, gpus)
        return request.job(), request.fixed

    if wanted.tokens is None or wanted.deadline is None:
        return fewest(sized, even, node(one), one.reserve)
    least = least_seconds(one.job(), wanted.tokens) / wanted.deadline

    def late(job: Job, fixed: dict[str, Any]) -> float:
        chosen = plan(job, fixed, reserve=one.reserve).chosen
        return (run_of(chosen, wanted).late or 0.0) if chosen else inf

    return fewest(sized, even, node(one), one.reserve, late, lambda gpus: gpus >= least)


def larger(options: Options, gpus: int) -> list[int]:
    """Counts to compare costs of, from one on: doubled within a node and in nodes beyond it."""
    width = node(_sized(options, 1))
    within = [gpus * 2**power for power in range(4) if gpus * 2**power < width]
    nodes = max(1, -(-gpus // width))
    return [*within, *(width * nodes * 2**power for power in range(4) if width * nodes * 2**power <= MOST)]


def node(request: Request) -> int:
    """GPUs of a whole one."""
    return request.cluster.node_width or USUAL_NODE


def counted(options: Options, enough: Fewest) -> Options:
    """The same options with the number that was found, or with the largest that was tried."""
    return options.replace(gpus=enough.gpus or enough.smaller)


def _counts(one: Request) -> list[int]:
    width = node(one)
    return [*range(1, width), *range(width, max(MOST, width) + 1, width)]


def _sized(options: Options, gpus: int) -> Request:
    return read_plan(options.replace(gpus=gpus))
