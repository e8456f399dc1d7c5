"""Rows with their predicted step times, the rows that count, and how far predictions are off."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from statistics import mean
from typing import NamedTuple

from benchmarks.published.bounds import nine_in_ten, read_reasons
from benchmarks.published.rows import FILE, Row, UncomputableError
from benchmarks.published.timing.jobs import Timed, timed
from zeroplan.clock import StepTime

THROUGHPUT = FILE.with_name("throughput.csv")
STATED = re.compile(r"not stated")
PARALLEL = ("tp", "pp", "sp", "cp", "ep")


class ComparedStep(NamedTuple):
    row: Row
    measured: float
    """Seconds of one optimizer step."""
    timed: Timed
    time: StepTime

    @property
    def error(self) -> float:
        """(predicted - measured) / measured."""
        return self.time.total / self.measured - 1


class Table(NamedTuple):
    compared: tuple[ComparedStep, ...]
    left_out: tuple[tuple[Row, str], ...]


def compare(rows: Iterable[Row]) -> Table:
    compared, left_out = [], []
    for row in rows:
        try:
            seconds = measured(row)
            found = timed(row)
            compared.append(ComparedStep(row, seconds, found, found.time))
        except UncomputableError as reason:
            left_out.append((row, str(reason)))
    return Table(tuple(compared), tuple(left_out))


def measured(row: Row) -> float:
    """Seconds of a step: as stated, or from tokens/s, or from FLOP/s under the convention of eight a parameter."""
    if seconds := row.number("step_time_s"):
        return seconds
    tokens = row.tokens * row.accumulation
    if rate := row.number("tokens_per_s_per_gpu"):
        return tokens / rate
    flops, psi = row.number("tflops_per_gpu"), row.number("params")
    if flops and psi and "deepspeedai" in row.lower("source"):
        return 8 * psi * tokens / (flops * 1e12)
    raise UncomputableError("neither step time nor tokens/s")


def is_full(row: Row) -> bool:
    return row.column("trainable") == "full" and row.column("quality") == "A"


def is_fp8(row: Row) -> bool:
    return bool(re.search(r"fp8|float8", row.lower("precision")))


def is_parallel(row: Row) -> bool:
    return any(row.degree(kind) > 1 for kind in PARALLEL)


def offloads(row: Row) -> bool:
    return row.offload not in ("", "none")


def is_core(row: Row) -> bool:
    """Dense, complete, data-parallel, without offload or fp8, with nothing left open, and not tiny."""
    stated = not any(STATED.search(row.lower(name)) for name in ("attention_impl", "checkpointing"))
    widths = all(row.count(name) for name in ("hidden", "layers", "heads", "ffn", "vocab", "seq", "micro_batch"))
    return (
        is_full(row) and widths and stated and not is_parallel(row) and not offloads(row) and not is_fp8(row)
        and row.seq * row.micro_batch >= 1024
    )  # fmt: skip


KINDS: dict[str, Callable[[Row], bool]] = {
    "core": is_core,
    "fp8, data-parallel": lambda row: is_full(row) and is_fp8(row) and not is_parallel(row),
    "offload": lambda row: is_full(row) and offloads(row) and not is_parallel(row),
    "tensor, pipeline or context parallel": lambda row: is_full(row) and is_parallel(row),
}
"""The groups of rows that something is promised for."""


class Measures(NamedTuple):
    rows: int
    mean: float
    nine_in_ten: float
    bias: float


def measure(errors: Iterable[float]) -> Measures:
    listed = list(errors)
    off = sorted(map(abs, listed))
    return Measures(len(off), mean(off), nine_in_ten(off), mean(listed))


def by(compared: Sequence[ComparedStep], key: Callable[[Row], str]) -> dict[str, list[ComparedStep]]:
    found: dict[str, list[ComparedStep]] = {}
    for one in compared:
        found.setdefault(key(one.row), []).append(one)
    return dict(sorted(found.items()))


def source_of(row: Row) -> str:
    return row.family


def mean_of_sources(compared: Sequence[ComparedStep]) -> float:
    """Of the sources' mean absolute errors."""
    return mean(measure(one.error for one in found).mean for found in by(compared, source_of).values())


def reasons() -> dict[str, str]:
    """What is known of rows that are missed, by id; no prediction reads it."""
    return read_reasons(FILE.with_name("throughput_reasons.csv"))
