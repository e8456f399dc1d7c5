"""zero_optimization.offload_param and offload_optimizer."""

from __future__ import annotations

from zeroplan.deepspeed.keys.key import STAGE_3, ZERO_STAGES, Key

KEYS: tuple[Key, ...] = (
    Key(
        path="zero_optimization.offload_param",
        kind="object|null",
        default=None,
        meaning="Holds parameter partitions on the host or on NVMe; ignored without a word below stage 3.",
        place="runtime/zero/config.py:164",
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.offload_param.device",
        kind="string",
        default="none",
        meaning="Where parameter partitions rest.",
        place="runtime/zero/offload_config.py:24",
        choices=("none", "cpu", "nvme"),
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.offload_param.nvme_path",
        kind="string|null",
        default=None,
        meaning="Folder on the NVMe disk; needed with device nvme.",
        place="runtime/zero/offload_config.py:30",
        stages=STAGE_3,
    ),
    Key(
        path="zero_optimization.offload_param.buffer_count",
        kind="integer",
        default=5,
        meaning="Page-locked buffers between disk and GPU.",
        place="runtime/zero/offload_config.py:33",
        minimum=0,
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.offload_param.buffer_size",
        kind="integer",
        default=100_000_000,
        meaning="Size of each of these buffers; a tensor whose partition is larger stops the run.",
        place="runtime/zero/offload_config.py:36",
        unit="elements",
        minimum=0,
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.offload_param.max_in_cpu",
        kind="integer",
        default=1_000_000_000,
        meaning="Elements of partitions that stay in host memory although device is nvme.",
        place="runtime/zero/offload_config.py:39",
        unit="elements",
        minimum=0,
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.offload_param.pin_memory",
        kind="boolean",
        default=True,
        meaning=(
            "Asks for page-locked host memory (true since August 2026); stage 3 locks these "
            "partitions whatever it says."
        ),
        place="runtime/zero/offload_config.py:45",
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.offload_optimizer",
        kind="object|null",
        default=None,
        meaning="Holds optimizer states on the host or on NVMe and steps on the CPU.",
        place="runtime/zero/config.py:171",
        stages=ZERO_STAGES,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.offload_optimizer.device",
        kind="string",
        default="none",
        meaning="Where optimizer states rest; nvme at stages 1 and 2 behaves as cpu without a word.",
        place="runtime/zero/offload_config.py:58",
        choices=("none", "cpu", "nvme"),
        stages=ZERO_STAGES,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.offload_optimizer.nvme_path",
        kind="string|null",
        default=None,
        meaning="Folder on the NVMe disk; needed with device nvme.",
        place="runtime/zero/offload_config.py:64",
        stages=STAGE_3,
    ),
    Key(
        path="zero_optimization.offload_optimizer.buffer_count",
        kind="integer",
        default=4,
        meaning=(
            "Page-locked buffers between disk and host, at least one per state of the optimizer (4 "
            "for Adam with gradient)."
        ),
        place="runtime/zero/offload_config.py:67",
        minimum=0,
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.offload_optimizer.pin_memory",
        kind="boolean",
        default=True,
        meaning=(
            "Page-locks host memory (true since August 2026); blocks are rounded up to powers of two "
            "by torch."
        ),
        place="runtime/zero/offload_config.py:75",
        stages=ZERO_STAGES,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.offload_optimizer.pipeline_read",
        kind="boolean",
        default=False,
        meaning="Reads the next tile from NVMe while this one is updated.",
        place="runtime/zero/offload_config.py:84",
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.offload_optimizer.pipeline_write",
        kind="boolean",
        default=False,
        meaning="Writes the last tile to NVMe while the next is updated.",
        place="runtime/zero/offload_config.py:90",
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.offload_optimizer.fast_init",
        kind="boolean",
        default=False,
        meaning=(
            "With parameters on NVMe too, builds the fp32 tiles from the swapped 16-bit ones in one "
            "pass at start."
        ),
        place="runtime/zero/offload_config.py:96",
        stages=STAGE_3,
    ),
    Key(
        path="zero_optimization.offload_optimizer.ratio",
        kind="number",
        default=1.0,
        meaning="Share of the sub-groups whose states go to the host; under 1 is refused below stage 3.",
        place="runtime/zero/offload_config.py:99",
        minimum=0,
        maximum=1,
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.offload_optimizer.super_offload",
        kind="boolean",
        default=False,
        meaning="The optimizer for superchips that overlaps steps on both processors.",
        place="runtime/zero/offload_config.py:102",
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.offload_optimizer.cpuadam_cores_perc",
        kind="number",
        default=0.8,
        meaning=("Share of CPU cores for super_offload's optimizer (0 passes the parser and stops the run)."),
        place="runtime/zero/offload_config.py:105",
        minimum=0,
        maximum=1,
        stages=STAGE_3,
    ),
)
