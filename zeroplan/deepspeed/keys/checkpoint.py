"""checkpoint: how checkpoints are written and read; unknown keys inside are ignored without a word."""

from __future__ import annotations

from zeroplan.deepspeed.keys.key import Key

KEYS: tuple[Key, ...] = (
    Key(
        path="checkpoint",
        kind="object",
        default={},
        meaning="How checkpoints are written and read.",
        place="runtime/constants.py:351",
    ),
    Key(
        path="checkpoint.tag_validation",
        kind="string",
        default="WARN",
        meaning="What happens when ranks save under different tags (any case).",
        place="runtime/constants.py:352",
        choices=("IGNORE", "WARN", "FAIL"),
    ),
    Key(
        path="checkpoint.load_universal",
        kind="boolean",
        default=False,
        meaning="Loads a universal checkpoint.",
        place="runtime/constants.py:356",
    ),
    Key(
        path="checkpoint.use_node_local_storage",
        kind="boolean",
        default=False,
        meaning=(
            "Every node writes what it needs to its own disk; the Trainer sets it from save_on_each_node."
        ),
        place="runtime/constants.py:359",
    ),
    Key(
        path="checkpoint.parallel_write",
        kind="object",
        default={},
        meaning="Holds one key: pipeline_stage.",
        place="runtime/constants.py:362",
    ),
    Key(
        path="checkpoint.parallel_write.pipeline_stage",
        kind="boolean",
        default=False,
        meaning="Data-parallel ranks of a pipeline stage share the writing of its layers.",
        place="runtime/constants.py:363",
    ),
    Key(
        path="checkpoint.checkpoint_serialization",
        kind="boolean",
        default=True,
        meaning="Uses torch's zip format for saving.",
        place="runtime/model_checkpointing/constants.py:40",
    ),
    Key(
        path="checkpoint.writer",
        kind="object|null",
        default=None,
        meaning="Parallel writer; absent, torch.save.",
        place="runtime/model_checkpointing/constants.py:43",
        moves_bytes=True,
    ),
    Key(
        path="checkpoint.writer.type",
        kind="string",
        default="FAST",
        meaning="Implementation (any case).",
        place="runtime/model_checkpointing/constants.py:46",
        choices=("MOCK", "PYTHON", "FAST"),
    ),
    Key(
        path="checkpoint.writer.io_buffer_size",
        kind="integer",
        default=67_108_864,
        meaning="Page-locked buffer of the writer.",
        place="runtime/model_checkpointing/constants.py:58",
        unit="bytes",
        moves_bytes=True,
    ),
    Key(
        path="checkpoint.writer.io_buffer_double",
        kind="boolean",
        default=True,
        meaning="Uses two such buffers.",
        place="runtime/model_checkpointing/constants.py:61",
        moves_bytes=True,
    ),
    Key(
        path="checkpoint.writer.show_statistics",
        kind="boolean",
        default=False,
        meaning="Prints the speed of writing.",
        place="runtime/model_checkpointing/constants.py:67",
    ),
    Key(
        path="checkpoint.writer.data_parallel",
        kind="string|null",
        default=None,
        meaning="Which ranks share the writing (any case).",
        place="runtime/model_checkpointing/constants.py:70",
        choices=("REPLICA", "SOCKET", "MACHINE"),
    ),
    Key(
        path="checkpoint.writer.decoupled",
        kind="boolean",
        default=False,
        meaning="Writes while training goes on.",
        place="runtime/model_checkpointing/constants.py:84",
        moves_bytes=True,
    ),
    Key(
        path="checkpoint.writer.io_multiplier",
        kind="integer",
        default=1,
        meaning="Writers per data-parallel rank.",
        place="runtime/model_checkpointing/constants.py:64",
    ),
    Key(
        path="datastates_ckpt",
        kind="boolean|object",
        default=False,
        meaning="Asynchronous checkpoints by DataStates: on for every value but false, null too.",
        place="datastates/config.py:11",
    ),
)
