"""What a ds_config.json switches on that changes the job and is not planned: one row per switch, with its source.

Where what GPUs hold between steps is the same with it and without, it is named (`Stated.unplanned`); where that changes
too, or nobody has compared it with a run, the config is refused. tests/deepspeed/test_unplanned.py asks DeepSpeed.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NamedTuple

from zeroplan.deepspeed import zenflow
from zeroplan.deepspeed.facts import Facts
from zeroplan.deepspeed.parallelism import DATA, SEQUENCE, STAGES, TENSOR, makes_mesh
from zeroplan.errors import ContradictionError, shown
from zeroplan.specs.model import Unplanned

ZERO = "zero_optimization"
ROUTING = "data_efficiency.data_routing.random_ltd.enabled"
SAMPLING = "data_efficiency.data_sampling"
AUTOCAST = "torch_autocast"
LINEAR = ["torch.nn.Linear"]
QUANTIZED = "weight_quantization.quantized_initialization"
MUON_IN_MEMORY = f"{ZERO}.save_muon_momentum_buffer_in_memory"


class UnplannedKey(NamedTuple):
    """A key and the values of it that change the job."""

    holds: Callable[[Facts], object]
    key: str
    effect: str
    """What it changes that is not counted, as a clause."""
    instead: str
    source: str
    """File and line below deepspeed/ in 0.19.8."""


def unplanned(facts: Facts) -> tuple[Unplanned, ...]:
    """What is switched on and leaves alone what GPUs hold between steps."""
    return tuple(
        Unplanned(f"{facts.place}: {_written(facts, row.key)}", row.effect, row.instead)
        for row in NAMED if row.holds(facts)
    )  # fmt: skip


def refuse_unplanned(facts: Facts) -> None:
    """Raises `ContradictionError` for what changes what GPUs hold between steps, too."""
    for row in REFUSED:
        if row.holds(facts):
            raise ContradictionError(
                f"{facts.place}: {_written(facts, row.key)} is not planned: {row.effect} ({row.source}); {row.instead}"
            )


def communication_dtype(facts: Facts) -> str | None:
    """With sequence groups gradients travel in seq_parallel_communication_data_type (runtime/engine.py:2182)."""
    return facts("seq_parallel_communication_data_type") if _over_one(facts, SEQUENCE) else None


def notes(facts: Facts) -> list[str]:
    """What is taken of a job of which the file says a part."""
    if not _over_one(facts, SEQUENCE) or makes_mesh(facts.config):
        return []
    return [
        f"{SEQUENCE} without {DATA}: the training script passes an mpu (UlyssesSPAttentionHF), over which gradients "
        f"travel in {communication_dtype(facts)}; without one DeepSpeed makes no sequence groups"
    ]


def _written(facts: Facts, path: str) -> str:
    value = facts.stated(path)
    return path if isinstance(value, dict | list) or value is None else f"{path} {shown(json.dumps(value))[1:-1]}"


def _over_one(facts: Facts, path: str) -> bool:
    value = facts.stated(path)
    return isinstance(value, int | float) and value > 1


def _partitions_over_data_alone(facts: Facts) -> bool:
    """With a mesh from the file, and no mpu; stage 3 partitions over all ranks before there is a mesh."""
    return facts.stage in (1, 2) and _over_one(facts, SEQUENCE) and makes_mesh(facts.config)


def _on(path: str) -> Callable[[Facts], bool]:
    """A switch that DeepSpeed reads by hand: whatever Python counts as true."""
    return lambda facts: bool(facts.stated(path))


def runs_deepcompile(facts: Facts) -> bool:
    return bool(facts("compile.deepcompile"))


def generates(facts: Facts) -> bool:
    return bool(facts("hybrid_engine.enabled"))


def quantizes_at_birth(facts: Facts) -> bool:
    return facts.stage == 3 and bool(facts.stated(QUANTIZED))


def keeps_muon_in_memory(facts: Facts) -> bool:
    swaps = facts(f"{ZERO}.offload_optimizer.device") == "nvme"
    return facts.stage == 3 and swaps and facts.optimizer == "muon" and bool(facts(MUON_IN_MEMORY))


def runs_superoffload(facts: Facts) -> bool:
    return facts.stage == 3 and bool(facts(f"{ZERO}.offload_optimizer.super_offload"))


def runs_other_zenflow(facts: Facts) -> bool:
    return zenflow.switched_on(facts) and not zenflow.is_counted(facts)


def accumulates_by_hand(facts: Facts) -> bool:
    path = "managed_gradient_accumulation"
    return facts.states(path) and not facts.stated(path)


def autocasts_other_modules(facts: Facts) -> bool:
    stated = facts.stated(f"{AUTOCAST}.lower_precision_safe_modules")
    return _autocasts(facts) and stated is not None and stated != LINEAR


def autocasts_to_nothing_stated(facts: Facts) -> bool:
    return _autocasts(facts) and facts.stated(f"{AUTOCAST}.dtype") is None


def autocasts_to_another_half(facts: Facts) -> bool:
    halves = {facts.dtype, facts.stated_dtype(f"{AUTOCAST}.dtype")}
    return _autocasts(facts) and halves == {"bf16", "fp16"}


def _autocasts(facts: Facts) -> bool:
    return bool(facts.stated(f"{AUTOCAST}.enabled"))


REFUSED: tuple[UnplannedKey, ...] = (
    UnplannedKey(
        _partitions_over_data_alone, SEQUENCE,
        f"beside {DATA} stages 1 and 2 partition over the {DATA} ranks alone, not over all GPUs",
        f'write "{SEQUENCE}": 1, or leave out {DATA} where the script passes an mpu',
        "utils/groups.py:_get_sequence_data_parallel_group",
    ),
    UnplannedKey(
        lambda facts: facts(TENSOR) > 1, TENSOR,
        "each GPU holds its part of the linear layers, and ZeRO partitions that over fewer ranks",
        'write "autotp_size": 1', "runtime/engine.py:_configure_tensor_parallel",
    ),
    UnplannedKey(
        _on("expert_parallel.enabled"), "expert_parallel.enabled",
        "each GPU holds its part of the experts, in tensors and groups of AutoEP's own",
        'write "enabled": false in expert_parallel', "runtime/engine.py:_configure_expert_parallel",
    ),
    UnplannedKey(
        lambda facts: _over_one(facts, STAGES), STAGES,
        "in a PipelineModule each GPU holds the layers of its stage, and elsewhere DeepSpeed passes over the key",
        "leave it out for a model without a pipeline", "runtime/pipe/module.py:_partition_layers",
    ),
    UnplannedKey(
        runs_deepcompile, "compile.deepcompile",
        "the compiled step frees stage 3's bucket, keeps other parameters gathered and makes buffers of its own",
        'write "deepcompile": false', "compile/init_z3.py:init_z3",
    ),
    UnplannedKey(
        generates, "hybrid_engine.enabled",
        "generation keeps a workspace and caches on each GPU beside the training state",
        'write "enabled": false in hybrid_engine', "runtime/hybrid_engine.py:generate",
    ),
    UnplannedKey(
        quantizes_at_birth, QUANTIZED, "zero.Init then holds weights as 8- or 4-bit codes",
        "leave it out", "runtime/zero/partition_parameters.py:355",
    ),
    UnplannedKey(
        keeps_muon_in_memory, MUON_IN_MEMORY, "Muon's momentum then stays on the GPU, its other states on NVMe",
        'write "save_muon_momentum_buffer_in_memory": false', "runtime/zero/stage3.py:_create_momentum_buffer",
    ),
    UnplannedKey(
        lambda facts: zenflow.switched_on(facts) and not zenflow.has_interval(facts),
        f"{zenflow.SECTION}.update_interval", 'with "auto" DeepSpeed divides the loss by 0, which makes it nan',
        'write a number, as in "update_interval": 4', "runtime/engine.py:3413",
    ),
    UnplannedKey(
        runs_other_zenflow, zenflow.SECTION, "ZenFlow is counted at stages 1 and 2, and under Adam",
        'leave it out, or write "stage": 2 and "type": "AdamW"',
        "runtime/zenflow/zenflow_stage_1_and_2.py, runtime/zenflow/engine_stage3.py",
    ),
    UnplannedKey(
        lambda facts: facts.stage == 3 and autocasts_to_nothing_stated(facts), f"{AUTOCAST}.enabled",
        "without a dtype stage 3 makes a second fp32 bucket", 'write "dtype": "bfloat16" in torch_autocast',
        "runtime/torch_autocast.py:get_all_comm_dtypes",
    ),
    UnplannedKey(
        lambda facts: facts.stage == 3 and autocasts_other_modules(facts), f"{AUTOCAST}.lower_precision_safe_modules",
        "which modules they are decides how many buckets stage 3 makes",
        'write "lower_precision_safe_modules": ["torch.nn.Linear"]', "runtime/torch_autocast.py:get_all_comm_dtypes",
    ),
    UnplannedKey(
        lambda facts: facts.stage == 3 and autocasts_to_another_half(facts), f"{AUTOCAST}.dtype",
        "beside weights in the other 16-bit dtype stage 3 makes a bucket for each",
        "write the weights' own dtype there", "runtime/torch_autocast.py:get_all_comm_dtypes",
    ),
)  # fmt: skip
"""What GPUs hold between steps is another then, or was compared with no run."""

NAMED: tuple[UnplannedKey, ...] = (
    UnplannedKey(
        lambda facts: _over_one(facts, SEQUENCE) and not _partitions_over_data_alone(facts), SEQUENCE,
        "each GPU computes its part of every sequence and exchanges heads in all-to-alls",
        f'write "{SEQUENCE}": 1', "runtime/sequence_parallel/ulysses_sp.py",
    ),
    UnplannedKey(
        runs_superoffload, f"{ZERO}.offload_optimizer.super_offload",
        "a process of its own updates parameters on the host while backward runs, with memory of its own there",
        'write "super_offload": false', "runtime/superoffload/superoffload_stage3.py",
    ),
    UnplannedKey(
        _on(ROUTING), ROUTING, "layers see a part of the tokens, which grows from step to step",
        'write "enabled": false in random_ltd', "runtime/engine.py:random_ltd_enabled",
    ),
    UnplannedKey(
        _on(f"{SAMPLING}.curriculum_learning.enabled"), f"{SAMPLING}.curriculum_learning.enabled",
        "which sequences a step sees, and so their length, follows the curriculum",
        'write "enabled": false in curriculum_learning', "runtime/engine.py:deepspeed_io",
    ),
    UnplannedKey(
        _on(f"{SAMPLING}.dynamic_batching.enabled"), f"{SAMPLING}.dynamic_batching.enabled",
        "micro-batches are as large as their tokens allow",
        'write "enabled": false in dynamic_batching', "runtime/data_pipeline/config.py:get_dynamic_batching",
    ),
    UnplannedKey(
        accumulates_by_hand, "managed_gradient_accumulation",
        "the training script decides when a step ends, and so how much is reduced in it",
        'write "managed_gradient_accumulation": true', "runtime/engine.py:step",
    ),
    UnplannedKey(
        lambda facts: facts.stage < 3 and autocasts_to_nothing_stated(facts), f"{AUTOCAST}.enabled",
        "without a dtype activations are in the accelerator's own 16-bit dtype",
        'write "dtype": "bfloat16" in torch_autocast', "runtime/torch_autocast.py:autocast_if_enabled",
    ),
    UnplannedKey(
        lambda facts: facts.stage < 3 and autocasts_other_modules(facts), f"{AUTOCAST}.lower_precision_safe_modules",
        "which gradients travel in 16 bit is decided by these modules",
        'write "lower_precision_safe_modules": ["torch.nn.Linear"]', "runtime/torch_autocast.py:init_autocast_params",
    ),
    UnplannedKey(
        lambda facts: facts.stage < 3 and autocasts_to_another_half(facts), f"{AUTOCAST}.dtype",
        "activations are cast between both 16-bit dtypes", "write the weights' own dtype there",
        "runtime/torch_autocast.py:init_autocast_params",
    ),
    UnplannedKey(
        lambda facts: bool(facts.section("autotuning").get("enabled")), "autotuning.enabled",
        "the run profiles a few steps and ends", 'write "enabled": false in autotuning',
        "runtime/engine.py:_autotuning_exit",
    ),
    UnplannedKey(
        lambda facts: facts.states("datastates_ckpt") and facts.stated("datastates_ckpt") is not False,
        "datastates_ckpt", "checkpoints are kept in page-locked host memory while they are written",
        "leave it out", "runtime/checkpoint_engine/datastates_checkpoint_engine.py",
    ),
)  # fmt: skip
"""What GPUs hold between steps stays as it is."""
