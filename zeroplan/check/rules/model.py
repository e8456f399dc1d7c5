"""3xx to 7xx: what the model makes of a config (--model)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from zeroplan.check.finding import ADVICE, ERROR, WARNING, Hit
from zeroplan.check.rule import ISSUE, Rule, example
from zeroplan.check.rules.names import FP16, STAGE_2, STAGE_3
from zeroplan.check.subject import Subject
from zeroplan.errors import ContradictionError
from zeroplan.releases import number
from zeroplan.units import count, gib

if TYPE_CHECKING:
    from zeroplan.specs.model import Model

ZERO = "zero_optimization"
RELEASED_IN_BF16 = (
    "gemma", "gemma2", "gemma3_text", "qwen2", "qwen2_moe", "qwen3", "qwen3_moe", "mistral", "mixtral", "deepseek_v2",
    "deepseek_v3", "phi3", "olmo2", "gpt_oss",
)  # fmt: skip
"""Families whose published config.json files say bfloat16."""
AUTOEP = ("mixtral", "qwen2_moe", "qwen3_moe", "deepseek_v2", "deepseek_v3")
"""Families that AutoEP knows by itself (module_inject/auto_ep_presets)."""
PARAMS_ON_DISK = ', "offload_param": {"device": "nvme", "nvme_path": "/local_nvme", "buffer_size": %d}'
PINNED = ', "offload_optimizer": {"device": "cpu", "pin_memory": true}'
CARD = {"gpus": "8", "gpu_mem": "80", "checkpointing": "full"}
SPLIT = '{"train_batch_size": 8, "bf16": {"enabled": true}, "data_parallel_size": 1, "sequence_parallel_size": %d}'

RULES: tuple[Rule, ...] = (
    Rule(
        "ZP319", WARNING, "fp16 for a model released in bf16", "reported: the loss scale falls to its minimum",
        example(FP16 % "", model="gemma-2-9b"), example(FP16 % "", model="gpt2-xl"), ISSUE + "4017",
    ),
    Rule(
        "ZP416", ADVICE, "Saving the whole model, which the host has no room for",
        "runtime/engine.py:_zero3_consolidated_16bit_state_dict: rank 0 holds it in host memory",
        example(STAGE_3 % PINNED, model="llama-3.1-8b", **CARD, host_mem="145GiB", accept="tight"),
        example(STAGE_3 % PINNED, model="llama-3.1-8b", **CARD, host_mem="512GiB"),
        "https://github.com/huggingface/transformers/issues/12587",
    ),
    Rule(
        "ZP425", ADVICE, "More parameters kept on every rank than divided",
        "runtime/zero/partition_parameters.py: ds_persist",
        example(STAGE_3 % ', "stage3_param_persistence_threshold": 100000000', model="llama-3.1-8b", **CARD),
        example(STAGE_3 % "", model="llama-3.1-8b", **CARD),
    ),
    Rule(
        "ZP426", ADVICE, "A mixture of experts at stage 3 without leaf modules",
        "transformers before 5: an expert that gets no token on one rank is not gathered there, and the others wait",
        example(STAGE_3 % "", model="deepseek-v2-lite", **CARD),
        example(STAGE_3 % ', "leaf_module": {"name_suffixes": ["mlp"]}', model="deepseek-v2-lite", **CARD),
        ISSUE + "7461",
    ),
    Rule(
        "ZP427", ERROR, "AutoEP at stage 3 beside what it does not run with",
        "runtime/engine.py:_validate_zero3_moe_compatibility",
        example((STAGE_3 % ', "zero_hpz_partition_size": 8')[:-1] + ', "expert_parallel": {"enabled": true}}',
                model="mixtral-8x7b"),
        example((STAGE_3 % ', "zero_hpz_partition_size": 8')[:-1] + ', "expert_parallel": {"enabled": false}}',
                model="mixtral-8x7b"), since="0.19.3",
    ),
    Rule(
        "ZP508", ERROR, "A tensor larger than a buffer for NVMe",
        "runtime/swap_tensor/partitioned_param_swapper.py:357, run: More elements than buffer size",
        example(STAGE_3 % (PARAMS_ON_DISK % 1000000), model="llama-3.1-8b", gpus="8"),
        example(STAGE_3 % (PARAMS_ON_DISK % 100000000), model="llama-3.1-8b", gpus="8"), ISSUE + "3506",
    ),
    Rule(
        "ZP707", ERROR, "Quantized weights of a size that is no multiple of 8",
        "runtime/zero/partition_parameters.py:884, run: the number of weights be a multiple of 8",
        example(STAGE_3.replace("8", "64", 1) % ', "zero_quantized_weights": true', model="gpt2-xl", gpus="64"),
        example(STAGE_3 % ', "zero_quantized_weights": true', model="llama-3.1-8b", gpus="8"), ISSUE + "4386",
    ),
    Rule(
        "ZP710", WARNING, "Sequence groups that do not divide the heads",
        "runtime/sequence_parallel/ulysses_sp.py:147, run: ValueError",
        example(SPLIT % 3, model="llama-3.1-8b", gpus="3"), example(SPLIT % 4, model="llama-3.1-8b", gpus="4"),
        ISSUE + "4674", since="0.17.0",
    ),
    Rule(
        "ZP711", ADVICE, "A bucket larger than the model", "the whole bucket is allocated",
        example(STAGE_2 % "", model="smollm2-135m", gpus="8"),
        example(STAGE_2 % ', "reduce_bucket_size": 50000000', model="smollm2-135m", gpus="8"), ISSUE + "1302",
    ),
)  # fmt: skip


def _model(subject: Subject) -> Model | None:
    planned = subject.setting.planned
    return planned.model if planned is not None else None


def narrow_range(subject: Subject) -> Iterator[Hit]:
    model, facts, planned = _model(subject), subject.facts, subject.setting.planned
    if model is None or planned is None or facts("fp16.enabled") is not True:
        return
    gpu = planned.cluster.gpu
    if gpu is not None and "bf16" not in gpu.peak:
        return
    stated = model.config.get("dtype") or model.config.get("torch_dtype")
    if stated == "bfloat16" or (stated is None and model.family in RELEASED_IN_BF16):
        yield Hit("ZP319", subject.spelled("fp16.enabled"), f"{model.name} was trained in bf16: values beyond 65,504 "
                  "overflow in fp16, and the loss scale falls", '"bf16": {"enabled": true}')  # fmt: skip


def sequence_groups(subject: Subject) -> Iterator[Hit]:
    model, size = _model(subject), subject.config.get("sequence_parallel_size")
    if model is None or not isinstance(size, int) or size < 2:
        return
    heads, keys = model.shape.heads, model.shape.kv_heads
    if heads % size or (keys % size and size % keys):
        yield Hit("ZP710", ("sequence_parallel_size",), f"{heads} heads, {keys} of keys and values, in groups of "
                  f"{size}: Ulysses stops", f'"sequence_parallel_size": {_divisor(heads, keys, size)}')  # fmt: skip


def _divisor(heads: int, keys: int, most: int) -> int:
    sizes = range(1, min(most, heads) + 1)
    return max(size for size in sizes if not heads % size and not (keys % size and size % keys))


def beside_autoep(subject: Subject) -> Iterator[Hit]:
    model, facts = _model(subject), subject.facts
    if model is None or facts.stage != 3 or model.family not in AUTOEP:
        return
    if facts.stated("expert_parallel.enabled") is not True:
        return
    for path, alone in ((f"{ZERO}.zero_hpz_partition_size", 1), (f"{ZERO}.zero_quantized_gradients", False),
                        ("expert_parallel.expert_tensor_parallel_size", 1)):  # fmt: skip
        if facts(path) not in (alone, None):
            name = path.rpartition(".")[2]
            yield Hit("ZP427", subject.spelled(path), f"{name} beside AutoEP at stage 3: DeepSpeed refuses that",
                      f'"{name}": {str(alone).lower()}')  # fmt: skip


def large_bucket(subject: Subject) -> Iterator[Hit]:
    model, facts, path = _model(subject), subject.facts, f"{ZERO}.reduce_bucket_size"
    if model is None or model.inferred or facts.stage == 0:
        return
    size = facts(path)
    if isinstance(size, int | float) and size > model.trainable_parameters:
        yield Hit("ZP711", subject.spelled(path), f"a bucket of {size:,} elements for "
                  f"{count(model.trainable_parameters)} parameters that train: all of it is allocated",
                  f'"reduce_bucket_size": {model.trainable_parameters}')  # fmt: skip


def small_buffers(subject: Subject) -> Iterator[Hit]:
    planned = subject.setting.planned
    if planned is None or planned.job is None or planned.job.strategy.stage != 3:
        return
    from zeroplan.costs.deepspeed.nvme_swap import check_buffers

    try:
        check_buffers(planned.job)
    except ContradictionError as error:
        section = "offload_param" if str(error).startswith("offload_param") else "offload_optimizer"
        said, _, write = str(error).partition("; ")
        yield Hit("ZP508", subject.spelled(f"{ZERO}.{section}"), f"{said}: DeepSpeed stops",
                  write.rpartition("write ")[2])  # fmt: skip


def uneven_codes(subject: Subject) -> Iterator[Hit]:
    planned = subject.setting.planned
    job = planned.job if planned else None
    if job is None or job.strategy.stage != 3 or not job.strategy.quantized_weights:
        return
    from zeroplan.costs.deepspeed.quantized_collectives import check_partitions

    try:
        check_partitions(job)
    except ContradictionError as error:
        yield Hit("ZP707", subject.spelled(f"{ZERO}.zero_quantized_weights"), str(error).partition("; ")[0],
                  '"zero_quantized_weights": false')  # fmt: skip


def experts(subject: Subject) -> Iterator[Hit]:
    """DeepSpeed knows blocks of some models since 0.18, when the key came; before, no model's."""
    planned, version = subject.setting.planned, subject.setting.transformers
    job = planned.job if planned else None
    if job is None or job.strategy.stage != 3 or not job.model.shape.experts:
        return
    key = subject.table.key(f"{ZERO}.leaf_module")
    if (key and job.execution.leaves) or (version is not None and number(version) >= (5,)):
        return
    name = next((tensor.name for tensor in job.model.tensors if ".experts." in tensor.name), "")
    block = name.partition(".experts.")[0].rpartition(".")[2]
    if block:
        knows = "DeepSpeed knows this model's blocks by no name of its own"
        if key is None:
            knows = f"DeepSpeed {subject.table.version} knows no model's blocks by itself"
        yield Hit("ZP426", subject.spelled(f"{ZERO}.stage"), "with transformers before 5 a rank waits for ever where "
                  f"an expert gets no token on another; {knows}",
                  f'"leaf_module": {{"name_suffixes": ["{block}"]}}' if key else
                  f"deepspeed.utils.set_z3_leaf_modules(model, [type of {block}]) in the script")  # fmt: skip


def kept_whole(subject: Subject) -> Iterator[Hit]:
    from zeroplan.costs.deepspeed.partitions import persistent_tensors

    planned = subject.setting.planned
    job = planned.job if planned else None
    if job is None or job.strategy.stage != 3 or job.ranks == 1:
        return
    whole = sum(job.model.tensors[index].elements for index in persistent_tensors(job))
    if whole > job.model.parameters / job.ranks:
        path, name = f"{ZERO}.stage3_param_persistence_threshold", "stage3_param_persistence_threshold"
        yield Hit("ZP425", subject.spelled(path), f"tensors of up to {job.strategy.param_persistence_threshold:,} "
                  f"elements stay whole on every rank: {gib(job.strategy.element_bytes * whole)}, more than a rank's "
                  "share of the model", f'"{name}": 100000')  # fmt: skip


def saved_whole(subject: Subject) -> Iterator[Hit]:
    facts, planned = subject.facts, subject.setting.planned
    if planned is None or planned.job is None or planned.cluster.host_memory is None:
        return
    path = f"{ZERO}.stage3_gather_16bit_weights_on_model_save"
    if facts.stage != 3 or not facts(path):
        return
    held = sum(entry.bytes for entry in planned.candidate.ledger.host.resident)
    whole = planned.job.strategy.element_bytes * planned.job.model.parameters
    if held + whole > planned.cluster.host_memory:
        yield Hit("ZP416", subject.spelled(path), f"rank 0 gathers {gib(whole)} in host memory beside {gib(held)}, of "
                  f"{gib(planned.cluster.host_memory)}", '"stage3_gather_16bit_weights_on_model_save": false, and '
                  "zero_to_fp32.py afterwards")  # fmt: skip


CHECKS = (narrow_range, sequence_groups, beside_autoep, large_bucket, small_buffers, uneven_codes)
COUNTED = (experts, kept_whole, saved_whole)
"""These ask the ledger, or how the model runs."""
