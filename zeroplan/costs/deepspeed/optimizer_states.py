"""Optimizer states, and what else optimizers keep or copy: which class runs, single numbers, temporaries.

Torch's single-tensor implementations, which run on the CPU and where foreach is false, and transformers' Adafactor
update one tensor after the other and copy what they need of each. Torch's Adam and Adagrad keep a number of steps of
each tensor, on the host, or with fused kernels beside the tensor (torch/optim/adam.py:_init_group); Adafactor its
root mean square (transformers optimization.py). Torch's Adagrad makes its states as it is built, and ZeRO builds it
again.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from zeroplan.arithmetic import ceil_div
from zeroplan.costs.cache import cached, no_key
from zeroplan.costs.deepspeed.layout import flat_groups, group_members
from zeroplan.costs.deepspeed.muon import matrices
from zeroplan.costs.deepspeed.partitions import sub_group_members
from zeroplan.errors import ContradictionError
from zeroplan.formulas import states
from zeroplan.ledger import DTYPE_BYTES, Line, line
from zeroplan.specs.job import Job
from zeroplan.specs.optimizer import OPTIMIZERS
from zeroplan.specs.quantization import BLOCK, INT8, OUTER_BLOCK
from zeroplan.specs.strategy import FLOATING, Strategy


def temporaries_one_by_one(tensors: Sequence[int], *, made: int, adds_decay: bool) -> int:
    """Most elements at once, where `made` copies of a tensor are alive together (torch/optim/adam.py, adagrad.py,
    sgd.py; transformers optimization.py, Adafactor.step).

    Adam makes a square root and a denominator, Adagrad the latter, Adafactor a square and its sum with epsilon, while
    the last one of the tensor before is still there. Where weight decay is added to gradients, each makes one more,
    which is all that SGD does.
    """
    if not made:
        return max(tensors, default=0) if adds_decay else 0
    each = made + adds_decay
    return max((before + each * size for before, size in zip((0, *tensors), tensors, strict=False)), default=0)


QUANTIZATION = "quantization states"
FROZEN = "frozen parameters"

FUSED = ("adam", "adamw", "lion", "lamb", "muon")
"""Optimizers that run as DeepSpeed's own CUDA kernels, each but Lamb with a flag for overflow; of Muon, Adam's half."""


def runs_fused(job: Job) -> bool:
    """Whether DeepSpeed's fused optimizer runs on the GPU (runtime/engine.py:get_optimizer_configuration)."""
    strategy = job.strategy
    return _is_deepspeeds(job) and strategy.optimizer in FUSED and not strategy.offload_optimizer


def _is_deepspeeds(job: Job) -> bool:
    """Neither torch's Adam nor bitsandbytes' Lion, which the Trainer makes."""
    strategy = job.strategy
    return not (strategy.runs_torch_adam or (strategy.client_optimizer and strategy.optimizer == "lion"))


def counts_on_gpu(job: Job) -> bool:
    """Torch's fused Adam keeps each tensor's number of steps beside it (torch/optim/adam.py:_init_group)."""
    strategy = job.strategy
    return strategy.runs_torch_adam and strategy.update == "fused" and not strategy.offload_optimizer


def _dtype(strategy: Strategy) -> Hashable:
    return strategy.dtype


@cached(_dtype)
def _frozen_elements(job: Job) -> dict[str, int]:
    """Elements that do not train, by their dtype."""
    sizes: dict[str, int] = {}
    for index in job.model.frozen:
        tensor = job.model.tensors[index]
        dtype = tensor.dtype or job.strategy.dtype
        sizes[dtype] = sizes.get(dtype, 0) + tensor.elements
    return sizes


def frozen_parameters(job: Job) -> list[Line]:
    """Those that do not train, below stage 3: each whole, in storage of its own, in no flat group."""
    return [
        line(FROZEN, states.frozen_parameters, dtype, frozen=frozen, w=DTYPE_BYTES[dtype])
        for dtype, frozen in _frozen_elements(job).items()
    ]


@cached(no_key)
def _packed_shapes(job: Job) -> list[tuple[int, ...]]:
    """Rows and columns of the weights in 4 or 8 bit."""
    return [each.matrix for each in job.model.packed]


@cached(no_key)
def _blocks(job: Job) -> list[int]:
    """Blocks of each of these that has a scale of its own."""
    return [ceil_div(rows * columns, BLOCK) for rows, columns in _packed_shapes(job)]


def quantization_states(job: Job) -> list[Line]:
    """What bitsandbytes keeps beside packed weights: whole on each rank, as DeepSpeed does not know of it."""
    quantization, shapes = job.model.quantization, _packed_shapes(job)
    if not shapes or quantization is None:
        return []
    if quantization.kind == INT8:
        return [line(QUANTIZATION, states.row_scales, "float32", rows=sum(rows for rows, _columns in shapes))]
    blocks = _blocks(job)
    if not quantization.double:
        return [line(QUANTIZATION, states.block_scales, "float32", blocks=sum(blocks), tensors=len(shapes))]
    outer = sum(ceil_div(each, OUTER_BLOCK) for each in blocks)
    return [
        line(QUANTIZATION, states.quantized_scales, "uint8", blocks=sum(blocks)),
        line(QUANTIZATION, states.scales_of_scales, "float32", outer=outer, tensors=len(shapes)),
    ]


def kept_codes(job: Job) -> list[Line]:
    """Weights in 8 bit that stage 3 has partitioned, as their modules go on keeping them: whole."""
    codes = sum(each.elements for each in job.model.packed) if job.model.in_8_bit else 0
    return [line(QUANTIZATION, states.kept_codes, "int8", codes=codes)] if codes else []


def model_buffers(job: Job) -> list[Line]:
    """Buffers the model registers, by dtype, and what bitsandbytes keeps beside weights; in fp32 DeepSpeed casts none
    (runtime/engine.py:2081).

    In 16 bit it casts those that the model does not keep in fp32 (runtime/keep_in_fp32.py).
    """
    sizes: dict[str, int] = {}
    cast = job.strategy.buffer_dtype if job.strategy.element_bytes == 2 else None
    for stated, elements in job.model.buffers:
        follows = stated == "training" or (stated == "built" and job.strategy.builds_partitioned)
        dtype = job.strategy.built_dtype if follows else "float32" if stated in ("built", "kept") else stated
        if cast and stated != "kept" and dtype in FLOATING.values():
            dtype = FLOATING[cast]
        sizes[dtype] = sizes.get(dtype, 0) + elements * DTYPE_BYTES[dtype]
    registered = [
        line("model buffers", states.model_buffers, dtype, size=size) for dtype, size in sizes.items() if size
    ]
    return registered + quantization_states(job)


def numbers(job: Job, dtypes: dict[str, int]) -> list[Line]:
    """Single numbers kept on the GPU: the gradient norm and flags of a stage, and the fused optimizer's flag."""
    result = [
        line("norm and flags", states.scalars, dtype, tensors=count, w=DTYPE_BYTES[dtype])
        for dtype, count in dtypes.items()
        if count
    ]
    if job.strategy.autocast == "fp16":
        scaler = [line("norm and flags", states.scalars, dtype, tensors=1, w=4) for dtype in ("float32", "int32")]
        result += scaler  # torch.amp.GradScaler's scale, and how long it has grown
    adam = job.strategy.optimizer != "muon" or len(matrices(job)) < len(job.model.trainable)
    if runs_fused(job) and job.strategy.optimizer != "lamb" and adam:
        result.append(line("fused optimizer's flag", states.scalars, "int32", tensors=1, w=4))
    return result


def built_states(job: Job) -> list[Line]:
    """Torch's Adagrad makes sums of squares as it is built, for the model's own parameters; ZeRO never frees them.

    Parameters that zero.Init has partitioned are empty then, and what peft adds to them is whole.
    """
    strategy, psi = job.strategy, job.model.trainable_parameters
    wrapped = strategy.stage > 0 or strategy.element_bytes == 2
    if strategy.stage == 3 and strategy.builds_partitioned:
        psi = sum(job.model.tensors[index].elements for index in job.model.added)
    if strategy.optimizer != "adagrad" or strategy.offload_optimizer or not (psi and wrapped):
        return []
    dtype = job.adapter_dtype
    return [line("optimizer states", states.built_states, dtype, psi=psi, w=DTYPE_BYTES[dtype])]


def master_name(job: Job) -> str:
    """What the copy that the optimizer updates is called on the screen."""
    return "fp32 master copy" if job.strategy.master == "float32" else "16-bit master copy"


def state_bytes(job: Job, dtype: str = "float32") -> int:
    """Bytes of the optimizer's own states per parameter, when they are kept in `dtype`; under Muon, of Adam's half.

    Adafactor's row and column sums need rows: the flat partitions of stages 1 to 3 get a whole fp32 second moment
    (transformers optimization.py, Adafactor._get_options).
    """
    if job.strategy.optimizer == "adafactor" and job.strategy.stage > 0:
        return 4
    size = OPTIMIZERS["adam" if job.strategy.optimizer == "muon" else job.strategy.optimizer].state_bytes
    if job.strategy.amsgrad:
        size += 4  # the largest second moments so far
    if job.strategy.optimizer == "lion" and job.strategy.offload_optimizer:
        size = 8  # the CPU build makes a second moment too (ops/lion/cpu_lion.py)
    return size * DTYPE_BYTES[dtype] // 4 if dtype != "uint8" else size


def state_dtype(job: Job) -> str:
    """States on the GPU have the dtype of the weights they belong to; DeepSpeed's CPU optimizers keep fp32 ones."""
    if job.strategy.optimizer == "adam8bit":
        return "uint8"
    return job.strategy.master


def host_state_dtype(job: Job) -> str:
    """fp32, or the master weights' own (ops/adam/cpu_adam.py: fp32_optimizer_states)."""
    return job.strategy.master if job.strategy.states_as_master else "float32"


def temporaries(job: Job, tensors: Sequence[int]) -> int:
    """Elements that the optimizer copies while it updates these tensors together, under Muon those of Adam's half.

    Fused kernels copy nothing, DeepSpeed's or torch's. Torch's foreach, its default on CUDA since torch 2.0: Adam takes
    the square roots of all second moments first, SGD adds weight decay to all gradients, Adagrad takes square roots and
    scales gradients (torch/optim/adam.py, sgd.py, adagrad.py). Otherwise they go tensor by tensor, as does
    transformers' Adafactor. The sub-groups that partial offload leaves on the GPU run torch's Adam as it comes
    (runtime/zero/stage3.py, backup_optimizer).
    """
    strategy = job.strategy
    backup = strategy.offload_optimizer is not None and not strategy.runs_torch_adam
    adam = (strategy.runs_torch_adam or backup) and strategy.optimizer in ("adam", "adamw", "muon")
    decays = strategy.weight_decay > 0 or (strategy.parameter_groups == 2 and not strategy.client_optimizer)
    sgd = strategy.optimizer in ("sgd", "sgd-momentum") and decays
    adagrad, adafactor = (strategy.optimizer == name for name in ("adagrad", "adafactor"))
    update = "foreach" if adam and backup else strategy.update
    if adafactor or update == "single-tensor" or (strategy.backend == "cpu" and update == "foreach"):
        adds = sgd or (decays and (adagrad or (adam and not strategy.decoupled_decay)))
        return temporaries_one_by_one(tensors, made=2 if adam or adafactor else int(adagrad), adds_decay=adds)
    if update == "fused":
        return 0
    return sum(tensors) * (2 if adagrad else 1) if adam or sgd or adagrad else 0


def updated_tensors(job: Job) -> int:
    """How many the optimizer updates, of the model, flat partitions or sub-groups; under Muon those of Adam's half."""
    if job.strategy.stage == 0:
        return len(job.model.trainable) - len(matrices(job))
    if job.strategy.stage == 3:
        return sum(members[0] not in matrices(job) for members in sub_group_members(job))
    return sum(not layout.muon for layout in flat_groups(job))


def on_gpu(job: Job) -> list[Line]:
    adafactor = job.strategy.optimizer == "adafactor" and not job.strategy.offload_optimizer
    if not (adafactor or counts_on_gpu(job)):
        return []
    name = "root mean squares" if adafactor else "step counters"
    return [line(name, states.scalars, "float32", tensors=updated_tensors(job), w=4)]


def check_adagrad(job: Job) -> None:
    """Raises `ContradictionError` where the new one has a single group and the step asks for a second.

    runtime/zero/stage_1_and_2.py:947 and 2969, stage3.py:1358 and 1260.
    """
    strategy = job.strategy
    torchs = strategy.runs_torch_adam or not strategy.offload_optimizer  # DeepSpeed's own runs on the host
    rebuilt = strategy.optimizer == "adagrad" and strategy.stage > 0 and torchs and not strategy.runs_bf16_optimizer
    if rebuilt and len(group_members(job)) > 1:
        raise ContradictionError(
            f"optimizer: found Adagrad at stage {strategy.stage} with several parameter groups; DeepSpeed builds it "
            "anew with one and stops in its first step, give it one group, or take another optimizer"
        )
