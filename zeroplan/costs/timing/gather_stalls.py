"""What stage 3's gathers make a pass wait where nothing is reduced in it: of identical layers only the ends matter.

Gathers run one after the other and wait for no work (order.py). So a pass waits for the one that comes latest: its
seconds so far less those of the work before its first read, both of which grow evenly from layer to alike layer.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence

from zeroplan.costs.deepspeed.cache import cached
from zeroplan.costs.deepspeed.event_log import RepeatedBlock
from zeroplan.costs.deepspeed.events import Gather
from zeroplan.costs.deepspeed.fetch import distinct, gathers_key, micro_steps
from zeroplan.costs.deepspeed.module_hooks import cached_per_execution
from zeroplan.costs.timing.order import EVENT, FOR_GATHER, GATHER, EventOrder, StreamEvent, done_before, read_at
from zeroplan.specs.job import Job

Point = tuple[float, float | None]
"""Elements gathered up to a call and with it; the share of the work before its first read, None where it has none."""


def alone(job: Job, *, first: bool = False) -> EventOrder:
    """Gathers and waits that stall each pass as long as all of them do; `first` as `order`."""
    return _alone(job)[0 if first else -1]


@cached(gathers_key)
def _alone(job: Job) -> list[EventOrder]:
    passes = list(enumerate(zip(_places(job), done_before(job), strict=True)))
    return [
        EventOrder(
            *(
                tuple(_events(list(_points(step.gathers, pass_index, places, share))))
                for pass_index, (places, share) in passes
            )
        )
        for step in distinct(micro_steps(job))
    ]


@cached_per_execution
def _places(job: Job) -> list[dict[int, list[int]]]:
    """The hooks that read each tensor, in forward and in backward."""
    result: list[dict[int, list[int]]] = []
    for by_hook in read_at(job):
        places: dict[int, list[int]] = {}
        for at, tensors in by_hook.items():
            for index in tensors:
                places.setdefault(index, []).append(at)
        result.append(places)
    return result


def _points(
    blocks: Sequence[RepeatedBlock[Gather]],
    pass_index: int,
    places: Mapping[int, Sequence[int]],
    share: Sequence[float],
) -> Iterator[Point]:
    """Points of a pass; of a block that comes many times those of its first and of its last time."""
    gathered = 0
    for block in blocks:
        here = [gather for gather in block.events if gather.pass_index == pass_index]
        each = sum([gather.elements for gather in here])
        for number in (0, block.times - 1)[: block.times]:
            by, so_far = block.offset.times(number), gathered + number * each
            for gather in here:
                so_far += gather.elements
                at = min([_next(places.get(index + by.tensors, ()), gather.at + by.hooks) for index in gather.tensors])
                yield so_far, share[at] if at < NEVER else None
        gathered += block.times * each


NEVER = 1 << 60


def _next(hooks: Sequence[int], at: int) -> int:
    result = bisect_left(hooks, at)
    return hooks[result] if result < len(hooks) else NEVER


def _events(points: Sequence[Point]) -> Iterator[StreamEvent]:
    """Each point is a gather that is waited for, of all since the one before."""
    total, before = max((so_far for so_far, _share in points), default=0.0), 0.0
    for number, (so_far, share) in enumerate(points):
        yield EVENT((GATHER, 0.0, (so_far - before) / total, number))
        if share is not None:
            yield EVENT((FOR_GATHER, share, 0.0, number))
        before = so_far
