"""A strategy: what a ds_config.json (and the launch around it) decides.

ZenFlow: the columns of each matrix whose gradients are largest are updated at once, the rest later on the host.
"""

import sys
from typing import NamedTuple

from zeroplan.specs.checkpointing import DEEPSPEED, ActivationCheckpointing, Recomputing, recomputing
from zeroplan.specs.model import DEFAULT_LEAVES, LeafModules
from zeroplan.specs.optimizer import OPTIMIZERS
from zeroplan.specs.target import USUAL, Script


class ZenFlow(NamedTuple):
    """zero_optimization.zenflow; defaults are DeepSpeed 0.19.8's (runtime/zenflow/zenflow_config.py)."""

    update_interval: int
    """Micro-steps from one update on the host to the next: they take gradient accumulation's place."""
    topk_ratio: float = 0.1
    """Share of columns that are updated at once."""
    select_interval: int = 0
    """Micro-steps from one choice of columns to the next; 0 for epochs, which are longer than any step."""
    offload: bool = False
    """The chosen columns' moments lie on the host between updates."""

    overlap_step: bool = False
    """The host's update runs in a process of its own, beside the next micro-steps."""

    @property
    def chooses_in_every_step(self) -> bool:
        return self.select_interval == self.update_interval


PRECISIONS = ("fp32", "fp16", "bf16", "fp8")
FLASH = "flash_attention_2"
ATTENTION = ("eager", "sdpa", FLASH, "flash_attention_3")
KERNELS = ("transformers", "liger", "liger-loss")
BACKENDS = ("cuda", "cpu")
UPDATES = ("fused", "foreach", "single-tensor")
BUILT_IN = ("fp32", "fp16", "bf16")
BUILT_ON = ("host", "gpu")
STAGES = (0, 1, 2, 3)
DEVICES = ("none", "cpu", "nvme")


class Offload(NamedTuple):
    """An offload section; defaults are DeepSpeed 0.19.8's (runtime/zero/offload_config.py)."""

    device: str
    """cpu or nvme."""
    pin_memory: bool = True
    """Whether host buffers are page-locked."""
    buffer_count: int = 0
    """0 stands for the section's own default: 5 for parameters, 4 for the optimizer."""
    buffer_size: int = 100_000_000
    """Elements of one buffer for parameters on NVMe."""
    max_in_cpu: int = 1_000_000_000
    """Elements of parameters that stay in host memory beside NVMe."""
    ratio: float = 1.0
    """Share of the optimizer's states that is on the host."""
    pipeline_read: bool = False
    """Whether the next states are read while others are updated."""
    pipeline_write: bool = False
    """Whether states are written while others are updated."""
    nvme_path: str | None = None
    """Folder of the files on NVMe."""


FLOATING = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16"}
"""Short names of dtypes, and torch's."""


class Strategy(NamedTuple):
    """Sizes are elements, as DeepSpeed counts them; defaults are DeepSpeed 0.19.8's (runtime/zero/config.py)."""

    stage: int
    """ZeRO stage, 0 to 3."""
    precision: str = "bf16"
    """fp32, fp16, bf16 or fp8."""
    optimizer: str = "adamw"
    """As `--optimizer` has it."""
    micro_batch: int = 1
    """Sequences of one micro-batch on one GPU."""
    grad_accum: int = 1
    """Micro-batches of an optimizer step."""
    checkpointing: str = "none"
    """As `--checkpointing` has it."""
    activation_checkpointing: ActivationCheckpointing = ActivationCheckpointing()
    """Read where checkpointing is deepspeed's."""
    attention: str = "sdpa"
    """As `--attention` has it: transformers' attn_implementation."""
    kernels: str = "transformers"
    """liger: all that liger-kernel patches in the family; liger-loss: its fused linear cross-entropy alone."""
    offload_optimizer: Offload | None = None
    """Where the optimizer's states are; None: on the GPU."""
    offload_param: Offload | None = None
    """Where parameters are; None: on the GPU."""
    reduce_bucket_size: int = 500_000_000
    """Elements of one reduction of gradients."""
    allgather_bucket_size: int = 500_000_000
    """Elements of one all-gather of updated parameters."""
    prefetch_bucket_size: int = 50_000_000
    """Elements that stage 3 gathers ahead."""
    param_persistence_threshold: int = 100_000
    """Elements of a parameter under which stage 3 keeps it whole."""
    model_persistence_threshold: int = sys.maxsize
    """Elements of all parameters that stage 3 keeps whole, at most."""
    max_live_parameters: int = 1_000_000_000
    """Elements that stage 3 has gathered at once, at most."""
    max_reuse_distance: int = 1_000_000_000
    """Elements until its next use under which a parameter stays gathered."""
    sub_group_size: int = 1_000_000_000
    """Elements that the optimizer updates at once at stage 3."""
    overlap_comm: bool | None = None
    """None: DeepSpeed decides, on at stage 3 only."""
    contiguous_gradients: bool = True
    """Whether gradients are copied into one buffer."""
    reduce_scatter: bool = True
    """Whether gradients are reduced to their owners alone, and not to all ranks."""
    round_robin_gradients: bool = False
    """Whether gradients are dealt out to ranks in turns."""
    parameter_alignment: bool = False
    """Whether each parameter begins at an aligned place of the flat buffer."""
    use_multi_rank_bucket_allreduce: bool = True
    """Whether one all-reduce carries gradients of several ranks."""
    gradient_clipping: float = 1.0
    """The norm at which gradients are clipped; 0: never."""
    prescale_gradients: bool = False
    """Gradients are divided before they are reduced, and not after, where gradient_predivide_factor counts too."""
    gradient_predivide_factor: float = 1.0
    """What gradients are divided by before they are reduced."""
    grad_accum_dtype: str | None = None
    """None: as the parameters (data_types.grad_accum_dtype)."""
    communication_dtype: str | None = None
    """The dtype in which gradients are reduced; None: their own."""
    master_dtype: str | None = None
    """None: fp32. fp16_master_weights_and_grads and its bf16 twin keep them, with their gradients, in 16 bit."""
    states_as_master: bool = False
    """bf16_optimizer_states, or fp32_optimizer_states false: on the host too the optimizer's own states are like it."""
    buffer_dtype: str | None = None
    """None: the model's buffers stay as they are built (data_types.buffer_dtype)."""
    check_grad_overflow: bool = True
    """fp16 always checks; this is bf16's own switch."""
    immediate_grad_update: bool = False
    """BF16_Optimizer adds each gradient to its fp32 one as it is born, and frees it."""
    compute_grad_norm: bool = True
    """Whether the norm of all gradients is computed."""
    torch_adam: bool = False
    """Torch's Adam steps in place of DeepSpeed's."""
    client_optimizer: bool = False
    """The Trainer or the script makes the optimizer, and ds_config.json has no optimizer section."""
    update: str = "foreach"
    """How torch's own optimizers update their tensors on a GPU: in fused kernels, foreach, or tensor by tensor."""
    amsgrad: bool = False
    """Whether Adam keeps the maximum of its second moments."""
    decoupled_decay: bool = True
    """False: adam_w_mode is, so that Adam adds weight decay to gradients."""
    ns_method: str = "gram"
    """How Muon makes an update orthogonal: gram or standard."""
    weight_decay: float = 0.0
    """The optimizer's weight decay."""
    parameter_groups: int = 1
    """1, 2 (decay and no decay, as the Trainer makes them), or k (tensor i in group i mod k)."""
    hpz_partition_size: int = 1
    """zero_hpz_partition_size: ranks that hold a second partition of the parameters (hpZ); 1: none."""
    memory_efficient_linear: bool = True
    """Whether stage 3 puts its own function in place of torch's linear."""
    autocast: str | None = None
    """torch_autocast over fp32 weights: parameters of linear layers travel in this dtype (bf16, fp16)."""
    quantized_weights: bool = False
    """zero_quantized_weights (qwZ): gathers carry 8-bit codes."""
    quantized_gradients: bool = False
    """zero_quantized_gradients (qgZ): reductions carry 4-bit codes."""
    all_reduce_for_fetch: bool = False
    """stage3_use_all_reduce_for_fetch_params: coalesced gathers become all-reduces."""
    allgather_sequential: bool = False
    """stage3_allgather_sequential: tensors are gathered one by one, and prefetched one at a time."""
    leaves: LeafModules = DEFAULT_LEAVES
    """leaf_module and stage3_module_granularity_threshold: modules that stage 3 gathers whole."""
    aio_block_size: int = 1024**2
    """Bytes of one read or write."""
    aio_intra_op_parallelism: int = 1
    """Threads that read or write one tensor."""
    aio_queue_depth: int = 8
    """Reads or writes that are under way at once."""
    aio_overlap_events: bool = True
    """Whether reads and writes are submitted while others are waited for."""
    aio_single_submit: bool = False
    """Whether reads and writes are submitted one by one."""
    backend: str = "cuda"
    """cuda, or cpu: DeepSpeed's accelerator."""
    native_pinning: bool = False
    """DS_PIN_MEMORY_BACKEND=native: DeepSpeed locks what it asks for, torch's allocator the next power of two."""
    uncounted: tuple[str, ...] = ()
    """Keys of the ds_config.json that do something which no formula here counts."""
    zenflow: ZenFlow | None = None
    """The section zenflow; None: off."""
    zero_init: bool | None = None
    """The model is built under deepspeed.zero.Init; None: at stage 3, as from_pretrained does under the Trainer."""
    built_in: str | None = None
    """The dtype in which the model comes to `initialize`, which casts its parameters; None: the training dtype."""
    built_on: str = "host"
    """Where it is built, and cast: on the host, as under the Trainer, or on the gpu (device_map)."""

    @property
    def not_counted(self) -> tuple[str, ...]:
        """What DeepSpeed does, or holds for a while, that no formula here counts."""
        quantizes = self.stage == 3 and (self.quantized_weights or self.quantized_gradients)
        parts = ["what ZeRO++'s CUDA kernels need in memory for themselves"] if quantizes else []
        if self.autocast and self.kernels != "transformers":
            parts.append("Liger's kernels under torch_autocast, which cast what they are given by themselves")
        if self.flash and (self.autocast or self.kernels != "transformers"):
            parts.append("flash-attention under autocast or beside Liger's kernels, which is compared with no run")
        if self.recomputing.attention and (self.flash or self.kernels != "transformers"):
            parts.append("selective checkpointing beside flash-attention or Liger's kernels: compared with no run")
        if self.precision == "fp8":
            parts.append("activations in fp8, which are counted as in bf16")
        if self.optimizer == "muon":
            parts.append("Muon's compiled update, which is counted as it runs uncompiled")
            if self.offload_optimizer and self.offload_optimizer.device == "nvme":
                parts.append("what Muon reads from NVMe in the step, and writes back")
        if self.zenflow and not self.selective:
            parts.append("zero_optimization.zenflow")
        return (*self.uncounted, *parts, *self.untimed)

    @property
    def untimed(self) -> tuple[str, ...]:
        """The part of it that is missing in the time of a step alone."""
        swaps = any(part and part.device == "nvme" for part in (self.offload_optimizer, self.offload_param))
        parts = []
        if self.aio_single_submit and self.stage == 3 and swaps:
            parts.append("aio.single_submit in the time of a step: no published figure says what it costs")
        if self.optimizer == "muon":
            parts.append("Muon's element-wise operators in the time of a step")
        if self.selective:
            parts.append("ZenFlow's choice of columns, and their update, in the time of a step")
        return tuple(parts)

    @property
    def recomputing(self) -> Recomputing:
        """Which layers run again in backward; on the CPU accelerator the host's memory is the layers' own."""
        result = recomputing(self.checkpointing)
        if self.checkpointing != DEEPSPEED:
            return result
        away = self.activation_checkpointing.on_host and self.backend != "cpu"
        return result._replace(inputs=self.activation_checkpointing._replace(on_host=away))

    @property
    def runs_zero_linear(self) -> bool:
        """Products run in stage 3's own linear function (runtime/zero/linear.py)."""
        return self.stage == 3 and self.memory_efficient_linear

    @property
    def flash(self) -> bool:
        """Attention is the flash-attention package's."""
        return self.attention.startswith("flash")

    @property
    def selective(self) -> ZenFlow | None:
        """ZenFlow as stages 1 and 2 run it, which is what is counted."""
        return self.zenflow if self.stage in (1, 2) and self.offload_optimizer else None

    @property
    def micro_steps(self) -> int:
        """Micro-steps of an optimizer step: ZenFlow's interval replaces accumulation (runtime/zenflow/engine.py)."""
        return self.selective.update_interval if self.selective else self.grad_accum

    @property
    def overlaps_update(self) -> bool:
        """The host's update has a process of its own, which shares its tensors with this one."""
        return self.selective is not None and self.selective.overlap_step

    @property
    def reduces_every_micro_step(self) -> bool:
        """Stage 1 waits for the last micro-step, but for ZenFlow (runtime/engine.py:allreduce_gradients)."""
        return self.stage == 2 or self.selective is not None

    @property
    def overlaps(self) -> bool:
        return self.stage == 3 if self.overlap_comm is None else self.overlap_comm

    @property
    def builds_partitioned(self) -> bool:
        """Whether the model comes to `initialize` partitioned already."""
        return self.stage == 3 if self.zero_init is None else self.zero_init

    @property
    def built_dtype(self) -> str:
        """Dtype of parameters as they come to `initialize`; deepspeed.zero.Init makes them in the training dtype."""
        return self.dtype if self.builds_partitioned else FLOATING.get(self.built_in or "", self.dtype)

    @property
    def is_cast(self) -> bool:
        """Whether `initialize` casts the model's parameters (runtime/engine.py:_cast_module_mixed_precision)."""
        return self.built_dtype != self.dtype

    @property
    def has_optimizer_section(self) -> bool:
        """Whether DeepSpeed makes the optimizer, as ds_config.json says."""
        return OPTIMIZERS[self.optimizer].config_type is not None and not self.client_optimizer

    @property
    def trainer_optim(self) -> str:
        """TrainingArguments' `optim`, which counts where there is no such section."""
        fused = self.optimizer == "adamw" and self.update == "fused"
        return "adamw_torch_fused" if fused else OPTIMIZERS[self.optimizer].trainer

    @property
    def runs_torch_adam(self) -> bool:
        """Accelerate puts DeepSpeedCPUAdam in the place of a client optimizer whose states are offloaded (accelerate
        1.15 utils/deepspeed.py:map_pytorch_optim_to_deepspeed).
        """
        return self.torch_adam and not (self.client_optimizer and self.offload_optimizer is not None)

    @property
    def scatters(self) -> bool:
        """Muon needs whole gradients at stage 3: DeepSpeed refuses reduce_scatter there (runtime/zero/stage3.py)."""
        return self.reduce_scatter and not (self.stage == 3 and self.optimizer == "muon")

    @property
    def element_bytes(self) -> int:
        """Bytes of a parameter as trained: fp8 runs inside matmuls, its weights stay 16-bit."""
        return 4 if self.precision == "fp32" else 2

    @property
    def dtype(self) -> str:
        return FLOATING.get(self.precision, "bfloat16")

    @property
    def contiguous(self) -> bool:
        """Whether gradients are copied into one buffer; optimizer offload at stages 1 and 2 forces it."""
        return self.contiguous_gradients or (self.offload_optimizer is not None and self.stage < 3)

    @property
    def runs_bf16_optimizer(self) -> bool:
        """Stage 1 with fp32 accumulation in bf16 is another class (runtime/engine.py:_do_optimizer_sanity_check)."""
        fp32_gradients = self.dtype == "bfloat16" and self.accumulation == "float32"
        return self.stage == 1 and fp32_gradients and self.offload_optimizer is None

    @property
    def accumulation(self) -> str:
        """Gradients accumulate in this dtype."""
        return FLOATING.get(self.grad_accum_dtype or "", self.dtype)

    @property
    def keeps_fp32_partition(self) -> bool:
        """Stages 1 and 2 accumulate 16-bit gradients in an fp32 partition of this rank's own."""
        return self.element_bytes == 2 and self.accumulation == "float32"

    @property
    def autocast_dtype(self) -> str | None:
        """What linear layers travel in under autocast; stage 0 knows nothing of it."""
        return FLOATING[self.autocast] if self.autocast and self.stage else None

    @property
    def communication(self) -> str:
        """Gradients travel in this dtype; under autocast, those of linear layers in another."""
        if self.autocast:
            return self.dtype
        return FLOATING.get(self.communication_dtype or "", self.dtype)

    @property
    def master(self) -> str:
        """Dtype of master weights and of the gradients that the optimizer reads; BF16_Optimizer knows fp32 alone."""
        if self.runs_bf16_optimizer:
            return "float32"
        return FLOATING.get(self.master_dtype or "", "float32")

    def shards(self, from_stage: int, ranks: int) -> int:
        """Over how many ranks a state is split that is sharded from `from_stage` on."""
        return ranks if self.stage >= from_stage else 1


class Workload(NamedTuple):
    """What the user asks for, whatever the strategy."""

    seq: int = 2048
    """Tokens of every sequence."""
    global_batch: int | None = None
    """Sequences of an optimizer step over all GPUs; None: not stated."""
    script: Script = USUAL
    """The training script that a plan is for."""
