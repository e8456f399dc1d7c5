"""activation_checkpointing: options of deepspeed.checkpointing, which the model has to call itself."""

from __future__ import annotations

from zeroplan.deepspeed.keys.key import Key

IDLE = "Costs nothing in a model of transformers, which never calls deepspeed.checkpointing.checkpoint."

KEYS: tuple[Key, ...] = (
    Key(
        path="activation_checkpointing",
        kind="object",
        default={},
        meaning=(
            "Read only by models that call deepspeed.checkpointing (Megatron's do, Transformers' do "
            f"not); unknown keys inside are ignored. {IDLE}"
        ),
        place="runtime/activation_checkpointing/config.py:45",
        moves_bytes=True,
    ),
    Key(
        path="activation_checkpointing.partition_activations",
        kind="boolean",
        default=False,
        meaning=(
            "Divides a checkpoint, the input of a layer, over the tensor-parallel ranks: w·T·h bytes a layer become "
            f"w·T·h over their number, gathered again in backward; alone, a rank keeps a copy of the whole. {IDLE}"
        ),
        place="runtime/activation_checkpointing/config.py:27",
        moves_bytes=True,
    ),
    Key(
        path="activation_checkpointing.cpu_checkpointing",
        kind="boolean",
        default=False,
        meaning=(
            "Moves checkpoints to the host: w·T·h bytes a layer leave the GPU in forward and come back in backward. "
            f"{IDLE}"
        ),
        place="runtime/activation_checkpointing/config.py:42",
        moves_bytes=True,
    ),
    Key(
        path="activation_checkpointing.contiguous_memory_optimization",
        kind="boolean",
        default=False,
        meaning=(
            "Copies checkpoints into buffers made with the first, as many as number_checkpoints says: the same bytes, "
            f"all of them from then on; needs partition_activations. {IDLE}"
        ),
        place="runtime/activation_checkpointing/config.py:33",
        moves_bytes=True,
    ),
    Key(
        path="activation_checkpointing.number_checkpoints",
        kind="integer|null",
        default=None,
        meaning=f"Checkpoints per forward: how many of those buffers there are. {IDLE}",
        place="runtime/activation_checkpointing/config.py:30",
        unit="checkpoints",
        moves_bytes=True,
    ),
    Key(
        path="activation_checkpointing.synchronize_checkpoint_boundary",
        kind="boolean",
        default=False,
        meaning=f"Waits for the device at each checkpoint: no bytes, but time. {IDLE}",
        place="runtime/activation_checkpointing/config.py:36",
    ),
    Key(
        path="activation_checkpointing.profile",
        kind="boolean",
        default=False,
        meaning=f"Times forward and backward of each checkpoint. {IDLE}",
        place="runtime/activation_checkpointing/config.py:39",
    ),
)
