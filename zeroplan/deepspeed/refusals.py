"""What DeepSpeed 0.19.8 refuses although each key is known and each value of its kind: one row per condition."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from zeroplan.deepspeed.facts import Facts
from zeroplan.deepspeed.values import AUTO
from zeroplan.errors import ContradictionError

OFFLOAD, PARAM = "zero_optimization.offload_optimizer", "zero_optimization.offload_param"


class Refusal(NamedTuple):
    holds: Callable[[Facts], object]
    source: str
    """File and line below deepspeed/ where 0.19.8 stops."""
    found: str
    instead: str
    rule: str = ""
    """What `zeroplan check` calls it; empty where another rule says it."""
    key: str = ""
    """The dotted path that it is about."""
    since: str = ""
    """First version that refuses it; empty: all that are known."""
    until: str = ""
    """First version that takes it again."""


def refuse(facts: Facts, table: tuple[Refusal, ...]) -> None:
    """Raises `ContradictionError` for the first row whose condition holds."""
    for row in table:
        if row.holds(facts):
            found = row.found.format(stage=facts.stage)
            raise ContradictionError(f"{facts.place}: {found}; DeepSpeed refuses that ({row.source}), {row.instead}")


def partial_offload_below_stage_3(c: Facts) -> bool:
    return c.stage < 3 and c(f"{OFFLOAD}.ratio") < 1


def partial_offload_of_another_optimizer(c: Facts) -> bool:
    return c.stage == 3 and c.offloads_optimizer and c(f"{OFFLOAD}.ratio") < 1 and not c.builds_cpu_adam


def optimizer_on_nvme_without_path(c: Facts) -> bool:
    return c.stage == 3 and c(f"{OFFLOAD}.device") == "nvme" and c(f"{OFFLOAD}.nvme_path") is None


def parameters_on_nvme_without_path(c: Facts) -> bool:
    return c.stage == 3 and c(f"{PARAM}.device") == "nvme" and c(f"{PARAM}.nvme_path") is None


def odd_allgather_bucket(c: Facts) -> bool:
    size = c("zero_optimization.allgather_bucket_size")
    return c.stage in (1, 2) and size != AUTO and size % 2 == 1


def legacy_stage_1(c: Facts) -> bool:
    return c.stage > 0 and bool(c("zero_optimization.legacy_stage1"))


def norm_off_at_another_stage(c: Facts) -> bool:
    return c.stage not in (1, 2) and not c("zero_optimization.compute_grad_norm")


def norm_off_with_clipping(c: Facts) -> bool:
    clipping = c("gradient_clipping")
    return not c("zero_optimization.compute_grad_norm") and isinstance(clipping, int | float) and clipping > 0


def norm_off_with_offload(c: Facts) -> bool:
    return not c("zero_optimization.compute_grad_norm") and c.offloads_optimizer


def norm_off_in_bf16_optimizer(c: Facts) -> bool:
    fp32 = c.stated_dtype("data_types.grad_accum_dtype") == "fp32"
    off = not c("zero_optimization.compute_grad_norm") and c.stage == 1 and not c.offloads_optimizer
    return off and fp32 and c("bf16.enabled") is True


def zenflow_without_offload(c: Facts) -> bool:
    return c.stage in (1, 2) and zenflow(c) and not c.offloads_optimizer


def zenflow(c: Facts) -> bool:
    return c.stated("zero_optimization.zenflow") is not None


def adds_gradients(c: Facts) -> bool:
    return bool(c("gradient_allreduce_op") == "sum")


def reduces_each_gradient_to_its_owner(c: Facts) -> bool:
    """reduce_scatter at stage 3, and at stage 2 where gradients are averaged: both check the scaling."""
    averages = c.stage == 3 or (c.stage == 2 and not adds_gradients(c))
    return averages and bool(c("zero_optimization.reduce_scatter"))


def quantized_without_reduce_scatter(c: Facts) -> bool:
    quantized = c("zero_optimization.zero_quantized_gradients")
    return c.stage == 3 and quantized and not c("zero_optimization.reduce_scatter")


def user_accumulates_with_overlap(c: Facts) -> bool:
    return not c("managed_gradient_accumulation") and c.stage < 2 and c.overlaps


DATA = "data_efficiency.data_sampling"


REFUSALS: tuple[Refusal, ...] = (
    Refusal(
        lambda c: c.stated(f"{DATA}.dynamic_batching.enabled") and not c.states(f"{DATA}.dynamic_batching.max_tokens"),
        "runtime/data_pipeline/config.py:get_dynamic_batching",
        f"{DATA}.dynamic_batching is enabled without max_tokens", 'write "max_tokens": 4096',
        rule="ZP121", key=f"{DATA}.dynamic_batching.enabled", since="0.16.5",
    ),
    Refusal(
        lambda c: c.stated(f"{DATA}.curriculum_learning.enabled")
        and not c.states(f"{DATA}.curriculum_learning.curriculum_metrics"),
        "runtime/data_pipeline/config.py:get_curriculum_learning",
        f"{DATA}.curriculum_learning is enabled without curriculum_metrics", 'write "curriculum_metrics": {...}',
        rule="ZP121", key=f"{DATA}.curriculum_learning.enabled",
    ),
    Refusal(
        partial_offload_below_stage_3, "runtime/zero/config.py:399",
        f"{OFFLOAD}.ratio under 1 at stage {{stage}}", 'write "stage": 3, or leave ratio out',
        rule="ZP506", key="zero_optimization.offload_optimizer.ratio", since="0.15.0",
    ),
    Refusal(
        partial_offload_of_another_optimizer, "runtime/zero/stage3.py:316",
        f"{OFFLOAD}.ratio under 1 without DeepSpeed's Adam for the CPU", 'write "type": "AdamW", or leave ratio out',
        rule="ZP522", key="zero_optimization.offload_optimizer.ratio",
    ),
    Refusal(
        optimizer_on_nvme_without_path, "runtime/zero/stage3.py:840",
        f"{OFFLOAD} has device nvme and no nvme_path", 'write "nvme_path": "/local_nvme"',
        rule="ZP504", key="zero_optimization.offload_optimizer.device",
    ),
    Refusal(
        parameters_on_nvme_without_path, "runtime/zero/partition_parameters.py:1230",
        f"{PARAM} has device nvme and no nvme_path", 'write "nvme_path": "/local_nvme"',
        rule="ZP504", key="zero_optimization.offload_param.device",
    ),
    Refusal(
        odd_allgather_bucket, "runtime/zero/stage_1_and_2.py:390",
        "zero_optimization.allgather_bucket_size is odd", 'write "allgather_bucket_size": 500000000',
        rule="ZP405", key="zero_optimization.allgather_bucket_size",
    ),
    Refusal(
        legacy_stage_1, "runtime/engine.py:2650",
        "zero_optimization.legacy_stage1 is true", "leave it out",
        rule="ZP406", key="zero_optimization.legacy_stage1",
    ),
    Refusal(
        norm_off_at_another_stage, "runtime/zero/config.py:compute_grad_norm_valid",
        "zero_optimization.compute_grad_norm is false at stage {stage}", 'write "compute_grad_norm": true',
        rule="ZP417", key="zero_optimization.compute_grad_norm", since="0.19.7",
    ),
    Refusal(
        norm_off_with_clipping, "runtime/zero/stage_1_and_2.py:213",
        "zero_optimization.compute_grad_norm is false with gradient_clipping, which is 1.0 by default",
        'write "gradient_clipping": 0',
        rule="ZP417", key="zero_optimization.compute_grad_norm", since="0.19.7",
    ),
    Refusal(
        lambda c: zenflow(c) and not c("zero_optimization.compute_grad_norm"), "runtime/zero/stage_1_and_2.py:215",
        "zero_optimization.compute_grad_norm is false with zenflow", 'write "compute_grad_norm": true',
        rule="ZP417", key="zero_optimization.compute_grad_norm", since="0.19.7",
    ),
    Refusal(
        norm_off_with_offload, "runtime/zero/stage_1_and_2.py:218",
        "zero_optimization.compute_grad_norm is false with offload_optimizer", 'write "compute_grad_norm": true',
        rule="ZP417", key="zero_optimization.compute_grad_norm", since="0.19.7",
    ),
    Refusal(
        norm_off_in_bf16_optimizer, "runtime/engine.py:2308",
        "zero_optimization.compute_grad_norm is false at stage 1 in bf16 with fp32 accumulation",
        'write "compute_grad_norm": true, or "stage": 2',
        rule="ZP417", key="zero_optimization.compute_grad_norm", since="0.19.7",
    ),
    Refusal(
        zenflow_without_offload, "runtime/zenflow/zenflow_stage_1_and_2.py:116",
        "zero_optimization.zenflow without offload_optimizer", 'write "offload_optimizer": {"device": "cpu"}',
        rule="ZP519", key="zero_optimization.zenflow", since="0.17.5",
    ),
    Refusal(
        lambda c: adds_gradients(c) and c.stage == 3, "runtime/config.py:_do_error_check",
        "gradient_allreduce_op is sum at stage 3", 'write "gradient_allreduce_op": "mean"',
        rule="ZP418", key="gradient_allreduce_op", since="0.19.6",
    ),
    Refusal(
        lambda c: adds_gradients(c) and zenflow(c), "runtime/config.py:_do_error_check",
        "gradient_allreduce_op is sum with zenflow", 'write "gradient_allreduce_op": "mean"',
        rule="ZP418", key="gradient_allreduce_op", since="0.19.6",
    ),
    Refusal(
        lambda c: adds_gradients(c) and c("compile.deepcompile"), "runtime/config.py:_do_error_check",
        "gradient_allreduce_op is sum with deepcompile", 'write "gradient_allreduce_op": "mean"',
        rule="ZP418", key="gradient_allreduce_op", since="0.19.6",
    ),
    Refusal(
        lambda c: reduces_each_gradient_to_its_owner(c) and c("prescale_gradients"),
        "runtime/zero/stage_1_and_2.py:351, stage3.py:396",
        "prescale_gradients is true at stage {stage} with reduce_scatter", 'write "prescale_gradients": false',
        rule="ZP419", key="prescale_gradients",
    ),
    Refusal(
        lambda c: reduces_each_gradient_to_its_owner(c) and c("gradient_predivide_factor") != 1,
        "runtime/zero/stage_1_and_2.py:350, stage3.py:395",
        "gradient_predivide_factor is not 1 at stage {stage} with reduce_scatter",
        'write "gradient_predivide_factor": 1.0',
        rule="ZP419", key="gradient_predivide_factor",
    ),
    Refusal(
        quantized_without_reduce_scatter, "runtime/zero/stage3.py:390",
        "zero_optimization.zero_quantized_gradients with reduce_scatter false", 'write "reduce_scatter": true',
        rule="ZP705", key="zero_optimization.reduce_scatter",
    ),
    Refusal(
        user_accumulates_with_overlap, "runtime/engine.py:2031",
        "managed_gradient_accumulation is false with overlap_comm at stage {stage}", 'write "overlap_comm": false',
        rule="ZP209", key="managed_gradient_accumulation", since="0.19.4",
    ),
)  # fmt: skip
