"""How far a number holds, as one sign before it, and one line that says what the signs mean."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

from rich.text import Text

from zeroplan.costs.passes import timeline_of
from zeroplan.sources import DEEPSPEED, FLASH_ATTN
from zeroplan.specs.job import Job
from zeroplan.specs.strategy import Strategy

if TYPE_CHECKING:
    from zeroplan.clock import Speed

EXACT, NEAR, PUBLISHED, ASSUMED = "=", "≈", "~", "?"
"""From the surest to the least sure."""
ASSUMED_RATE = "rate assumed"
"""The words of an interval's reason."""


class Marks(NamedTuple):
    """Marks of the numbers of one job, by how sure they are."""

    held: str
    """Bytes that a GPU holds between steps; traffic and offload's copies likewise."""
    activations: str
    peak: str
    outside: str
    """What the process takes beside PyTorch's allocator."""
    host: str

    @property
    def of_card(self) -> tuple[str, ...]:
        """Marks of the parts that fill a card."""
        return self.held, self.activations, self.peak, self.outside

    @property
    def needed(self) -> str:
        """Mark of a sum that has both the peak and what is outside of it in it."""
        return least((self.peak, self.outside))


def marks(job: Job) -> Marks:
    """What was compared with runs for such a job; `docs/evidence.md` has the runs."""
    outside = EXACT if job.strategy.backend == "cpu" else PUBLISHED
    if job.model.approximate or job.strategy.not_counted:
        return Marks(ASSUMED, ASSUMED, ASSUMED, outside, ASSUMED)
    if timeline_of(job) is None:
        return Marks(EXACT, ASSUMED, ASSUMED, outside, ASSUMED)
    return Marks(EXACT, EXACT, NEAR, outside, ASSUMED)


def of_time(job: Job, speed: Speed | None) -> str:
    """Mark of seconds: published steps of dense decoders, trained in full on named cards, lie around them, where no
    rate that makes most of the interval is assumed.
    """
    model = job.model
    other = model.shape.experts or model.approximate or model.frozen or model.images or not model.shape.causal
    is_compared = job.cluster.gpu is not None and not other
    return PUBLISHED if is_compared and speed and ASSUMED_RATE not in speed.interval.reason else ASSUMED


def least(several: Iterable[str]) -> str:
    """The least sure of them."""
    return max(several, key=(EXACT, NEAR, PUBLISHED, ASSUMED).index)


def legend(job: Job, used: Iterable[str], *, more: bool = False) -> Text:
    """One line on the signs that a screen has; `more`: and that there is a longer one."""
    meanings = {
        EXACT: f"DeepSpeed {DEEPSPEED} run without a GPU{_kernels(job.strategy)}", NEAR: "within 1 %",
        PUBLISHED: "published runs", ASSUMED: "not compared",
    }  # fmt: skip
    if job.model.approximate:
        meanings[ASSUMED] = f"undescribed family, memory within {job.model.approximate:.0%}"
    known = set(used)
    said = [f"{mark} {meaning}" for mark, meaning in meanings.items() if mark in known]
    return Text("  ".join([*said, *["more: -v, -vv"] * more]), style="dim")


def _kernels(strategy: Strategy) -> str:
    """What could not run in them, for it needs a GPU."""
    return f" (flash-attn {FLASH_ATTN}'s kernels aside)" if strategy.flash else ""
