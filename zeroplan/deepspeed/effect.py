"""What each difference between two configs does to a job's bytes, calls and seconds, alone and beside the others."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from zeroplan.clock import Speed
from zeroplan.deepspeed.difference import BATCH, Difference
from zeroplan.deepspeed.idle import NOT_COUNTED, reason
from zeroplan.errors import ZeroplanError
from zeroplan.fit import Fit
from zeroplan.ledger import Ledger, total
from zeroplan.specs.job import Job

ROUNDED = {"step": 1e-9, "calls": 0}
ROUNDED_BYTES = 1000
"""By which sums may differ that are the same: each rank's share of a collective is a whole number of bytes."""


class Effect(NamedTuple):
    """What a config comes to, or how much more another does: bytes, calls and seconds of an optimizer step."""

    needed: int
    """Bytes of a GPU, with the CUDA context and NCCL's buffers."""
    peak: int
    """Bytes that PyTorch has allocated on a GPU at most."""
    held: int
    """Bytes that a GPU holds between steps."""
    host: int
    """Bytes of a node's memory."""
    nvme: int
    """Bytes of a node's disks."""
    calls: int
    """Calls of collectives."""
    sent: int
    """Bytes that one rank sends."""
    copied: int
    """Bytes that one rank copies between GPU, host and NVMe."""
    step: float | None
    """Seconds of an optimizer step; None where no card is named."""
    tokens_per_s_per_gpu: float | None
    """Tokens per second of one GPU; None where no card is named."""

    @property
    def nothing(self) -> bool:
        return not any(self)

    def less(self, other: Effect) -> Effect:
        return Effect(*(_less(one, two) for one, two in zip(self, other, strict=True)))


class Counted(NamedTuple):
    """A config in numbers."""

    job: Job
    ledger: Ledger
    fit: Fit
    speed: Speed | None

    @property
    def numbers(self) -> Effect:
        times, fit = self.job.strategy.micro_steps, self.fit
        return Effect(
            needed=fit.gpu.needed, peak=total(self.ledger.gpu.peak.lines), held=total(self.ledger.gpu.resident),
            host=fit.host.needed, nvme=fit.nvme.needed,
            calls=sum(transfer.calls * transfer.times(times) for transfer in self.ledger.traffic),
            sent=self.ledger.sent(times), copied=sum(entry.line.bytes for entry in self.ledger.copies),
            step=self.speed.step.total if self.speed else None,
            tokens_per_s_per_gpu=self.speed.tokens_per_gpu if self.speed else None,
        )  # fmt: skip

    @property
    def batch(self) -> int:
        """Sequences of a step."""
        return self.job.strategy.micro_batch * self.job.strategy.micro_steps * self.job.ranks


class ConfigChange(NamedTuple):
    """One key, or several that DeepSpeed takes only together."""

    differences: tuple[Difference, ...]
    alone: Effect | None = None
    """What it does to the first config; None where DeepSpeed refuses that."""
    last: Effect | None = None
    """What it does beside all others; None where DeepSpeed refuses the second config without it."""
    refused: str = ""
    """Why DeepSpeed refuses it alone."""
    reasons: tuple[str, ...] = ()
    """Why it changes nothing; empty where it does."""

    @property
    def nothing(self) -> bool:
        """Whether it changes no number, first or last of all changes."""
        return bool(self.reasons)

    @property
    def uncounted(self) -> bool:
        """Whether it may well change something that no number here has in it."""
        return any(said.startswith(NOT_COUNTED) for said in self.reasons)


class Comparison(NamedTuple):
    """Two files, and the keys that mean something else in them."""

    files: tuple[str, str]
    changes: tuple[ConfigChange, ...]
    ends: tuple[Counted, Counted] | None = None
    """Both configs in numbers; None without a model."""

    @property
    def together(self) -> Effect | None:
        """The effect of all changes at once."""
        return self.ends[1].numbers.less(self.ends[0].numbers) if self.ends else None

    @property
    def added_up(self) -> Effect | None:
        """The changes alone; None where DeepSpeed refuses one of them alone."""
        effects = [change.alone for change in self.changes]
        if not self.ends or None in effects:
            return None
        return Effect(*(_sum([each[place] for each in effects if each]) for place in range(len(Effect._fields))))

    @property
    def adds_up(self) -> bool:
        """Whether all changes do together what they do alone, in bytes, calls and seconds."""
        together, added = self.together, self.added_up
        if together is None or added is None:
            return False
        left = together.less(added)._replace(tokens_per_s_per_gpu=None)._asdict()
        return all(abs(value or 0) <= ROUNDED.get(name, ROUNDED_BYTES) for name, value in left.items())


Count = Callable[[Sequence[Difference]], Counted]
"""The first config with these differences made. Raises `ZeroplanError` where DeepSpeed refuses that."""


def changes(differences: Sequence[Difference], ends: tuple[Counted, Counted], count: Count) -> Iterator[ConfigChange]:
    """Each difference, those that DeepSpeed refuses alone with what it takes beside them."""
    before, after = (end.numbers for end in ends)
    for group, counted, refused in _groups(differences, count):
        rest = [one for one in differences if one not in group]
        without, _why = _tried(count, rest)
        alone = counted.numbers.less(before) if counted else None
        last = after.less(without.numbers) if without else None
        change = ConfigChange(group, alone, last, refused)
        idle = alone is not None and alone.nothing and (last is None or last.nothing)
        jobs = ends[0].job, ends[1].job
        yield change._replace(reasons=tuple(dict.fromkeys(reason(one, jobs) for one in group))) if idle else change


Group = tuple[tuple[Difference, ...], Counted | None, str]


def _groups(differences: Sequence[Difference], count: Count) -> list[Group]:
    """Differences that are made at once, with what the first config comes to then, or why DeepSpeed refuses it."""
    groups: list[Group] = []
    for one in differences:
        if any(one in group for group, _counted, _why in groups):
            continue
        refused = ""
        for tried in _together(one, differences):
            joined = [group for group in groups if any(each in group[0] for each in tried)]
            wanted = [*tried, *(each for group in joined for each in group[0] if each not in tried)]
            counted, why = _tried(count, wanted)
            refused = refused or why
            if counted is not None:
                groups = [group for group in groups if group not in joined]
                groups.append((tuple(wanted), counted, ""))
                break
        else:
            groups.append(((one,), None, refused))
    return groups


def _together(one: Difference, differences: Sequence[Difference]) -> Iterator[tuple[Difference, ...]]:
    """A difference alone, beside each other one, of its own section first, then with all of its section."""
    others = [other for other in differences if other != one]
    near = [other for other in others if _family(other) == _family(one)]
    yield (one,)
    for other in (*near, *(other for other in others if other not in near)):
        yield one, other
    if len(near) > 1:
        yield one, *near


def _family(one: Difference) -> str:
    """Keys that contradict each other as a rule."""
    section = one.path.rpartition(".")[0]
    return BATCH[0] if one.path in BATCH else "fp16" if section == "bf16" else section


def _tried(count: Count, made: Sequence[Difference]) -> tuple[Counted | None, str]:
    try:
        return count(made), ""
    except ZeroplanError as error:
        return None, str(error)


def _less(one: float | None, other: float | None) -> Any:
    return None if one is None or other is None else one - other


def _sum(values: Sequence[Any]) -> Any:
    return None if None in values else sum(values)
