"""7xx: how ranks are grouped, and what a machine or script must have."""

from __future__ import annotations

from collections.abc import Iterator

from zeroplan.check.finding import ERROR, WARNING, Hit
from zeroplan.check.rule import Rule, example
from zeroplan.check.rules.names import STAGE_2, STAGE_3
from zeroplan.check.rules.values import BF16
from zeroplan.check.setting import TRAINER
from zeroplan.check.subject import Subject

ZERO = "zero_optimization"
HPZ = f"{ZERO}.zero_hpz_partition_size"
QUANTIZED = ("zero_quantized_weights", "zero_quantized_gradients", "zero_quantized_nontrainable_weights")

RULES: tuple[Rule, ...] = (
    Rule(
        "ZP605", ERROR, "ZeRO without any optimizer", "runtime/engine.py:_configure_zero_optimizer",
        example(STAGE_2 % "", client_optimizer="no"), example(STAGE_2 % "", client_optimizer="yes"),
    ),
    Rule(
        "ZP701", ERROR, "hpZ groups that do not divide the GPUs", "run with 3 ranks: 3 is not divisible by 2",
        example(STAGE_3.replace("8", "3", 1) % ', "zero_hpz_partition_size": 2', gpus="3"),
        example(STAGE_3 % ', "zero_hpz_partition_size": 2', gpus="4"),
    ),
    Rule(
        "ZP702", WARNING, "hpZ groups of more GPUs than there are", "run: cut to the number of GPUs without a word",
        example(STAGE_3 % ', "zero_hpz_partition_size": 8', gpus="4"),
        example(STAGE_3 % ', "zero_hpz_partition_size": 8', gpus="8"),
    ),
    Rule(
        "ZP704", WARNING, "ZeRO++ below stage 3", "run: ignored without a word",
        example(STAGE_2 % ', "zero_quantized_gradients": true'),
        example(STAGE_3 % ', "zero_quantized_gradients": true'),
    ),
    Rule(
        "ZP706", ERROR, "Quantized weights without a GPU", "run: the operator has no build for the CPU",
        example(STAGE_3 % ', "zero_quantized_weights": true', accelerator="cpu"),
        example(STAGE_3 % ', "zero_quantized_weights": true'),
    ),
    Rule(
        "ZP709", ERROR, "Tensor-parallel groups that do not divide the GPUs", "run with 1 rank: AssertionError",
        example(BF16 % ', "tensor_parallel": {"autotp_size": 2}', gpus="1"),
        example(BF16 % ', "tensor_parallel": {"autotp_size": 2}', gpus="4"),
    ),
)  # fmt: skip


def without_optimizer(subject: Subject) -> Iterator[Hit]:
    facts = subject.facts
    if subject.setting.client_optimizer is not False or subject.setting.reader == TRAINER:
        return
    if facts.stage in (1, 2) and facts.stated("optimizer.type") is None:
        yield Hit("ZP605", subject.spelled(f"{ZERO}.stage"),
                  f"stage {facts.stage} without an optimizer: DeepSpeed refuses that",
                  '"optimizer": {"type": "AdamW", "params": {"lr": 0.0001}}')  # fmt: skip


def groups(subject: Subject) -> Iterator[Hit]:
    facts, gpus = subject.facts, subject.setting.gpus
    if gpus is None:
        return
    size, degree = facts(HPZ), facts("tensor_parallel.autotp_size")
    if facts.stage == 3 and size > gpus:
        yield Hit("ZP702", subject.spelled(HPZ), f"groups of {size} on {gpus} GPUs are cut to {gpus}",
                  f'"zero_hpz_partition_size": {gpus}')  # fmt: skip
    elif facts.stage == 3 and size > 1 and gpus % size:
        yield Hit("ZP701", subject.spelled(HPZ), f"{gpus} GPUs are no multiple of {size}: DeepSpeed refuses that",
                  '"zero_hpz_partition_size": the GPUs of a node')  # fmt: skip
    if degree > 1 and gpus % degree:
        yield Hit("ZP709", subject.spelled("tensor_parallel.autotp_size"), f"{gpus} GPUs are no multiple of {degree}: "
                  "DeepSpeed refuses that", '"autotp_size": 1')  # fmt: skip


def zero_plus_plus(subject: Subject) -> Iterator[Hit]:
    facts = subject.facts
    for name in (*QUANTIZED, "zero_hpz_partition_size"):
        path, on = f"{ZERO}.{name}", facts(f"{ZERO}.{name}")
        if facts.stage < 3 and on and on > int(name == "zero_hpz_partition_size"):
            yield Hit("ZP704", subject.spelled(path), f"{name} does nothing at stage {facts.stage}", '"stage": 3')
    if facts.stage == 3 and facts(f"{ZERO}.zero_quantized_weights") and subject.setting.accelerator == "cpu":
        yield Hit("ZP706", subject.spelled(f"{ZERO}.zero_quantized_weights"),
                  "quantized weights on the CPU: DeepSpeed stops, "
                  "the operator is there for GPUs only", '"zero_quantized_weights": false')  # fmt: skip


CHECKS = (without_optimizer, groups, zero_plus_plus)
