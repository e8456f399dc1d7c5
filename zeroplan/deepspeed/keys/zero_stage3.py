"""zero_optimization: the keys that act at stage 3."""

from __future__ import annotations

from zeroplan.deepspeed.keys.key import STAGE_3, Key

KEYS: tuple[Key, ...] = (
    Key(
        path="zero_optimization.sub_group_size",
        kind="integer",
        default=1_000_000_000,
        meaning=(
            "Elements of partitions that the optimizer updates at a time; the tile of offload to CPU "
            "and NVMe."
        ),
        place="runtime/zero/config.py:182",
        unit="elements",
        minimum=0,
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.stage3_prefetch_bucket_size",
        kind="integer",
        default=50_000_000,
        meaning=(
            "Elements of parameters that may be gathered ahead of their use; the last tensor may exceed it."
        ),
        place="runtime/zero/config.py:222",
        unit="elements",
        minimum=0,
        aliases=("prefetch_bucket_size",),
        auto="int(0.9 * hidden_size * hidden_size), at stage 3 only",
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.stage3_param_persistence_threshold",
        kind="integer",
        default=100_000,
        meaning="Tensors of at most this many elements stay gathered on every rank.",
        place="runtime/zero/config.py:228",
        unit="elements",
        minimum=0,
        aliases=("param_persistence_threshold",),
        auto="10 * hidden_size, at stage 3 only",
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.stage3_model_persistence_threshold",
        kind="integer",
        default=9_223_372_036_854_775_807,
        meaning=(
            "Elements that may stay gathered in total, so the bound of what "
            "param_persistence_threshold selects; unlimited by default (sys.maxsize)."
        ),
        place="runtime/zero/config.py:235",
        unit="elements",
        minimum=0,
        aliases=("model_persistence_threshold",),
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.stage3_max_live_parameters",
        kind="integer",
        default=1_000_000_000,
        meaning="Elements that may be gathered at once, persistent ones aside; it limits prefetching.",
        place="runtime/zero/config.py:245",
        unit="elements",
        minimum=0,
        aliases=("max_live_parameters",),
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.stage3_max_reuse_distance",
        kind="integer",
        default=1_000_000_000,
        meaning="A gathered parameter is kept when it is needed again within this many elements of use.",
        place="runtime/zero/config.py:251",
        unit="elements",
        minimum=0,
        aliases=("max_reuse_distance",),
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.stage3_gather_16bit_weights_on_model_save",
        kind="boolean",
        default=False,
        meaning=(
            "Gathers the whole 16-bit model on rank 0 when it is saved; otherwise no consolidated "
            "file is written."
        ),
        place="runtime/zero/config.py:257",
        aliases=("gather_16bit_weights_on_model_save",),
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.stage3_gather_fp16_weights_on_model_save",
        kind="boolean",
        default=False,
        meaning="Old name of stage3_gather_16bit_weights_on_model_save; refused beside it.",
        place="runtime/zero/config.py:287",
        deprecated="stage3_gather_16bit_weights_on_model_save",
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.stage3_module_granularity_threshold",
        kind="integer",
        default=0,
        meaning=(
            "Modules with fewer parameters per descendant than this are gathered as one unit; 0 turns it off."
        ),
        place="runtime/zero/config.py:265",
        unit="elements per module",
        aliases=("module_granularity_threshold",),
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.stage3_use_all_reduce_for_fetch_params",
        kind="boolean",
        default=False,
        meaning=(
            "Gathers several parameters by one all-reduce of a zero-filled buffer instead of an all-gather."
        ),
        place="runtime/zero/config.py:273",
        aliases=("use_all_reduce_for_fetch_params",),
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.stage3_allgather_sequential",
        kind="boolean",
        default=False,
        meaning="Gathers parameters one by one without a joint buffer, and sets the prefetch bucket to 1.",
        place="runtime/zero/config.py:279",
        aliases=("allgather_sequential",),
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.zero_hpz_partition_size",
        kind="integer",
        default=1,
        meaning=(
            "Ranks (one node's, as a rule) over which a second copy of the 16-bit parameters is "
            "divided for backward (hpZ); larger than the world is clamped."
        ),
        place="runtime/zero/config.py:324",
        unit="ranks",
        minimum=0,
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.zero_quantized_weights",
        kind="boolean",
        default=False,
        meaning="Gathers parameters as int8 with scales (qwZ).",
        place="runtime/zero/config.py:328",
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.zero_quantized_nontrainable_weights",
        kind="boolean",
        default=False,
        meaning="Keeps frozen parameters' partitions in int8 and gathers them so.",
        place="runtime/zero/config.py:333",
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.zero_quantized_gradients",
        kind="boolean",
        default=False,
        meaning=(
            "Reduces gradients by all-to-all of 4-bit codes between nodes (qgZ); refused with "
            "reduce_scatter false."
        ),
        place="runtime/zero/config.py:340",
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.memory_efficient_linear",
        kind="boolean",
        default=True,
        meaning=(
            "Replaces torch's linear function so that it does not hold the gathered weight from "
            "forward to backward."
        ),
        place="runtime/zero/config.py:346",
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.pipeline_loading_checkpoint",
        kind="boolean",
        default=False,
        meaning="Loads a checkpoint rank after rank within a node to spare host memory; asserts stage 3.",
        place="runtime/zero/config.py:353",
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.override_module_apply",
        kind="boolean",
        default=True,
        meaning="Lets zero.Init replace nn.Module.apply by a version that gathers parameters first.",
        place="runtime/zero/config.py:355",
        stages=STAGE_3,
    ),
    Key(
        path="zero_optimization.log_trace_cache_warnings",
        kind="boolean",
        default=False,
        meaning="Logs when the recorded order of modules turns out wrong.",
        place="runtime/zero/config.py:360",
        stages=STAGE_3,
    ),
    Key(
        path="zero_optimization.enable_sanity_checks",
        kind="boolean",
        default=False,
        meaning="Turns on DeepSpeed's internal consistency checks.",
        place="runtime/zero/config.py:365",
        stages=STAGE_3,
    ),
    Key(
        path="zero_optimization.save_muon_momentum_buffer_in_memory",
        kind="boolean",
        default=False,
        meaning="Keeps Muon's momentum in memory instead of swapping it to NVMe with the other states.",
        place="runtime/zero/config.py:370",
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.leaf_module",
        kind="object",
        default={},
        meaning="Modules whose whole subtree is gathered as one unit.",
        place="runtime/zero/config.py:377",
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.leaf_module.classes",
        kind="array|string",
        default=[
            "transformers.models.mixtral.modeling_mixtral.MixtralSparseMoeBlock",
            "transformers.models.qwen2_moe.modeling_qwen2_moe.Qwen2MoeSparseMoeBlock",
            "transformers.models.qwen3_moe.modeling_qwen3_moe.Qwen3MoeSparseMoeBlock",
        ],
        meaning="Class names of leaf modules; a list given here replaces the default.",
        place="runtime/zero/leaf_module_config.py:23",
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.leaf_module.names",
        kind="array|string",
        default=[],
        meaning="Module names of leaf modules.",
        place="runtime/zero/leaf_module_config.py:24",
        stages=STAGE_3,
        moves_bytes=True,
    ),
    Key(
        path="zero_optimization.leaf_module.name_suffixes",
        kind="array|string",
        default=[],
        meaning="Endings of module names of leaf modules.",
        place="runtime/zero/leaf_module_config.py:25",
        stages=STAGE_3,
        moves_bytes=True,
    ),
)
