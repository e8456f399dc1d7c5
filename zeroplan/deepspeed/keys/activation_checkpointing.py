"""activation_checkpointing: options of deepspeed.checkpointing, which the model has to call itself."""

from __future__ import annotations

from zeroplan.deepspeed.keys.key import Key

IDLE = "Does nothing unless the model calls deepspeed.checkpointing.checkpoint (--checkpointing deepspeed)."

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
            "w·T·h over their number, gathered again in backward; alone, a rank keeps a copy of the whole and empties "
            f"the input: 4 bytes more a layer, nothing saved. {IDLE}"
        ),
        place="runtime/activation_checkpointing/config.py:27",
        moves_bytes=True,
    ),
    Key(
        path="activation_checkpointing.cpu_checkpointing",
        kind="boolean",
        default=False,
        meaning=(
            "Moves checkpoints to the host, w·T·h bytes a layer: by itself to page-locked buffers, which stay between "
            "steps, all but the last input, the last two of which stay on the GPU; with partition_activations all, "
            f"to ordinary memory, until backward. {IDLE}"
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
            "all of them from then on, on the GPU or with cpu_checkpointing on the host; needs partition_activations. "
            f"{IDLE}"
        ),
        place="runtime/activation_checkpointing/config.py:33",
        moves_bytes=True,
    ),
    Key(
        path="activation_checkpointing.number_checkpoints",
        kind="integer|null",
        default=None,
        meaning=f"How many of those buffers there are; DeepSpeed stops with fewer than layers. {IDLE}",
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
