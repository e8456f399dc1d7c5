"""`zeroplan recommend --gpus auto`: the fewest GPUs that are enough, or those that cost least."""

from __future__ import annotations

from math import inf
from typing import Any

from zeroplan.cli.goal import NOTHING, Goal, card_named
from zeroplan.cli.options import Options, flag
from zeroplan.cli.progress import tell
from zeroplan.cli.recommend import check_timed, read
from zeroplan.cli.request import Request
from zeroplan.cli.request_cluster import USUAL_NODE
from zeroplan.cli.several import AUTO, with_values
from zeroplan.errors import ContradictionError
from zeroplan.plan import plan
from zeroplan.sizing import Fewest, fewest
from zeroplan.specs.job import Job
from zeroplan.training import least_seconds, run_of

MOST = 4096
"""GPUs that are tried."""


def as_few_as_are_enough(options: Options) -> Options:
    """`--objective fewest-gpus` is `--gpus auto`. Raises `ContradictionError` where a number is typed."""
    for name in ("gpus", "hostfile"):
        if getattr(options, name) not in (None, AUTO):
            raise ContradictionError(
                f"--objective fewest-gpus looks for the number of GPUs; leave out {flag(name)} {getattr(options, name)}"
            )
    return with_values(options, {"gpus": AUTO})


def fewest_gpus(options: Options, goal: Goal = NOTHING) -> Fewest:
    """One GPU, two, ... up to a whole node, then whole nodes."""
    one, wanted = _sized(options, 1), goal.at(card_named(options))
    check_timed(one.job(), goal)
    total, micro_batch = one.workload.global_batch, options.micro_batch
    each = int(micro_batch) if micro_batch else 1  # a whole number: it was read above
    even = [gpus for gpus in _counts(one) if total is None or total % (gpus * each) == 0]

    def asked(gpus: int) -> tuple[Job, dict[str, Any]]:
        tell(f"trying {gpus:,} GPU{'s' if gpus > 1 else ''}")
        request = _sized(options, gpus)
        return request.job(), request.fixed

    if wanted.tokens is None or wanted.deadline is None:
        return fewest(asked, even, node(one), one.reserve)
    least = least_seconds(one.job(), wanted.tokens) / wanted.deadline

    def late(job: Job, fixed: dict[str, Any]) -> float:
        found = plan(job, fixed, reserve=one.reserve, rescue=False).chosen
        return (run_of(found, wanted).late or 0.0) if found else inf

    return fewest(asked, even, node(one), one.reserve, late, lambda gpus: gpus >= least)


def larger(options: Options, gpus: int) -> list[int]:
    """Counts to compare costs of, from one on: doubled within a node and in nodes beyond it."""
    width = node(_sized(options, 1))
    within = [gpus * 2**power for power in range(4) if gpus * 2**power < width]
    nodes = max(1, -(-gpus // width))
    return [*within, *(width * nodes * 2**power for power in range(4) if width * nodes * 2**power <= MOST)]


def node(request: Request) -> int:
    """GPUs of a whole one."""
    return request.cluster.node_width or USUAL_NODE


def counted(options: Options, found: Fewest) -> Options:
    """The same options with the number that was found, or with the largest that was tried."""
    return with_values(options, {"gpus": str(found.gpus or found.smaller)})


def _counts(one: Request) -> list[int]:
    width = node(one)
    return [*range(1, width), *range(width, max(MOST, width) + 1, width)]


def _sized(options: Options, gpus: int) -> Request:
    return read(with_values(options, {"gpus": str(gpus)}))
