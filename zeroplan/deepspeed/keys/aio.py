"""aio: asynchronous I/O to NVMe; unknown keys inside are ignored without a word."""

from __future__ import annotations

from zeroplan.deepspeed.keys.key import STAGE_3, Key

KEYS: tuple[Key, ...] = (
    Key(
        path="aio",
        kind="object|null",
        default={},
        meaning="How files are read and written when something is offloaded to NVMe.",
        survives="object|null",
        place="runtime/swap_tensor/constants.py:18",
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="aio.block_size",
        kind="integer",
        default=1_048_576,
        meaning="Bytes per request; sub-groups smaller than this (or than 1 MiB) are not swapped.",
        place="runtime/swap_tensor/constants.py:19",
        unit="bytes",
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="aio.queue_depth",
        kind="integer",
        default=8,
        meaning="Requests that wait in the queue at once.",
        place="runtime/swap_tensor/constants.py:21",
        unit="requests",
        stages=STAGE_3,
    ),
    Key(
        path="aio.intra_op_parallelism",
        kind="integer",
        default=1,
        meaning="Threads that share one read or write; files are rounded up to 1024 bytes times this.",
        place="runtime/swap_tensor/constants.py:23",
        unit="threads",
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="aio.single_submit",
        kind="boolean",
        default=False,
        meaning="Submits requests one by one instead of in batches.",
        place="runtime/swap_tensor/constants.py:25",
        stages=STAGE_3,
    ),
    Key(
        path="aio.overlap_events",
        kind="boolean",
        default=True,
        meaning="Submits new requests while earlier ones are still completing.",
        place="runtime/swap_tensor/constants.py:27",
        stages=STAGE_3,
    ),
    Key(
        path="aio.use_gds",
        kind="boolean",
        default=False,
        meaning="Uses GPUDirect Storage; refused on accelerators other than CUDA.",
        place="runtime/swap_tensor/constants.py:29",
        stages=STAGE_3,
    ),
)
