"""`zeroplan recommend --gpus auto`: the fewest GPUs that are enough."""

from __future__ import annotations

from typing import Any

from zeroplan.cli.options import Options
from zeroplan.cli.recommend import read
from zeroplan.cli.request_cluster import USUAL_NODE
from zeroplan.cli.several import with_values
from zeroplan.sizing import Fewest, fewest
from zeroplan.specs.job import Job

AUTO = "auto"
MOST = 4096
"""GPUs that are tried."""


def fewest_gpus(options: Options) -> Fewest:
    """One GPU, two, ... up to a whole node, then whole nodes."""
    one = read(with_values(options, {"gpus": "1"}))
    node = one.cluster.node_width or USUAL_NODE
    total, micro_batch = one.workload.global_batch, options.micro_batch
    each = int(micro_batch) if micro_batch else 1  # a whole number: it was read above
    counts = [*range(1, node), *range(node, max(MOST, node) + 1, node)]
    even = [gpus for gpus in counts if total is None or total % (gpus * each) == 0]

    def asked(gpus: int) -> tuple[Job, dict[str, Any]]:
        request = read(with_values(options, {"gpus": str(gpus)}))
        return request.job(), request.settled

    return fewest(asked, even, node, one.reserve)


def counted(options: Options, found: Fewest) -> Options:
    """The same options with the number that was found, or with the largest that was tried."""
    return with_values(options, {"gpus": str(found.gpus or found.smaller)})
