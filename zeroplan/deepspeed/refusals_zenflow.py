"""What stops DeepSpeed 0.19.8 with zero_optimization.zenflow at stages 1 and 2: one row per condition."""

from __future__ import annotations

from zeroplan.deepspeed.facts import Facts
from zeroplan.deepspeed.refusals import Refusal
from zeroplan.deepspeed.refusals_precision import bf16_masters, fp16_masters
from zeroplan.deepspeed.values import AUTO
from zeroplan.deepspeed.zenflow import SECTION, accumulates_apart, switched_on

TORCH_ADAMW = ("lr", "betas", "eps", "weight_decay", "amsgrad", "maximize", "foreach", "capturable", "differentiable",
               "fused")  # fmt: skip
"""What the class of the chosen columns takes, a torch.optim.AdamW: it is given optimizer.params as they stand."""


def on(c: Facts) -> bool:
    return c.stage in (1, 2) and switched_on(c)


def numbers_for_auto(c: Facts) -> bool:
    return switched_on(c) and c(f"{SECTION}.select_strategy") == AUTO and c(f"{SECTION}.select_interval") != AUTO


def auto_for_numbers(c: Facts) -> bool:
    return switched_on(c) and c(f"{SECTION}.select_strategy") != AUTO and c(f"{SECTION}.select_interval") == AUTO


def chooses_more_often_than_it_updates(c: Facts) -> bool:
    """Epochs are only known with the data."""
    if not switched_on(c) or c(f"{SECTION}.select_strategy") != "step":
        return False
    select, update = c(f"{SECTION}.select_interval"), c(f"{SECTION}.update_interval")
    return isinstance(select, int) and isinstance(update, int) and select != 0 and select < update


def offloads_without_overlap(c: Facts) -> bool:
    return on(c) and bool(c(f"{SECTION}.offload")) and not c.overlaps


def reduces_whole_buckets(c: Facts) -> bool:
    return on(c) and not c("zero_optimization.reduce_scatter")


def has_another_optimizer(c: Facts) -> bool:
    """Adam's step, and Muon's, take the number of the step; the process of overlap_step knows Adam alone."""
    known = ("", "adam", "adamw") if c(f"{SECTION}.overlap_step") else ("", "adam", "adamw", "muon")
    return on(c) and c.optimizer not in known


def has_other_parameters(c: Facts) -> bool:
    return on(c) and any(name not in TORCH_ADAMW for name in c.section("optimizer.params"))


def accumulates_apart_at_stage_1(c: Facts) -> bool:
    """Gradients then lie in grad_accum, and ZenFlow looks for them in grad."""
    return on(c) and c.stage == 1 and accumulates_apart(c)


def accumulates_apart_in_another_process(c: Facts) -> bool:
    """The gradients that the host reads are not where stage 2 puts them."""
    return on(c) and accumulates_apart(c) and bool(c(f"{SECTION}.overlap_step"))


REFUSALS: tuple[Refusal, ...] = (
    Refusal(
        numbers_for_auto, "runtime/zenflow/engine.py:39",
        f"{SECTION}.select_interval is a number and select_strategy is auto, as it is by default",
        'write "select_strategy": "step", or leave select_interval out',
        rule="ZP523", key="zero_optimization.zenflow.select_interval", since="0.17.5",
    ),
    Refusal(
        auto_for_numbers, "runtime/zenflow/engine.py:45",
        f"{SECTION}.select_strategy is step or epoch and select_interval is auto, as it is by default",
        'write "select_interval": 100',
        rule="ZP523", key="zero_optimization.zenflow.select_strategy", since="0.17.5",
    ),
    Refusal(
        chooses_more_often_than_it_updates, "runtime/zenflow/engine.py:63",
        f"{SECTION}.select_interval is under update_interval", "write a multiple of update_interval",
        rule="ZP523", key="zero_optimization.zenflow.select_interval", since="0.17.5",
    ),
    Refusal(
        offloads_without_overlap, "runtime/zenflow/zenflow_stage_1_and_2.py:76",
        f"{SECTION}.offload without overlap_comm", 'write "overlap_comm": true',
        rule="ZP523", key="zero_optimization.zenflow.offload", since="0.17.5",
    ),
    Refusal(
        reduces_whole_buckets, "runtime/zenflow/zenflow_stage_1_and_2.py:457",
        f"{SECTION} with reduce_scatter false, and the first backward stops", 'write "reduce_scatter": true',
        rule="ZP523", key="zero_optimization.reduce_scatter", since="0.17.5",
    ),
    Refusal(
        has_another_optimizer, "runtime/zenflow/zenflow_stage_1_and_2.py:626",
        f"{SECTION} with an optimizer other than Adam, and the first step stops", 'write "type": "AdamW"',
        rule="ZP523", key="optimizer.type", since="0.17.5",
    ),
    Refusal(
        has_other_parameters, "ops/adam/zenflow_torch_adam.py:57",
        f"{SECTION} with a name in optimizer.params that PyTorch's AdamW does not know",
        f"keep {', '.join(TORCH_ADAMW[:4])}",
        rule="ZP523", key="optimizer.params", since="0.19.1",
    ),
    Refusal(
        lambda c: on(c) and (fp16_masters(c) or bf16_masters(c)), "runtime/zero/stage_1_and_2.py:332",
        f"{SECTION} with 16-bit master weights", "leave fp16_master_weights_and_grads and its bf16 twin out",
        rule="ZP523", key="zero_optimization.zenflow", since="0.17.5",
    ),
    Refusal(
        accumulates_apart_at_stage_1, "runtime/zenflow/zenflow_stage_1_and_2.py:336",
        f"{SECTION} at stage 1 with a data_types.grad_accum_dtype that is not the model's",
        'leave it out, or write "stage": 2',
        rule="ZP523", key="zero_optimization.zenflow", since="0.17.5",
    ),
    Refusal(
        accumulates_apart_in_another_process, "runtime/zero/stage_1_and_2.py:copy_grads_in_partition",
        f"{SECTION}.overlap_step with a data_types.grad_accum_dtype that is not the model's", "leave it out",
        rule="ZP523", key="zero_optimization.zenflow.overlap_step", since="0.19.8",
    ),
)  # fmt: skip
