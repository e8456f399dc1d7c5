"""optimizer: its type and the parameters that the optimizers of 0.19.8 take."""

from __future__ import annotations

from zeroplan.deepspeed.keys.key import ZERO_STAGES, Key

DEEPSPEED_OPTIMIZERS = ("adam", "adamw", "adagrad", "lamb", "lion", "muon", "muadam", "muadamw", "musgd")
"""Types that DeepSpeed builds itself, in any case (runtime/config.py:63); others name a torch.optim class."""

_ADAM = (
    "lr",
    "betas",
    "eps",
    "weight_decay",
    "bias_correction",
    "amsgrad",
    "torch_adam",
    "fp32_optimizer_states",
)
_ADAM_ONLY_SOME = ("adam_w_mode", "set_grad_none", "foreach")

OPTIMIZER_PARAMS: dict[str, tuple[str, ...]] = {
    "adam": (*_ADAM, *_ADAM_ONLY_SOME),
    "adamw": (*_ADAM, *_ADAM_ONLY_SOME),
    "lamb": (
        "lr",
        "betas",
        "eps",
        "weight_decay",
        "bias_correction",
        "max_coeff",
        "min_coeff",
        "eps_inside_sqrt",
        "amsgrad",
    ),
    "lion": ("lr", "betas", "weight_decay", "set_grad_none", "fp32_optimizer_states"),
    "adagrad": ("lr", "eps", "weight_decay", "amsgrad", "fp32_optimizer_states"),
    "muon": (
        "lr",
        "muon_lr",
        "adam_lr",
        "momentum",
        "ns_method",
        "betas",
        "eps",
        "weight_decay",
        "adam_w_mode",
        "torch_adam",
        "fp32_optimizer_states",
        "foreach",
    ),
}
"""Parameters that some class behind a type takes. Offload and torch_adam decide which class it is: FusedAdam
and FusedLion know set_grad_none, CPU ones do not; foreach needs torch_adam, which lacks bias_correction."""

KEYS: tuple[Key, ...] = (
    Key(
        path="optimizer",
        kind="object|null",
        default=None,
        meaning=(
            "The optimizer that DeepSpeed builds itself; absent, the client's. Unknown keys beside "
            "type, params and legacy_fusion are ignored."
        ),
        survives="object",
        place="runtime/constants.py:25",
        moves_bytes=True,
    ),
    Key(
        path="optimizer.type",
        kind="string|null",
        default=None,
        meaning=("DeepSpeed's own in any case (see DEEPSPEED_OPTIMIZERS), or the exact name of a torch.optim class."),
        place="runtime/constants.py:28",
        moves_bytes=True,
    ),
    Key(
        path="optimizer.legacy_fusion",
        kind="boolean",
        default=False,
        meaning="At stage 0 in 16 bits, uses the older step of the fused optimizer.",
        place="runtime/constants.py:29",
        stages=(0,),
    ),
    Key(
        path="optimizer.params",
        kind="object|null",
        default=None,
        meaning=(
            "Arguments of the optimizer's constructor; one that it does not know raises a TypeError (Muon drops it)."
        ),
        survives="object|null",
        place="runtime/constants.py:27",
        moves_bytes=True,
    ),
    Key(
        path="optimizer.params.lr",
        kind="number",
        default=0.001,
        meaning="Learning rate (Adagrad 0.01, Muon 0.02 for matrices).",
        survives="number",
        place="ops/adam/fused_adam.py:78",
        auto="TrainingArguments.learning_rate",
    ),
    Key(
        path="optimizer.params.betas",
        kind="array",
        default=[0.9, 0.999],
        meaning="Decay rates of the two moments (0.9 and 0.95 for the Adam half of Muon).",
        place="ops/adam/fused_adam.py:80",
        auto="[TrainingArguments.adam_beta1, TrainingArguments.adam_beta2]",
    ),
    Key(
        path="optimizer.params.eps",
        kind="number",
        default=1e-08,
        meaning=("Added to the denominator of the update (1e-10 for Adagrad and for the Adam half of Muon)."),
        survives="number",
        place="ops/adam/fused_adam.py:81",
        auto="TrainingArguments.adam_epsilon",
    ),
    Key(
        path="optimizer.params.weight_decay",
        kind="number",
        default=0.0,
        meaning="Weight decay; 0 in DeepSpeed's optimizers, but 0.01 with torch_adam in AdamW mode.",
        survives="number",
        place="ops/adam/fused_adam.py:83",
        auto="TrainingArguments.weight_decay",
    ),
    Key(
        path="optimizer.params.bias_correction",
        kind="boolean",
        default=True,
        meaning="Corrects Adam's and Lamb's moments for their start at zero.",
        place="ops/adam/fused_adam.py:79",
    ),
    Key(
        path="optimizer.params.amsgrad",
        kind="boolean",
        default=False,
        meaning=("The AMSGrad variant: torch_adam only, a third moment per element; the fused optimizers refuse it."),
        place="ops/adam/fused_adam.py:84",
        moves_bytes=True,
    ),
    Key(
        path="optimizer.params.set_grad_none",
        kind="boolean",
        default=True,
        meaning="FusedAdam and FusedLion drop gradients instead of zeroing them.",
        place="ops/adam/fused_adam.py:85",
    ),
    Key(
        path="optimizer.params.adam_w_mode",
        kind="boolean",
        default=True,
        meaning="Decoupled weight decay, also for type Adam unless this is false; type AdamW ignores it.",
        place="runtime/config.py:72",
    ),
    Key(
        path="optimizer.params.torch_adam",
        kind="boolean",
        default=False,
        meaning="Takes PyTorch's Adam instead of FusedAdam or DeepSpeedCPUAdam.",
        place="runtime/config.py:69",
        moves_bytes=True,
    ),
    Key(
        path="optimizer.params.foreach",
        kind="boolean|null",
        default=None,
        meaning="PyTorch's foreach switch, known only together with torch_adam.",
        place="runtime/engine.py:2381",
        moves_bytes=True,
    ),
    Key(
        path="optimizer.params.fp32_optimizer_states",
        kind="boolean",
        default=True,
        meaning=(
            "CPU optimizers keep moments in fp32; false takes the parameters' dtype. "
            "bf16_optimizer_states overrides it."
        ),
        place="ops/adam/cpu_adam.py:24",
        stages=ZERO_STAGES,
        moves_bytes=True,
    ),
    Key(
        path="optimizer.params.max_coeff",
        kind="number",
        default=10.0,
        meaning="Lamb: upper bound of a layer's trust ratio.",
        place="ops/lamb/fused_lamb.py:50",
    ),
    Key(
        path="optimizer.params.min_coeff",
        kind="number",
        default=0.01,
        meaning="Lamb: lower bound of a layer's trust ratio.",
        place="ops/lamb/fused_lamb.py:51",
    ),
    Key(
        path="optimizer.params.eps_inside_sqrt",
        kind="boolean",
        default=False,
        meaning="Lamb: adds eps under the square root.",
        place="ops/lamb/fused_lamb.py:47",
    ),
    Key(
        path="optimizer.params.momentum",
        kind="number",
        default=0.95,
        meaning=(
            "Muon: decay rate of its momentum (MuSGD and torch's SGD take a momentum of their own, 0 by default)."
        ),
        place="runtime/zero/muon/original_muon.py:308",
        moves_bytes=True,
    ),
    Key(
        path="optimizer.params.ns_method",
        kind="string",
        default="gram",
        meaning="Muon: which Newton-Schulz iteration makes the update orthogonal.",
        place="runtime/zero/muon/original_muon.py:308",
        choices=("gram", "standard"),
    ),
    Key(
        path="optimizer.params.muon_lr",
        kind="number|null",
        default=None,
        meaning="Muon: learning rate of the matrices; absent, lr.",
        place="runtime/engine.py:2454",
    ),
    Key(
        path="optimizer.params.adam_lr",
        kind="number|null",
        default=None,
        meaning="Muon: learning rate of everything that is not a matrix; absent, lr.",
        place="runtime/engine.py:2456",
    ),
    Key(
        path="zero_allow_untested_optimizer",
        kind="boolean",
        default=False,
        meaning="Lets ZeRO wrap an optimizer outside DeepSpeed's tested list.",
        place="runtime/constants.py:39",
        stages=ZERO_STAGES,
    ),
    Key(
        path="zero_force_ds_cpu_optimizer",
        kind="boolean",
        default=True,
        meaning=("With optimizer offload, refuses a client optimizer that is not DeepSpeed's own for the CPU."),
        place="runtime/constants.py:41",
        stages=ZERO_STAGES,
    ),
)
