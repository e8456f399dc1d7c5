"""Releases of DeepSpeed that run a config and train otherwise than it says: run, gradients on, in each of them."""

from __future__ import annotations

from collections.abc import Iterator

from zeroplan.check.finding import ADVICE, WARNING, Hit
from zeroplan.check.rule import ISSUE, Rule, example
from zeroplan.check.subject import Subject
from zeroplan.deepspeed.values import AUTO

ZERO = "zero_optimization"
STEPS, BATCH, MICRO = "gradient_accumulation_steps", "train_batch_size", "train_micro_batch_size_per_gpu"
ACCUMULATES = ('{"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4, "bf16": {"enabled": true}, '
               '"zero_optimization": {"stage": %s}}')  # fmt: skip
ON_HOST = '2, "offload_optimizer": {"device": "cpu", "pin_memory": true}'
IN_FP32 = ('{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "communication_data_type": "fp32", '
           '"zero_optimization": {"stage": 2, "reduce_bucket_size": 1000000}}')  # fmt: skip
MUON = ('{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "optimizer": {"type": "Muon", "params": '
        '{"lr": 0.02}}, "zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu", "pin_memory": true}}}')
MUON_ALONE = ('{"train_micro_batch_size_per_gpu": 1, "bf16": {"enabled": true}, "optimizer": {"type": "Muon", '
              '"params": {"lr": 0.02}}}')  # fmt: skip
LEAST_LOST = 3
"""Micro-batches of which the first and the last count."""
SMALL_BUCKET = 50_000_000
"""Elements: the embedding of a small language model has more."""

RULES: tuple[Rule, ...] = (
    Rule(
        "ZP428", WARNING, "Accumulation at stage 2 in releases that train on the last micro-batch alone",
        "runtime/zero/stage_1_and_2.py:independent_gradient_partition_epilogue of 0.17.6 to 0.18.2, run",
        example(ACCUMULATES % 2, version="0.18.2"), example(ACCUMULATES % 2, version="0.18.3"), ISSUE + "7718",
        since="0.17.6", until="0.18.3",
    ),
    Rule(
        "ZP529", WARNING, "Accumulation at stage 2 with offload in releases that lose micro-batches",
        "runtime/zero/stage_1_and_2.py:async_accumulate_grad_in_cpu_via_gpu of 0.15.2 to 0.18.9, run",
        example(ACCUMULATES % ON_HOST, version="0.18.9"), example(ACCUMULATES % ON_HOST, version="0.19.0"),
        "https://github.com/deepspeedai/DeepSpeed/pull/7967", since="0.15.2", until="0.19.0",
    ),
    Rule(
        "ZP327", WARNING, "bf16 at stage 0 in releases that scale its gradients",
        "runtime/fp16/unfused_optimizer.py and runtime/engine.py of 0.17.6 to 0.18.5, run",
        example(ACCUMULATES % 0, version="0.18.5"), example(ACCUMULATES % 0, version="0.18.6"), ISSUE + "7837",
        since="0.17.6", until="0.18.6",
    ),
    Rule(
        "ZP631", WARNING, "Muon with an offloaded optimizer in releases that do not apply it",
        "runtime/zero/stage_1_and_2.py of 0.18.5 to 0.19.2, run: no call of muon_update",
        example(MUON, version="0.19.0"), example(MUON, version="0.19.8"), ISSUE + "8463",
        since="0.18.5", until="0.19.3",
    ),
    Rule(
        "ZP632", WARNING, "Muon at stage 0 in releases that do not apply it",
        "runtime/engine.py of 0.17.6 to 0.19.6, run: no call of muon_update",
        example(MUON_ALONE, version="0.19.6"), example(MUON_ALONE, version="0.19.8"), ISSUE + "8441",
        since="0.17.6", until="0.19.7",
    ),
    Rule(
        "ZP717", WARNING, "Reduction in another dtype in releases that stop at a large parameter",
        "runtime/zero/stage_1_and_2.py of 0.17.2 to 0.18.1, run: KeyError, RuntimeError",
        example(IN_FP32, version="0.18.1"), example(IN_FP32, version="0.18.2"), ISSUE + "7653",
        since="0.17.2", until="0.18.2",
    ),
)  # fmt: skip


def micro_batches(subject: Subject) -> int | None:
    """Those of a step; None where the file and what goes with it do not tell."""
    stated, arguments = subject.stated(STEPS), subject.setting.trainer_arguments
    if stated == AUTO and arguments is not None:
        stated = arguments(STEPS)
    if isinstance(stated, int) and not isinstance(stated, bool):
        return stated
    batch, micro, gpus = subject.stated(BATCH), subject.stated(MICRO), subject.setting.gpus
    if stated is None and type(batch) is int and type(micro) is int and gpus and micro > 0:
        return batch // (micro * gpus)
    return None if stated == AUTO or AUTO in (batch, micro) or (batch and micro) else 1


def lost_micro_batches(subject: Subject) -> Iterator[Hit]:
    facts, count, version = subject.facts, micro_batches(subject), subject.setting.version
    if facts.stage != 2:
        return
    path = subject.spelled(STEPS) or subject.spelled(f"{ZERO}.stage")
    severity = ADVICE if count is None else ""
    if facts.offloads_optimizer and (count is None or count >= LEAST_LOST):
        yield Hit("ZP529", path, f"DeepSpeed {version} adds up the first and the last of {count or 'the'} "
                  "micro-batches at stage 2 with offload, and no others", "deepspeed>=0.19.0, or stage 1",
                  severity)  # fmt: skip
    if not facts.offloads_optimizer and (count is None or count > 1):
        yield Hit("ZP428", path, f"DeepSpeed {version} trains on the last of {count or 'the'} micro-batches alone at "
                  "stage 2", "deepspeed>=0.18.3, or stage 1", severity)  # fmt: skip


def scaled_gradients(subject: Subject) -> Iterator[Hit]:
    facts, version = subject.facts, subject.setting.version
    if facts.stage != 0 or facts.dtype != "bf16" or facts.optimizer:
        return
    what = ("reports gradients 65,536 times too large, and does not set them to zero" if subject.table.before("0.18.3")
            else "divides gradients by 65,536 that it never multiplied, so that clipping does nothing")  # fmt: skip
    yield Hit("ZP327", subject.spelled(f"{ZERO}.stage") or subject.spelled("bf16.enabled"),
              f"DeepSpeed {version} {what}, in bf16 at stage 0", "deepspeed>=0.18.6, or stage 1")  # fmt: skip


def reduced_in_another_dtype(subject: Subject) -> Iterator[Hit]:
    facts, path = subject.facts, f"{ZERO}.reduce_bucket_size"
    reduced, bucket = facts.stated_dtype("communication_data_type"), facts(path)
    if facts.stage not in (1, 2) or reduced is None or facts.dtype in (None, reduced):
        return
    if bucket == AUTO or (isinstance(bucket, int | float) and bucket < SMALL_BUCKET):
        yield Hit("ZP717", subject.spelled("communication_data_type"), f"{reduced} for gradients in {facts.dtype}: "
                  f"DeepSpeed {subject.setting.version} stops at a parameter larger than reduce_bucket_size",
                  "deepspeed>=0.18.2")  # fmt: skip


def muon_without_muon(subject: Subject) -> Iterator[Hit]:
    facts = subject.facts
    if facts.optimizer == "muon" and facts.stage == 0:
        what = f"DeepSpeed {subject.setting.version} updates no matrix by Muon at stage 0"
        yield Hit("ZP632", subject.spelled("optimizer.type"), what, "deepspeed>=0.19.7, or stage 1")
    if facts.optimizer == "muon" and facts.stage in (1, 2) and facts.offloads_optimizer:
        yield Hit("ZP631", subject.spelled("optimizer.type"), f"DeepSpeed {subject.setting.version} updates no matrix "
                  "by Muon where the optimizer is offloaded: its gradients go to the host as they are",
                  "deepspeed>=0.19.8, or no offload_optimizer")  # fmt: skip


CHECKS = (lost_micro_batches, scaled_gradients, reduced_in_another_dtype, muon_without_muon)
