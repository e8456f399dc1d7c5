"""Strategies drawn over all that a ds_config.json can state, and how to read one back from what was written."""

from __future__ import annotations

from hypothesis import strategies as st

from tests.jobs import job
from zeroplan.deepspeed.defaults import ZERO_FIELDS
from zeroplan.deepspeed.keys import KEYS
from zeroplan.deepspeed.read import autos, read_config, trainer_fills
from zeroplan.specs.checkpointing import ActivationCheckpointing
from zeroplan.specs.model import DEFAULT_LEAVES
from zeroplan.specs.optimizer import OPTIMIZERS
from zeroplan.specs.strategy import Offload, Strategy, ZenFlow

MODELS = ("smollm2-135m", "gpt2", "qwen3-30b-a3b", "mixtral-8x7b")
SIZES = st.integers(1, 10**9)
DTYPES = st.sampled_from([None, "fp16", "bf16", "fp32"])
ON_HOST = ("adam", "adamw", "adagrad", "lion")
OUTSIDE = ("checkpointing", "attention", "kernels", "parameter_groups", "backend", "native_pinning", "zero_init")
"""Fields of which a ds_config.json says nothing: the training script decides them."""
SWITCHED = ("foreach", "single-tensor")
"""Updates that a key of DeepSpeed's own switches; fused is a parameter of torch's class (tests/emit/test_client_optimizer.py)."""
AIO = ("aio_block_size", "aio_intra_op_parallelism", "aio_queue_depth", "aio_overlap_events", "aio_single_submit")


def sometimes(strategy, usual=None):
    return st.one_of(st.just(usual), strategy)


@st.composite
def offloads(draw, name, devices, *, ratio):
    device = draw(st.sampled_from(devices))
    found = Offload(device, pin_memory=draw(st.booleans()))
    if ratio:
        found = found._replace(ratio=draw(st.sampled_from([1.0, 0.5, 0.1])))
    if name == "offload_optimizer" and "nvme" in devices:
        found = found._replace(pipeline_read=draw(st.booleans()), pipeline_write=draw(st.booleans()))
    if device == "nvme":
        found = found._replace(
            nvme_path=draw(st.sampled_from(["/local_nvme", "/scratch"])), buffer_count=draw(st.integers(1, 9))
        )
        if name == "offload_param":
            found = found._replace(buffer_size=draw(SIZES), max_in_cpu=draw(SIZES))
    return found


@st.composite
def strategies(draw):
    """What DeepSpeed runs: of settings that exclude each other one is drawn."""
    stage = draw(st.sampled_from([0, 1, 2, 3]))
    optimizer = draw(st.sampled_from([*OPTIMIZERS, "adam", "adamw"]))
    fields = {
        "stage": stage,
        "optimizer": optimizer,
        "precision": draw(st.sampled_from(["fp32", "fp16", "bf16"])),
        "micro_batch": draw(st.integers(1, 64)),
        "grad_accum": draw(st.integers(1, 64)),
        "gradient_clipping": draw(st.sampled_from([0.0, 0.5, 1.0])),
        "communication_dtype": draw(DTYPES),
        "buffer_dtype": draw(DTYPES),
        "weight_decay": draw(st.sampled_from([0.0, 0.1])) if OPTIMIZERS[optimizer].config_type else 0.0,
        "activation_checkpointing": draw(checkpointing()),
        "checkpointing": draw(st.sampled_from(["none", "full", "every-2", "full-reentrant", "deepspeed"])),
    }
    fields |= draw(dtypes(stage, fields["precision"]))
    fields |= draw(zero(stage)) if stage else {}
    if stage and optimizer in ON_HOST and draw(st.booleans()):
        devices = ["cpu", "nvme"] if stage == 3 else ["cpu"]
        ratio = stage == 3 and optimizer in ("adam", "adamw")
        fields["offload_optimizer"] = draw(offloads("offload_optimizer", devices, ratio=ratio))
    if stage == 3 and draw(st.booleans()):
        fields["offload_param"] = draw(offloads("offload_param", ["cpu", "nvme"], ratio=False))
    fields |= draw(aio())
    if fields.get("autocast"):
        fields["quantized_weights"] = False
    if optimizer == "muon" and stage == 3:
        fields |= {"reduce_scatter": False, "quantized_gradients": False}
    if optimizer == "muon":
        fields["ns_method"] = draw(st.sampled_from(["gram", "standard"]))
    found = Strategy(**fields)
    return draw(adam(found)) if optimizer in ("adam", "adamw") else found


@st.composite
def zero(draw, stage):
    fields = {
        name: draw(SIZES)
        for name in ("reduce_bucket_size", "prefetch_bucket_size", "param_persistence_threshold", "sub_group_size",
                     "max_live_parameters", "max_reuse_distance", "model_persistence_threshold")
    }  # fmt: skip
    fields["allgather_bucket_size"] = 2 * draw(SIZES)
    fields |= {name: draw(st.booleans()) for name in ("overlap_comm", "contiguous_gradients", "reduce_scatter")}
    if stage < 3:
        names = ("round_robin_gradients", "parameter_alignment", "use_multi_rank_bucket_allreduce")
        return fields | {name: draw(st.booleans()) for name in names}
    names = ("memory_efficient_linear", "quantized_weights", "all_reduce_for_fetch", "allgather_sequential")
    fields |= {name: draw(st.booleans()) for name in names}
    fields["quantized_gradients"] = fields["reduce_scatter"] and draw(st.booleans())
    fields["hpz_partition_size"] = draw(st.sampled_from([1, 2, 4, 8]))
    fields["leaves"] = draw(leaves())
    return fields


@st.composite
def leaves(draw):
    names = st.lists(st.sampled_from(["model.layers.0", "MixtralExperts", "mlp"]), max_size=2).map(tuple)
    return DEFAULT_LEAVES._replace(
        classes=draw(st.one_of(st.just(DEFAULT_LEAVES.classes), names)), names=draw(names), name_suffixes=draw(names),
        granularity_threshold=draw(st.sampled_from([0, 0, 100_000])),
    )  # fmt: skip


@st.composite
def dtypes(draw, stage, precision):
    fields = {}
    if stage:
        fields["grad_accum_dtype"] = draw(DTYPES)
    if precision == "bf16":
        fields |= {name: draw(st.booleans()) for name in ("check_grad_overflow", "immediate_grad_update")}
    if precision == "fp32":
        fields["autocast"] = draw(st.sampled_from([None, "bf16", "fp16"]))
    return fields


@st.composite
def adam(draw, found):
    """What DeepSpeed's Adam knows beside: 16-bit masters on the host, torch's own class, ZenFlow."""
    kind = draw(st.sampled_from(["plain", "torch", "masters", "zenflow"]))
    if found.optimizer == "adam":
        found = found._replace(decoupled_decay=draw(st.booleans()))
    if kind == "torch" and not (found.offload_optimizer and found.offload_optimizer.ratio < 1):
        return found._replace(torch_adam=True, amsgrad=draw(st.booleans()), update=draw(st.sampled_from(SWITCHED)))
    if kind == "masters" and found.precision != "fp32" and found.offload_optimizer:
        return found._replace(master_dtype=found.precision, states_as_master=draw(st.booleans()))
    if kind == "zenflow" and found.stage in (1, 2) and found.offload_optimizer:
        interval = draw(st.integers(1, 8))
        chosen = ZenFlow(
            interval, draw(st.sampled_from([0.1, 0.05])), draw(st.sampled_from([0, interval, 2 * interval])),
            offload=draw(st.booleans()), overlap_step=draw(st.booleans()),
        )  # fmt: skip
        return found._replace(
            zenflow=chosen, reduce_scatter=True, overlap_comm=True, grad_accum_dtype=None, decoupled_decay=True
        )
    return found


@st.composite
def checkpointing(draw):
    switches = [draw(st.booleans()) for _ in range(3)]
    number = draw(st.integers(1, 40)) if switches[2] else None
    return draw(sometimes(st.just(ActivationCheckpointing(*switches, number)), ActivationCheckpointing()))


@st.composite
def aio(draw):
    numbers = {name: draw(st.sampled_from([1, 4, 64])) for name in AIO[1:3]}
    switches = {name: draw(st.booleans()) for name in AIO[3:]}
    return {"aio_block_size": draw(st.sampled_from([2**17, 2**20, 2**23])), **numbers, **switches}


def cases():
    """A model's name, GPUs, a strategy."""
    return st.tuples(st.sampled_from(MODELS), st.sampled_from([1, 2, 8, 16]), strategies())


def job_of(case):
    name, gpus, strategy = case
    return job(name, gpus=gpus)._replace(strategy=strategy)


def effective(strategy):
    """The fields that do something, by name, and what None and 0 stand for written out."""
    zero_keys = {field: KEYS[f"zero_optimization.{key}"].stages for key, field in ZERO_FIELDS.items()}
    idle = {field for field, stages in zero_keys.items() if strategy.stage not in stages}
    offloads = [getattr(strategy, name) for name in ("offload_optimizer", "offload_param")]
    if not any(part and part.device == "nvme" for part in offloads):
        idle |= set(AIO)
    if strategy.stage != 3:
        idle.add("leaves")
    found = strategy._replace(overlap_comm=strategy.overlaps, reduce_scatter=strategy.scatters)
    return {name: value for name, value in found._asdict().items() if name not in idle}


def read_back(config, asked, arguments=None):
    """A config as a strategy, with what only the script says taken from the strategy that was asked for.

    `arguments` are TrainingArguments: every "auto" is filled from them, as transformers' integrations/deepspeed.py does.
    """
    stated = read_config(config, "ds_config.json")
    fields = {**stated.fields, **{name: getattr(asked.strategy, name) for name in OUTSIDE}}
    if OPTIMIZERS[asked.strategy.optimizer].config_type is None:
        fields["optimizer"] = asked.strategy.optimizer
    if arguments is not None:
        assert autos(config) == list(stated.auto)
        fields |= filled(stated.auto, arguments, trainer_fills(asked.model.shape.hidden, fields["stage"]))
    return Strategy(**fields), stated


def filled(paths, arguments, sizes):
    on = [name for name in ("fp16", "bf16") if arguments.get(name)]
    values = {
        "train_micro_batch_size_per_gpu": ("micro_batch", arguments["per_device_train_batch_size"]),
        "gradient_accumulation_steps": ("grad_accum", arguments["gradient_accumulation_steps"]),
        "gradient_clipping": ("gradient_clipping", arguments["max_grad_norm"]),
        "bf16.enabled": ("precision", on[0] if on else "fp32"),
    }
    values |= {path: (ZERO_FIELDS[path.rpartition(".")[2]], size) for path, size in sizes.items()}
    return dict(values[path] for path in paths if path in values)
