"""What cannot run again in backward: where torch, transformers or DeepSpeed stops, or would compute something else."""

from __future__ import annotations

from zeroplan.errors import ContradictionError
from zeroplan.specs.checkpointing import DEEPSPEED, PRODUCTS, SELECTIVE
from zeroplan.specs.job import Job

CODE = "runtime/activation_checkpointing/checkpointing.py"
PASS_ARGUMENTS = ("bert", "gpt2", "gpt_bigcode")
"""Families whose model calls a layer with more than one argument by position."""


def check(job: Job) -> None:
    """Raises `ContradictionError` for a checkpointing that this model cannot run with."""
    kind = job.strategy.checkpointing
    if kind != "none" and not job.model.checkpoints:
        raise ContradictionError(
            f"--checkpointing: found {kind} for {job.model.name}, whose class transformers does not checkpoint "
            f"({job.model.architecture}.supports_gradient_checkpointing is false); write --checkpointing none"
        )
    if job.strategy.recomputing.reentrant and job.model.hands_through:
        raise ContradictionError(
            f"--checkpointing: found {kind} for {job.model.name}, whose layers return tensors that they are given: "
            "what a reentrant checkpoint makes of them is not planned; write --checkpointing full"
        )
    if kind == SELECTIVE and job.strategy.attention in job.model.own_attention:
        raise ContradictionError(
            f"--checkpointing: found selective for {job.model.family}, whose layers compute {job.strategy.attention} "
            "attention themselves and not through transformers' AttentionInterface, which is what can be wrapped; "
            "write --checkpointing full"
        )
    if kind == SELECTIVE and job.model.is_recorded:
        raise ContradictionError(
            f"--checkpointing: found selective for {job.model.name}, in whose recording attention is not by itself; "
            "write --checkpointing full"
        )
    if kind == PRODUCTS and (what := job.model.changes_products):
        raise ContradictionError(
            f"--checkpointing: found {PRODUCTS} for {job.model.family}, which {what}: torch refuses that in backward "
            "(RuntimeError: Tensor cached during selective activation checkpoint has been mutated); "
            "write --checkpointing full"
        )
    if kind == PRODUCTS and job.strategy.runs_zero_linear and _has_biases(job):
        raise ContradictionError(
            f"--checkpointing: found {PRODUCTS} at stage 3 for {job.model.family}, whose linear layers have biases: "
            "DeepSpeed's own function adds them in place to a product that is kept, what runs again has them twice, "
            "and gradients are wrong (runtime/zero/linear.py:91); write --checkpointing full, --stage 2, or "
            '"memory_efficient_linear": false'
        )
    if kind == DEEPSPEED and (configured := _configured(job)):
        raise ContradictionError(f"activation_checkpointing: {configured}")


def _has_biases(job: Job) -> bool:
    """Whether torch's linear layers in a layer have biases."""
    named = [tensor.name for tensor in job.model.tensors if tensor.linear]
    return any(name.endswith(".bias") and any(part.isdecimal() for part in name.split(".")) for name in named)


def _configured(job: Job) -> str:
    """What deepspeed.checkpointing stops at, and what to write instead."""
    how, family, layers = job.strategy.activation_checkpointing, job.model.family, job.model.shape.layers
    if how.contiguous and not how.partitions:
        return (
            "found contiguous_memory_optimization without partition_activations; DeepSpeed refuses that "
            f'({CODE}:1229), write "partition_activations": true'
        )
    if how.contiguous and (how.number or 0) < layers:
        result = "no number_checkpoints" if how.number is None else f"number_checkpoints {how.number}"
        return (
            f"found contiguous_memory_optimization with {result} for {layers} layers; DeepSpeed stops "
            f'({CODE}:{1231 if how.number is None else 428}), write "number_checkpoints": {layers}'
        )
    if how.partitions and family in PASS_ARGUMENTS:
        return (
            f"found partition_activations for {family}, whose layers get more than one argument by position; DeepSpeed "
            f"hands them one more in backward and stops ({CODE}:738), leave it out"
        )
    if how.through_pool and family == "gpt2" and job.strategy.attention == "eager":
        return (
            "found cpu_checkpointing for gpt2 with eager attention, whose layers get one mask by position; DeepSpeed "
            f"empties it after the first ({CODE}:get_offloaded_activations_for_backward), write --attention sdpa"
        )
    if how.through_pool and job.strategy.backend == "cpu":
        return (
            "found cpu_checkpointing without partition_activations on the CPU accelerator, where DeepSpeed empties the "
            f"only copy and stops ({CODE}:get_cpu_activations_for_backward), leave it out"
        )
    return ""
