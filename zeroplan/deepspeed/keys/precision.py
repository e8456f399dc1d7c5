"""Number formats: fp16, bf16, data_types and torch_autocast (0.19.8 has no fp8 section)."""

from __future__ import annotations

from zeroplan.deepspeed.keys.key import ZERO_STAGES, Key

KEYS: tuple[Key, ...] = (
    Key(
        path="fp16",
        kind="object",
        default={},
        meaning="Half-precision training with loss scaling; not together with bf16.",
        place="runtime/precision_config.py:92",
        moves_bytes=True,
    ),
    Key(
        path="fp16.enabled",
        kind="boolean",
        default=False,
        meaning="Holds the model in fp16 with fp32 master weights.",
        place="runtime/precision_config.py:105",
        auto="TrainingArguments.fp16 or fp16_full_eval",
        moves_bytes=True,
    ),
    Key(
        path="fp16.auto_cast",
        kind="boolean",
        default=False,
        meaning="Casts the inputs of forward to fp16.",
        place="runtime/precision_config.py:110",
    ),
    Key(
        path="fp16.loss_scale",
        kind="number",
        default=0,
        meaning="Fixed loss scale; 0 scales dynamically. Booleans, infinities and nan are refused.",
        place="runtime/precision_config.py:115",
        minimum=0,
    ),
    Key(
        path="fp16.initial_scale_power",
        kind="integer",
        default=16,
        meaning="The dynamic loss scale starts at 2 to this power.",
        place="runtime/precision_config.py:135",
        unit="power of 2",
    ),
    Key(
        path="fp16.loss_scale_window",
        kind="integer",
        default=1000,
        meaning=(
            "Steps without overflow after which the dynamic scale doubles; must be over 0 when fp16 "
            "is enabled with loss_scale 0."
        ),
        place="runtime/precision_config.py:140",
        unit="steps",
        plain=True,
    ),
    Key(
        path="fp16.hysteresis",
        kind="integer",
        default=2,
        meaning="Overflows that are tolerated before the dynamic scale halves.",
        place="runtime/precision_config.py:145",
    ),
    Key(
        path="fp16.consecutive_hysteresis",
        kind="boolean",
        default=False,
        meaning="Gives the tolerated overflows back after every step without one.",
        place="runtime/precision_config.py:150",
    ),
    Key(
        path="fp16.min_loss_scale",
        kind="integer",
        default=1,
        meaning=("Floor of the dynamic scale, a whole number; must be over 0 when fp16 is enabled with loss_scale 0."),
        place="runtime/precision_config.py:155",
        plain=True,
    ),
    Key(
        path="fp16.fp16_master_weights_and_grads",
        kind="boolean",
        default=False,
        meaning=("Keeps master weights and their gradients in fp16; needs ZeRO and CPU offload with DeepSpeedCPUAdam."),
        place="runtime/precision_config.py:160",
        stages=ZERO_STAGES,
        moves_bytes=True,
    ),
    Key(
        path="bf16",
        kind="object",
        default={},
        meaning="Bfloat16 training; the old spelling bfloat16 is read only where bf16 is absent.",
        survives="object|null",
        place="runtime/precision_config.py:30",
        aliases=("bfloat16",),
        moves_bytes=True,
    ),
    Key(
        path="bf16.enabled",
        kind="boolean",
        default=False,
        meaning="Holds the model in bf16 with fp32 master weights.",
        place="runtime/precision_config.py:46",
        auto="TrainingArguments.bf16 or bf16_full_eval",
        moves_bytes=True,
    ),
    Key(
        path="bf16.immediate_grad_update",
        kind="boolean",
        default=False,
        meaning=(
            "BF16_Optimizer only: adds each gradient to the fp32 buffer in a hook as it is born "
            "instead of after backward."
        ),
        place="runtime/precision_config.py:51",
        moves_bytes=True,
    ),
    Key(
        path="bf16.check_grad_overflow",
        kind="boolean",
        default=True,
        meaning=(
            "Looks for inf and nan in the gradients and skips the step when there is one; costs a "
            "one-byte all-reduce per step."
        ),
        place="runtime/precision_config.py:56",
        moves_bytes=True,
    ),
    Key(
        path="bf16.bf16_master_weights_and_grads",
        kind="boolean",
        default=False,
        meaning=(
            "Keeps master weights and their gradients in bf16; needs ZeRO, and CPU offload with "
            "DeepSpeedCPUAdam unless bf16_optimizer_states is on too."
        ),
        place="runtime/precision_config.py:63",
        stages=ZERO_STAGES,
        moves_bytes=True,
    ),
    Key(
        path="bf16.bf16_optimizer_states",
        kind="boolean",
        default=False,
        meaning="Keeps the optimizer's moments in bf16; refused without bf16_master_weights_and_grads.",
        place="runtime/precision_config.py:68",
        stages=ZERO_STAGES,
        moves_bytes=True,
    ),
    Key(
        path="data_types",
        kind="object",
        default={},
        meaning="Dtypes of accumulation, parameters and buffers.",
        place="runtime/constants.py:383",
        moves_bytes=True,
    ),
    Key(
        path="data_types.grad_accum_dtype",
        kind="string|null",
        default=None,
        meaning=(
            "Dtype in which gradients of micro batches are added up; absent, the dtype of the model. "
            "bf16 with fp32 at stage 1 without offload selects BF16_Optimizer, at stage 0 a mixed "
            "pair is refused."
        ),
        place="runtime/constants.py:384",
        choices=(
            "fp32",
            "float32",
            "float",
            "torch.float32",
            "fp16",
            "float16",
            "half",
            "torch.float16",
            "bf16",
            "bfloat16",
            "torch.bfloat16",
        ),
        moves_bytes=True,
    ),
    Key(
        path="data_types.param_dtype",
        kind="string|null",
        default=None,
        meaning="Dtype of the parameters: only repeats the enabled precision, any other value is refused.",
        place="runtime/constants.py:386",
        choices=(
            "fp32",
            "float32",
            "float",
            "torch.float32",
            "fp16",
            "float16",
            "half",
            "torch.float16",
            "bf16",
            "bfloat16",
            "torch.bfloat16",
        ),
    ),
    Key(
        path="data_types.buffer_dtype",
        kind="string|null",
        default=None,
        meaning="Casts the module's buffers; absent, they keep the dtype they were loaded in.",
        place="runtime/constants.py:388",
        choices=(
            "fp32",
            "float32",
            "float",
            "torch.float32",
            "fp16",
            "float16",
            "half",
            "torch.float16",
            "bf16",
            "bfloat16",
            "torch.bfloat16",
        ),
        moves_bytes=True,
    ),
    Key(
        path="data_types.keep_in_fp32_modules",
        kind="string|array",
        default="auto",
        meaning=(
            "Names of buffers that stay fp32: auto takes the list of the Transformers model, an array "
            "gives name patterns."
        ),
        survives="string|array",
        place="runtime/constants.py:390",
        moves_bytes=True,
    ),
    Key(
        path="torch_autocast",
        kind="object",
        default={},
        meaning="PyTorch's autocast around forward and backward, as an alternative to fp16 and bf16.",
        place="runtime/constants.py:186",
        moves_bytes=True,
    ),
    Key(
        path="torch_autocast.enabled",
        kind="boolean",
        default=False,
        meaning="Runs eligible operators in the lower precision while weights stay fp32.",
        place="runtime/constants.py:188",
        moves_bytes=True,
    ),
    Key(
        path="torch_autocast.dtype",
        kind="string|null",
        default=None,
        meaning="The lower precision; absent, torch takes the accelerator's own default.",
        place="runtime/constants.py:190",
        choices=("fp16", "float16", "half", "torch.float16", "bf16", "bfloat16", "torch.bfloat16"),
        moves_bytes=True,
    ),
    Key(
        path="torch_autocast.lower_precision_safe_modules",
        kind="array|null",
        default=None,
        meaning=(
            "Full class names of modules whose parameters are communicated in the lower precision; "
            "absent, torch's linear and convolution layers."
        ),
        survives="array|object|string",
        place="runtime/constants.py:191",
        moves_bytes=True,
    ),
)
