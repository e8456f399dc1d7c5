"""What GPT-NeoX hands to DeepSpeed of its own files (megatron/neox_arguments/deepspeed_args.py and arguments.py).

Its keys may have dashes. It reads them with DeeperSpeed, a copy of DeepSpeed 0.16.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zeroplan.check.document import Document, Member, ValueNode
from zeroplan.check.kind import NEOX

RELEASE = "0.16.5"
PIPELINE, PRECISION = "pipe_parallel_size", "precision"
SECTIONS = {"fp16": "fp16", "bfloat16": "bf16"}
"""Values of `precision`, and the section that each turns on."""
OWN = ("fp16.fp16", "fp16.type", "bf16.type")
"""Keys of its own in sections of DeepSpeed's, which 0.16.5 does not read."""
HANDED_ON = (
    "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "optimizer", "scheduler",
    "fp16", "bf16", "amp", "prescale_gradients", "gradient_predivide_factor", "sparse_gradients", "gradient_clipping",
    "zero_optimization", "zero_allow_untested_optimizer", "steps_per_print", "wall_clock_breakdown", "dump_state",
    "flops_profiler", "communication_data_type", "activation_checkpointing", "sparse_attention", "data_efficiency",
    "tensorboard", "wandb", "csv_monitor", "comms_logger", "checkpoint", "data_types",
)  # fmt: skip


def is_neox(config: Mapping[str, Any]) -> bool:
    return not NEOX.isdisjoint(config)


def handed_on(document: Document) -> Document:
    """The config, each key where the file has it."""
    named = {one.name.replace("-", "_"): one for one in document.root.members or ()}
    members = [Member(name, one.start, one.end, one.node) for name, one in named.items() if name in HANDED_ON]
    precision = named.get(PRECISION)
    section = None if precision is None else SECTIONS.get(str(precision.node.scalar))
    if precision is not None and section is not None and section not in named:
        start, end = precision.node.start, precision.node.end
        on = Member("enabled", start, end, ValueNode(start, end, scalar=True))
        members.append(Member(section, precision.start, precision.end, ValueNode(start, end, members=[on])))
    root = ValueNode(document.root.start, document.root.end, members=members)
    return Document(document.name, document.text, root, document.remarks)


def trains_pipeline(config: Mapping[str, Any]) -> bool:
    """Whether it trains a PipelineModule: of a single stage too."""
    stages = config.get(PIPELINE, config.get(PIPELINE.replace("_", "-"), 0))
    return isinstance(stages, int) and stages >= 1
