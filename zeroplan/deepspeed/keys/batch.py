"""Batch sizes, accumulation, gradients' scaling and clipping: keys at the top level."""

from __future__ import annotations

from zeroplan.deepspeed.keys.key import Key

KEYS: tuple[Key, ...] = (
    Key(
        path="train_batch_size",
        kind="integer|null",
        default=None,
        meaning=(
            "Samples per optimizer step over all ranks; absent, it is micro batch * accumulation "
            "steps * data-parallel ranks."
        ),
        place="runtime/constants.py:19",
        unit="samples",
        exclusive_minimum=0,
        auto="world_size * per_device_train_batch_size * gradient_accumulation_steps",
        moves_bytes=True,
    ),
    Key(
        path="train_micro_batch_size_per_gpu",
        kind="integer|null",
        default=None,
        meaning=(
            "Samples that one rank takes through one forward and backward; absent, it follows from "
            "the other two batch keys (at least this one or train_batch_size has to be given)."
        ),
        place="runtime/constants.py:59",
        unit="samples",
        exclusive_minimum=0,
        auto="TrainingArguments.per_device_train_batch_size",
        moves_bytes=True,
    ),
    Key(
        path="gradient_accumulation_steps",
        kind="integer|null",
        default=None,
        meaning=(
            "Micro batches per optimizer step; absent, it follows from the two batch sizes, and is 1 "
            "when only one is given."
        ),
        place="runtime/constants.py:71",
        unit="micro-batches",
        exclusive_minimum=0,
        auto="TrainingArguments.gradient_accumulation_steps",
        moves_bytes=True,
    ),
    Key(
        path="managed_gradient_accumulation",
        kind="boolean",
        default=True,
        meaning=(
            "Whether DeepSpeed counts micro batches itself; when false each step() of the client "
            "updates the weights (refused with pipelines, with DeepCompile, and with overlap_comm at "
            "other stages than 2). Stages 0 and 1 then reduce in step(), stages 2 and 3 copy offloaded gradients there."
        ),
        place="runtime/constants.py:78",
        moves_bytes=True,
    ),
    Key(
        path="gradient_clipping",
        kind="number",
        default=1.0,
        meaning=(
            "Largest global gradient norm; clipping is on at 1.0 even when the key is absent, and 0 turns it off."
        ),
        survives="number",
        place="runtime/constants.py:202",
        auto="TrainingArguments.max_grad_norm",
        moves_bytes=True,
    ),
    Key(
        path="prescale_gradients",
        kind="boolean",
        default=False,
        meaning=(
            "Divides gradients before the all-reduce instead of after it; refused at stages 2 and 3 "
            "with reduce_scatter."
        ),
        place="runtime/constants.py:247",
        moves_bytes=True,
    ),
    Key(
        path="gradient_predivide_factor",
        kind="number",
        default=1.0,
        meaning=(
            "The part of the averaging division that is done before the all-reduce; other values than "
            "1 are refused at stages 2 and 3 with reduce_scatter."
        ),
        survives="number",
        place="runtime/constants.py:254",
        moves_bytes=True,
    ),
    Key(
        path="gradient_allreduce_op",
        kind="string",
        default="mean",
        meaning=(
            "Whether gradients of the ranks are averaged or added (any case); sum is refused at stage "
            "3, with ZenFlow and with DeepCompile."
        ),
        place="runtime/constants.py:261",
        choices=("mean", "sum"),
    ),
    Key(
        path="communication_data_type",
        kind="string|null",
        default=None,
        meaning=(
            "Dtype in which gradients travel (any case); absent, it is the dtype of the model: fp16, bf16 or fp32."
        ),
        survives="string|null",
        place="runtime/constants.py:215",
        choices=("fp16", "bf16", "fp32"),
        moves_bytes=True,
    ),
    Key(
        path="seq_parallel_communication_data_type",
        kind="string|null",
        default="fp32",
        meaning=("Dtype in which gradients travel when sequence parallelism spans more than one rank (any case)."),
        survives="string|null",
        place="runtime/constants.py:228",
        choices=("fp16", "bf16", "fp32"),
        moves_bytes=True,
    ),
    Key(
        path="sequence_parallel_size",
        kind="integer",
        default=1,
        meaning=(
            "Ranks that share one sequence; read only where no mpu is given, to find the "
            "data-parallel size, and by deepspeed.initialize when data_parallel_size stands beside "
            "it."
        ),
        survives="number",
        place="runtime/config.py:468",
        moves_bytes=True,
    ),
    Key(
        path="data_parallel_size",
        kind="integer|null",
        default=None,
        meaning=(
            "Data-parallel ranks of the device mesh that initialize builds when "
            "sequence_parallel_size is given too; without that key it is ignored."
        ),
        place="__init__.py:543",
        moves_bytes=True,
    ),
    Key(
        path="dataloader_drop_last",
        kind="boolean",
        default=False,
        meaning="Whether DeepSpeed's own data loader drops a last batch that is not full.",
        place="runtime/constants.py:402",
    ),
    Key(
        path="vocabulary_size",
        kind="integer|null",
        default=None,
        meaning="Only checked: a warning appears when it is not a multiple of 8.",
        survives="number|null|empty",
        place="runtime/constants.py:312",
        unit="tokens",
    ),
)
