"""7xx: how ranks are grouped, and what a machine or script must have."""

from __future__ import annotations

from collections.abc import Iterator

from zeroplan.check.finding import ERROR, WARNING, Hit
from zeroplan.check.rule import Rule, example
from zeroplan.check.rules.names import STAGE_2, STAGE_3
from zeroplan.check.rules.values import BF16
from zeroplan.check.setting import TRAINER
from zeroplan.check.subject import Subject
from zeroplan.deepspeed.parallelism import EXPERTS, TENSOR, indivisible

ZERO = "zero_optimization"
HPZ = f"{ZERO}.zero_hpz_partition_size"
QUANTIZED = ("zero_quantized_weights", "zero_quantized_gradients", "zero_quantized_nontrainable_weights")
KERNEL = "https://github.com/deepspeedai/DeepSpeed/issues/3992"
GROUPS = {TENSOR: "ZP709", EXPERTS: "ZP712"}

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
        example(STAGE_2 % ', "zero_quantized_weights": true'), example(STAGE_3 % ', "zero_quantized_weights": true'),
    ),
    Rule(
        "ZP706", ERROR, "Quantized weights without a GPU", "run: the operator has no build for the CPU",
        example(STAGE_3 % ', "zero_quantized_weights": true', accelerator="cpu"),
        example(STAGE_3 % ', "zero_quantized_weights": true'),
    ),
    Rule(
        "ZP714", WARNING, "Quantized gradients in bf16",
        "csrc/quantization/pt_binding.cpp of 0.19.8, read: any gradients are taken for fp16, the bits of bf16 too",
        example(STAGE_3 % ', "zero_quantized_gradients": true'),
        example((STAGE_3 % ', "zero_quantized_gradients": true')[:-1] + ', "communication_data_type": "fp16"}'),
        KERNEL,
    ),
    Rule(
        "ZP715", WARNING, "Quantized weights in bf16, in releases whose kernel reads them as fp16",
        "runtime/zero/partition_parameters.py:CUDAQuantizer of 0.19.6, read: before it the bits of bf16 went to a "
        "kernel for fp16 as they are",
        example(STAGE_3 % ', "zero_quantized_weights": true', version="0.18.8"),
        example(STAGE_3 % ', "zero_quantized_weights": true', version="0.19.6"), KERNEL, until="0.19.6",
    ),
    Rule(
        "ZP709", ERROR, "Tensor-parallel groups that do not divide the GPUs", "run with 1 rank: AssertionError",
        example(BF16 % ', "tensor_parallel": {"autotp_size": 2}', gpus="1"),
        example(BF16 % ', "tensor_parallel": {"autotp_size": 2}', gpus="4"), since="0.16.4",
    ),
    Rule(
        "ZP712", ERROR, "Expert-parallel groups that do not divide the GPUs",
        "module_inject/auto_ep_folding.py:build_folding_spec",
        example(BF16 % ', "expert_parallel": {"enabled": true, "autoep_size": 3}', gpus="8"),
        example(BF16 % ', "expert_parallel": {"enabled": true, "autoep_size": 4}', gpus="8"), since="0.19.2",
    ),
    Rule(
        "ZP713", WARNING, "A tensor-parallel size where AutoTP does not read it",
        "runtime/engine.py:autotp_size; run: each GPU holds the whole model",
        example(BF16 % ', "tensor_parallel": {"tp": {"tp_size": 2}}'),
        example(BF16 % ', "tensor_parallel": {"autotp_size": 2, "tp": {"tp_size": 2}}'), since="0.16.4",
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
    size = facts(HPZ)
    if facts.stage == 3 and size > gpus:
        yield Hit("ZP702", subject.spelled(HPZ), f"groups of {size} on {gpus} GPUs are cut to {gpus}",
                  f'"zero_hpz_partition_size": {gpus}')  # fmt: skip
    elif facts.stage == 3 and size > 1 and gpus % size:
        yield Hit("ZP701", subject.spelled(HPZ), f"{gpus} GPUs are no multiple of {size}: DeepSpeed refuses that",
                  '"zero_hpz_partition_size": the GPUs of a node')  # fmt: skip
    for wrong in indivisible(facts.config, gpus):
        if wrong.path in GROUPS:
            yield Hit(GROUPS[wrong.path], subject.spelled(wrong.path), f"{gpus} GPUs are no multiple of {wrong.size}: "
                      "DeepSpeed refuses that",
                      f'"{wrong.path.rpartition(".")[2]}": {wrong.instead}')  # fmt: skip


def nested_size(subject: Subject) -> Iterator[Hit]:
    """tp_model_init fills tensor_parallel.tp, and AutoTP asks for autotp_size alone."""
    facts, path = subject.facts, "tensor_parallel.tp.tp_size"
    size = facts.stated(path)
    if isinstance(size, int) and size > 1 and facts(TENSOR) < 2:
        yield Hit("ZP713", subject.spelled(path), f"tp_size {size} without autotp_size leaves AutoTP off: each GPU "
                  "holds the whole model", f'"autotp_size": {size} in tensor_parallel')  # fmt: skip


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


def quantized_in_bf16(subject: Subject) -> Iterator[Hit]:
    facts, version = subject.facts, subject.setting.version
    if facts.stage != 3 or facts.dtype != "bf16":
        return
    gradients = f"{ZERO}.zero_quantized_gradients"
    if facts(gradients) and facts.stated_dtype("communication_data_type") != "fp16":
        yield Hit("ZP714", subject.spelled(gradients), "between nodes the kernel reads gradients in bf16 as if they "
                  "were fp16, which makes other numbers of them", '"communication_data_type": "fp16"')  # fmt: skip
    for name in QUANTIZED[::2]:
        if facts(f"{ZERO}.{name}"):
            yield Hit("ZP715", subject.spelled(f"{ZERO}.{name}"), f"the kernel of DeepSpeed {version} reads weights in "
                      "bf16 as if they were fp16, and gathers other numbers", "deepspeed>=0.19.6")  # fmt: skip


CHECKS = (without_optimizer, groups, nested_size, zero_plus_plus, quantized_in_bf16)
