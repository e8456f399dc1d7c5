"""The single change of a config that does not fit after which it does."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from zeroplan.check.planned import Planned
from zeroplan.check.setting import TRAINER, Setting
from zeroplan.errors import ZeroplanError
from zeroplan.search import Candidate
from zeroplan.specs.optimizer import OFFLOADABLE
from zeroplan.specs.strategy import Offload

SMALL_BUCKET = 50_000_000
"""Elements: less than this messages between GPUs become slow."""


class StrategyEdit(NamedTuple):
    write: str
    fields: dict[str, Any]
    """Fields of `Strategy`, by name."""


def mended(planned: Planned, setting: Setting) -> str:
    """What to write, and what is needed then; of several single changes the fastest. Empty where none is enough."""
    proposals: list[tuple[float, str]] = []
    for change in _changes(planned, setting):
        tried = _tried(planned, change)
        if tried is None or not tried.fit.fits:
            continue
        if not planned.is_timed:
            return change.write
        proposals.append((tried.time.total / tried.sequences, change.write))
    return min(proposals)[1] if proposals else ""


def _tried(planned: Planned, change: StrategyEdit) -> Candidate | None:
    try:
        return planned.at(**change.fields)
    except ZeroplanError:
        return None


def _changes(planned: Planned, setting: Setting) -> Iterator[StrategyEdit]:
    """Cheapest in time first, as far as that is known without asking."""
    assert planned.job is not None
    strategy = planned.job.strategy
    stage, host = strategy.stage, strategy.offload_optimizer
    if stage and strategy.reduce_bucket_size > SMALL_BUCKET:
        yield StrategyEdit(f'"reduce_bucket_size": {SMALL_BUCKET}', {"reduce_bucket_size": SMALL_BUCKET})
    yield from _smaller_batches(planned, setting)
    for higher in range(stage + 1, 4):
        yield StrategyEdit(f'"stage": {higher}', {"stage": higher})
    if strategy.checkpointing == "none":
        where = "in TrainingArguments" if setting.reader == TRAINER else "model.gradient_checkpointing_enable()"
        yield StrategyEdit(f"gradient_checkpointing=True {where}" if setting.reader == TRAINER else where,
                     {"checkpointing": "full"})  # fmt: skip
    if stage and host is None and strategy.optimizer in OFFLOADABLE:
        yield StrategyEdit('"offload_optimizer": {"device": "cpu"}', {"offload_optimizer": Offload("cpu")})
    if stage == 3 and strategy.offload_param is None:
        yield StrategyEdit('"offload_param": {"device": "cpu"}', {"offload_param": Offload("cpu")})
    for name, offload in (("offload_optimizer", host), ("offload_param", strategy.offload_param)):
        if offload is not None and offload.pin_memory:
            yield StrategyEdit(f'"pin_memory": false in {name}', {name: offload._replace(pin_memory=False)})


def _smaller_batches(planned: Planned, setting: Setting) -> Iterator[StrategyEdit]:
    """Half, a quarter, ... of the micro-batch, accumulated as often: a step sees as many sequences."""
    assert planned.job is not None
    strategy = planned.job.strategy
    micro, steps = strategy.micro_batch, strategy.grad_accum
    trainer = setting.reader == TRAINER
    names = ("per_device_train_batch_size=%d, gradient_accumulation_steps=%d in TrainingArguments" if trainer else
             '"train_micro_batch_size_per_gpu": %d, "gradient_accumulation_steps": %d')  # fmt: skip
    while micro % 2 == 0:
        micro, steps = micro // 2, 2 * steps
        yield StrategyEdit(names % (micro, steps), {"micro_batch": micro, "grad_accum": steps})
