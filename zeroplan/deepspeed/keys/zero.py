"""zero_optimization: the keys of stages 1 and 2 and those that all stages share."""

from __future__ import annotations

from zeroplan.deepspeed.keys.key import STAGE_3, STAGES_1_2, ZERO_STAGES, Key

KEYS: tuple[Key, ...] = (
    Key(
        path="zero_optimization",
        kind="boolean|object",
        default={},
        meaning="ZeRO; true is an old form that means stage 1. Unknown keys inside are refused.",
        survives="object|boolean",
        place="runtime/zero/config.py:57",
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.stage",
        kind="integer",
        default=0,
        meaning=("What is divided over the ranks: 0 nothing, 1 optimizer states, 2 also gradients, 3 also parameters."),
        place="runtime/zero/config.py:95",
        minimum=0,
        maximum=3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.contiguous_gradients",
        kind="boolean",
        default=True,
        meaning=(
            "Copies gradients into one buffer of reduce_bucket_size as they appear; optimizer offload "
            "at stages 1 and 2 forces it on."
        ),
        place="runtime/zero/config.py:102",
        stages=ZERO_STAGES,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.reduce_scatter",
        kind="boolean",
        default=True,
        meaning=(
            "Reduces each gradient only to its owner: true reduce-scatters at stage 3, while stages 1 "
            "and 2 still all-reduce unless use_multi_rank_bucket_allreduce is false; false "
            "all-reduces whole buckets."
        ),
        place="runtime/zero/config.py:108",
        stages=ZERO_STAGES,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.reduce_bucket_size",
        kind="integer",
        default=500_000_000,
        meaning=(
            "Elements that are gathered up before one reduction of gradients; also the size of the reduction buffer."
        ),
        place="runtime/zero/config.py:113",
        unit="elements",
        exclusive_minimum=0,
        auto="hidden_size * hidden_size",
        stages=ZERO_STAGES,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.use_multi_rank_bucket_allreduce",
        kind="boolean",
        default=True,
        meaning=("Joins the slices of all owners in a bucket into one all-reduce instead of one reduce per owner."),
        place="runtime/zero/config.py:119",
        stages=STAGES_1_2,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.allgather_partitions",
        kind="boolean",
        default=True,
        meaning=("Accepted and never read by an optimizer in 0.19.8: updated parameters are all-gathered either way."),
        place="runtime/zero/config.py:126",
        stages=(),
    ),
    Key(
        path="zero_optimization.allgather_bucket_size",
        kind="integer",
        default=500_000_000,
        meaning="Elements gathered at a time after the step; must be even at stages 1 and 2.",
        place="runtime/zero/config.py:132",
        unit="elements",
        minimum=0,
        stages=STAGES_1_2,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.overlap_comm",
        kind="boolean|null",
        default=None,
        meaning=(
            "Reduces gradients on a stream of its own while backward goes on (stages 1 and 2 then "
            "hold two buffers); absent, it is true at stage 3 and false elsewhere."
        ),
        place="runtime/zero/config.py:138",
        stages=ZERO_STAGES,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.compute_grad_norm",
        kind="boolean",
        default=True,
        meaning=(
            "Computes the global gradient norm at the step; false is refused at other stages than 1 "
            "and 2, with clipping, optimizer offload or ZenFlow."
        ),
        place="runtime/zero/config.py:143",
        stages=STAGES_1_2,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.load_from_fp32_weights",
        kind="boolean",
        default=True,
        meaning=(
            "When a checkpoint is loaded, fills master weights from its fp32 copies rather than from the 16-bit ones."
        ),
        place="runtime/zero/config.py:150",
        stages=ZERO_STAGES,
    ),
    Key(
        path="zero_optimization.elastic_checkpoint",
        kind="boolean",
        default=False,
        meaning=(
            "Old way to save stage 1 and 2 states for another number of ranks; at stage 3 a warning, "
            "then saving or loading stops."
        ),
        place="runtime/zero/config.py:158",
        stages=STAGES_1_2,
    ),
    Key(
        path="zero_optimization.cpu_offload",
        kind="boolean|null",
        default=None,
        meaning=("Old switch for optimizer offload to the CPU; refused beside offload_optimizer, even when false."),
        place="runtime/zero/config.py:209",
        deprecated="offload_optimizer",
        stages=ZERO_STAGES,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.cpu_offload_param",
        kind="boolean|null",
        default=None,
        meaning=("Old switch for parameter offload to the CPU; refused beside offload_param, even when false."),
        place="runtime/zero/config.py:188",
        deprecated="offload_param",
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.cpu_offload_use_pin_memory",
        kind="boolean|null",
        default=None,
        meaning="Old switch for page-locked memory: warns and does nothing.",
        place="runtime/zero/config.py:199",
        deprecated="offload_param.pin_memory or offload_optimizer.pin_memory",
        stages=(),
    ),
    Key(
        path="zero_optimization.ignore_unused_parameters",
        kind="boolean",
        default=True,
        meaning=(
            "Goes on when a parameter got no gradient; false stops with an assertion (checked where "
            "the CPU-offload path computes the norm)."
        ),
        place="runtime/zero/config.py:294",
        stages=STAGES_1_2,
    ),
    Key(
        path="zero_optimization.legacy_stage1",
        kind="boolean",
        default=False,
        meaning="The stage 1 of DeepSpeed 0.5.8 and before: true stops the run.",
        place="runtime/zero/config.py:303",
        stages=ZERO_STAGES,
    ),
    Key(
        path="zero_optimization.round_robin_gradients",
        kind="boolean",
        default=False,
        meaning=("Deals tensors out to the ranks in turn, so that copies of gradients to the host are spread evenly."),
        place="runtime/zero/config.py:309",
        stages=STAGES_1_2,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.parameter_alignment",
        kind="boolean",
        default=False,
        meaning="Pads flat buffers so that every parameter begins at a multiple of 16 bytes.",
        place="runtime/zero/config.py:317",
        stages=STAGES_1_2,
        moves_bytes=True,
    ),
    Key(
        path="allgather_size",
        kind="number",
        default=500_000_000,
        meaning="Top-level key of the old form zero_optimization: true; otherwise ignored.",
        survives="any",
        place="runtime/zero/config.py:64",
        unit="elements",
        deprecated="zero_optimization.allgather_bucket_size",
        stages=(1,),
        moves_bytes=True,
    ),
)
