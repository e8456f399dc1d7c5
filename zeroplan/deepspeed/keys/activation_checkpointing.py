"""activation_checkpointing: options of deepspeed.checkpointing, which the model has to call itself."""

from __future__ import annotations

from zeroplan.deepspeed.keys.key import Key

KEYS: tuple[Key, ...] = (
    Key(
        path="activation_checkpointing",
        kind="object",
        default={},
        meaning=(
            "Read only by models that call deepspeed.checkpointing (Megatron's do, Transformers' do "
            "not); unknown keys inside are ignored."
        ),
        place="runtime/activation_checkpointing/config.py:45",
        moves_bytes=True,
    ),
    Key(
        path="activation_checkpointing.partition_activations",
        kind="boolean",
        default=False,
        meaning="Divides saved activations over the tensor-parallel ranks.",
        place="runtime/activation_checkpointing/config.py:27",
        moves_bytes=True,
    ),
    Key(
        path="activation_checkpointing.cpu_checkpointing",
        kind="boolean",
        default=False,
        meaning="Moves saved activations to the host.",
        place="runtime/activation_checkpointing/config.py:42",
        moves_bytes=True,
    ),
    Key(
        path="activation_checkpointing.contiguous_memory_optimization",
        kind="boolean",
        default=False,
        meaning="Copies saved activations into one buffer made beforehand; needs partition_activations.",
        place="runtime/activation_checkpointing/config.py:33",
        moves_bytes=True,
    ),
    Key(
        path="activation_checkpointing.number_checkpoints",
        kind="integer|null",
        default=None,
        meaning="Checkpoints per forward, from which the size of that buffer follows.",
        place="runtime/activation_checkpointing/config.py:30",
        unit="checkpoints",
        moves_bytes=True,
    ),
    Key(
        path="activation_checkpointing.synchronize_checkpoint_boundary",
        kind="boolean",
        default=False,
        meaning="Waits for the device at each checkpoint.",
        place="runtime/activation_checkpointing/config.py:36",
    ),
    Key(
        path="activation_checkpointing.profile",
        kind="boolean",
        default=False,
        meaning="Times forward and backward of each checkpoint.",
        place="runtime/activation_checkpointing/config.py:39",
    ),
)
