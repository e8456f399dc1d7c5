"""Every key that DeepSpeed 0.19.8 reads, and every key of public files, is something to a plan: none is passed over."""

from __future__ import annotations

import json
from functools import cache

import pytest

from tests.corpus import FILES, needs_corpus
from tests.jobs import job
from zeroplan.costs.ledger import ledger
from zeroplan.costs.timing.step import step_time
from zeroplan.deepspeed.keys import KEYS, OPEN_SECTIONS, key
from zeroplan.deepspeed.keys.removed import REMOVED_KEYS
from zeroplan.deepspeed.names import COMMENTS
from zeroplan.deepspeed.read import read_config
from zeroplan.deepspeed.roles import COUNTED, COUNTED_KEYS, NAMED, NAMED_KEYS, NOTHING, NOTHING_KEYS, role
from zeroplan.errors import ContradictionError, ZeroplanError
from zeroplan.ledger import total
from zeroplan.specs.strategy import Strategy

SECTIONS = {known.section for known in KEYS.values()}
LEAVES = [path for path in KEYS if path not in SECTIONS]
CPU, NVME = {"device": "cpu"}, {"device": "nvme", "nvme_path": "/nvme"}


def test_every_key_of_deepspeed_has_one_role():
    assert [path for path in LEAVES if role(path) is None] == []
    assert not COUNTED_KEYS & (NAMED_KEYS | NOTHING_KEYS.keys())
    assert not [path for path in NOTHING_KEYS if path in NAMED_KEYS]


def test_every_role_is_of_a_key():
    assert [path for path in (*COUNTED_KEYS, *NAMED_KEYS, *NOTHING_KEYS) if path not in KEYS] == []
    assert all(NOTHING_KEYS.values())


def zero(**section):
    return {"bf16": {"enabled": True}, "zero_optimization": section}


BASES = (
    {"bf16": {"enabled": True}},
    {"fp16": {"enabled": True}},
    {"bf16": {"enabled": False}},
    *(zero(stage=stage) for stage in (1, 2, 3)),
    *(zero(stage=stage, overlap_comm=True) for stage in (1, 2)),
    {**zero(stage=1), "data_types": {"grad_accum_dtype": "fp32"}},
    *(zero(stage=stage, offload_optimizer=CPU) for stage in (2, 3)),
    zero(stage=3, offload_param=CPU),
    {"fp16": {"enabled": True}, "zero_optimization": {"stage": 2, "offload_optimizer": CPU},
     "optimizer": {"type": "AdamW"}},
    {**zero(stage=2, offload_optimizer=CPU), "optimizer": {"type": "AdamW"}},
    {"bf16": {"enabled": True, "bf16_master_weights_and_grads": True},
     "zero_optimization": {"stage": 2, "offload_optimizer": CPU}, "optimizer": {"type": "AdamW"}},
    zero(stage=3, offload_optimizer=NVME, offload_param=NVME),
    zero(stage=3, offload_optimizer={**NVME, "pipeline_write": True}, sub_group_size=2_000_000),
    zero(stage=3, stage3_prefetch_bucket_size=0),
    {**zero(stage=2, offload_optimizer=CPU, overlap_comm=True, zenflow={"update_interval": 1, "select_strategy": "step",
     "select_interval": 1}), "optimizer": {"type": "AdamW"}},
    *({**zero(stage=stage, reduce_scatter=False), "gradient_predivide_factor": 2.0} for stage in (1, 3)),
    {**zero(stage=3), "activation_checkpointing": {"partition_activations": True}},
    zero(stage=3, offload_optimizer={**CPU, "ratio": 1.0}, sub_group_size=1_000_000),
    {**zero(stage=2, offload_optimizer=CPU, overlap_comm=True, zenflow={"update_interval": 4, "select_strategy": "step",
     "select_interval": 8}), "optimizer": {"type": "AdamW"}},
    {**zero(stage=1), "gradient_clipping": 0},
    {"bf16": {"enabled": False}, "zero_optimization": {"stage": 3}, "torch_autocast": {"enabled": True, "dtype": "fp16"}},
    *({**zero(stage=stage), "optimizer": {"type": name, "params": {"lr": 1e-4, **params}}}
      for stage in (0, 1, 2) for name, params in (("AdamW", {"torch_adam": True}), ("Adam", {"torch_adam": True, "weight_decay": 0.1}), ("SGD", {}), ("Muon", {}))),
    {**zero(stage=1), "activation_checkpointing": {"partition_activations": True, "contiguous_memory_optimization": True,
                                                   "number_checkpoints": 60}},
    {**zero(stage=0), "sequence_parallel_size": 2, "zero_optimization": {"stage": 3}},
    {"zero_optimization": True, "bf16": {"enabled": True}},
)  # fmt: skip
"""Configs in one of which each counted key does something."""
TRIED = {
    "optimizer.type": ["SGD", "Lion"], "data_types.grad_accum_dtype": ["fp32"], "data_types.buffer_dtype": ["bf16"],
    "communication_data_type": ["fp32"], "seq_parallel_communication_data_type": ["bf16"],
    "torch_autocast.dtype": ["bf16", "fp32"], "allgather_size": [1_000_000],
    "zero_optimization.leaf_module.classes": [["LlamaMLP"]], "zero_optimization.leaf_module.names": [["model.layers.0"]],
    "zero_optimization.leaf_module.name_suffixes": [["mlp"]], "train_batch_size": [16],
    "train_micro_batch_size_per_gpu": [2], "gradient_accumulation_steps": [2], "optimizer.params.momentum": [0.9],
    "optimizer.params.ns_method": ["standard"], "optimizer.params.weight_decay": [0.1],
    "activation_checkpointing.number_checkpoints": [120],
    "zero_optimization.stage3_module_granularity_threshold": [4_000, 600_000],
    "zero_optimization.allgather_bucket_size": [1_000_000], "zero_optimization.stage3_max_reuse_distance": [0],
    "zero_optimization.zenflow.select_interval": [2], "zero_optimization.zenflow.update_interval": [8],
    "zero_optimization.zenflow.select_strategy": ["epoch"],
    "zero_optimization.zero_hpz_partition_size": [2], "zero_optimization.offload_optimizer.ratio": [0.5],
    "zero_optimization.stage3_model_persistence_threshold": [0], "gradient_predivide_factor": [2.0],
    "gradient_clipping": [0], "zero_optimization.offload_param.max_in_cpu": [0],
    "zero_optimization.stage3_param_persistence_threshold": [0],
}  # fmt: skip

ELSEWHERE = {
    "aio.queue_depth": "reads that are smaller than the queue", "aio.overlap_events": "reads smaller than the queue",
    "allgather_size": "ZenFlow's chosen columns", "zero_optimization.allgather_bucket_size": "ZenFlow's chosen columns",
    "gradient_predivide_factor": "peaks of reduction in another dtype", "prescale_gradients": "peaks of reduction",
    "optimizer.params.adam_w_mode": "torch's Adam where its step is the peak",
    "zero_optimization.offload_optimizer.pipeline_read": "a disk slower than the update",
    "zero_optimization.offload_optimizer.pipeline_write": "a disk slower than the update",
    "zero_optimization.parameter_alignment": "tensors of odd sizes",
    "zero_optimization.stage3_module_granularity_threshold": "models whose modules take tensors",
}  # fmt: skip
"""Counted keys that change a number in other jobs than these, which tests/costs has: here the strategy changes."""


def values(known):
    if known.path in TRIED:
        return TRIED[known.path]
    if known.kind.startswith("boolean"):
        return [True, False]
    if known.choices:
        return list(known.choices)
    return [known.default * 10, known.default // 10 or 1] if isinstance(known.default, int) else [known.default / 2]


def with_value(base, path, value):
    changed = json.loads(json.dumps(base))
    section = changed
    *sections, name = path.split(".")
    for part in sections:
        section = section.setdefault(part, {})
        if not isinstance(section, dict):
            return None
    section[name] = value
    return changed


@cache
def fields(text):
    """Of the strategy, and the total; None where DeepSpeed refuses the config."""
    try:
        stated = read_config(json.loads(text), "ds_config.json")
    except ZeroplanError:
        return None
    return {name: value for name, value in stated.fields.items() if name != "uncounted"}, stated.train_batch_size


@cache
def numbers(text):
    """What the ledger and the clock make of them."""
    if (found := fields(text)) is None:
        return None
    stated, total_batch = found
    one = job("smollm2-135m", gpus=8, seq=128, **{"checkpointing": "deepspeed", **stated})
    if one.strategy.quantized_gradients:  # they are for several nodes
        one = job("smollm2-135m", gpus=16, seq=128, **{"checkpointing": "deepspeed", **stated})
    try:
        found = ledger(one)
    except ZeroplanError:
        return None
    tiers = (found.gpu, found.host)
    held = [(total(tier.resident), [total(moment.lines) for moment in tier.moments]) for tier in tiers]
    moved = [(entry.when, entry.collective, str(entry.dtype), entry.calls, entry.bytes) for entry in found.traffic]
    copied = sum(entry.line.bytes for entry in found.copies)
    return total_batch, str(held), str(moved), one.strategy.micro_steps, copied, total(found.nvme.resident), step_time(one, found).total


def unlikely(base, known):
    """Whether a base is one of those that are tried last: at another stage, or without the key's section."""
    section = base.get("zero_optimization")
    stage = section.get("stage", 0) if isinstance(section, dict) else 0
    inside = known.section.partition(".")[2] if known.section.startswith("zero_optimization") else known.section
    return (len(known.stages) < 4 and stage not in known.stages, bool(inside) and inside.split(".")[0] not in str(base))


@pytest.mark.parametrize("path", sorted(COUNTED_KEYS))
def test_what_is_counted_changes_a_number(path):
    look = fields if path in ELSEWHERE else numbers
    for base in sorted(BASES, key=lambda base: unlikely(base, KEYS[path])):
        before = look(json.dumps(base, sort_keys=True))
        for value in values(KEYS[path]):
            config = with_value(base, path, value)
            after = look(json.dumps(config, sort_keys=True)) if config else None
            if before is not None and after is not None and before != after:
                return
    pytest.fail(f"{path} changes nothing")


@needs_corpus
def test_every_key_of_a_public_file_is_something():
    """Counted, named, known to change nothing, refused, or said to be unknown."""
    looked_at = 0
    for path in FILES:
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except json.JSONDecodeError:
            continue
        try:
            notes = read_config(config, "ds_config.json").notes
        except ZeroplanError:
            notes = None  # the file is refused as a whole, and says why
        for full in paths(config):
            looked_at += 1
            known = key(full)
            section = full.rpartition(".")[0]
            if known is not None:
                assert known.path in SECTIONS or role(known.path) is not None, (path.name, full)
            elif notes is not None and section not in OPEN_SECTIONS:
                assert any(note.startswith(f"{full}: ") for note in notes), (path.name, full)
    assert looked_at > 1_000


def paths(section, inside=""):
    for name, value in section.items():
        full = f"{inside}.{name}" if inside else name
        if name.startswith(COMMENTS) or full in REMOVED_KEYS:
            continue
        yield full
        if isinstance(value, dict) and key(full) is not None:
            yield from paths(value, full)


def test_kinds():
    assert role("zero_optimization.stage").kind == COUNTED
    assert role("compile.deepcompile").kind == NAMED
    assert role("tensorboard.job_name").kind == NOTHING
    assert role("zero_optimization") is role("gradient_cliping") is None


def test_what_is_named_says_something():
    """A config with the switch on is refused as not planned, or says so beside its numbers."""
    on = {"pipeline.stages": 4, "tensor_parallel.autotp_size": 2, "sequence_parallel_size": 2,
          "managed_gradient_accumulation": False, "data_types.keep_in_fp32_modules": ["rotary"],
          "torch_autocast.lower_precision_safe_modules": ["torch.nn.Conv2d"], "datastates_ckpt": {"host_cache_size": 1},
          "weight_quantization.quantized_initialization": {"num_bits": 8}, "zero_optimization.zenflow": {"update_interval": 4}}  # fmt: skip
    for path in NAMED_KEYS:
        base = zero(stage=3, offload_param=NVME)
        if path.startswith("torch_autocast"):
            base["torch_autocast"] = {"enabled": True, "dtype": "bf16"}
        if "muon" in path:
            base = {**zero(stage=3, offload_optimizer=NVME, reduce_scatter=False), "optimizer": {"type": "Muon"}}
        if "zenflow" in path:
            base = zero(stage=3, offload_optimizer=CPU, zenflow={})
        if path.endswith("curriculum_learning.enabled"):
            base = with_value(base, path.replace("enabled", "curriculum_metrics"), {})
        if path.endswith("dynamic_batching.enabled"):
            base = with_value(base, path.replace("enabled", "max_tokens"), 4096)
        value = "auto" if path.endswith("update_interval") else on.get(path, True)
        assert path in said_of(with_value(base, path, value))


def said_of(config):
    """What is said of a config beside its numbers, or why it has none."""
    try:
        stated = read_config(config, "ds_config.json")
    except ContradictionError as error:
        return str(error) if " is not planned: " in str(error) else ""
    return str((*stated.notes, *Strategy(**stated.fields).not_counted, *(one.what for one in stated.unplanned)))
