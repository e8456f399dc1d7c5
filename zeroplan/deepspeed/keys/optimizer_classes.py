"""The class that each optimizer type becomes, and the parameters that its constructor takes."""

from __future__ import annotations

_ADAM = ("lr", "betas", "eps", "weight_decay", "amsgrad")
_TORCH = ("foreach", "maximize", "differentiable", "capturable")
_DECAY = ("lr", "weight_decay")

CLASS_PARAMS: dict[str, tuple[str, ...]] = {
    "FusedAdam": (*_ADAM, "bias_correction", "set_grad_none"),
    "DeepSpeedCPUAdam": (*_ADAM, "bias_correction"),
    "ZenFlowCPUAdam": (*_ADAM, "bias_correction"),
    "FusedLamb": (*_ADAM, "bias_correction", "eps_inside_sqrt", "max_coeff", "min_coeff"),
    "FusedLion": (*_DECAY, "betas", "set_grad_none"),
    "DeepSpeedCPULion": (*_DECAY, "betas", "fp32_optimizer_states"),
    "DeepSpeedCPUAdagrad": (*_DECAY, "eps", "amsgrad", "fp32_optimizer_states"),
    "torch.ASGD": (*_DECAY, *_TORCH, "lambd", "alpha", "t0"),
    "torch.Adadelta": (*_DECAY, *_TORCH, "rho", "eps"),
    "torch.Adafactor": (*_DECAY, "beta2_decay", "eps", "d", "foreach", "maximize"),
    "torch.Adagrad": (*_DECAY, "lr_decay", "initial_accumulator_value", "eps", "foreach", "maximize", "differentiable",
                      "fused"),
    "torch.Adam": (*_ADAM, *_TORCH, "fused", "decoupled_weight_decay"),
    "torch.AdamW": (*_ADAM, *_TORCH, "fused"),
    "torch.Adamax": (*_DECAY, *_TORCH, "betas", "eps"),
    "torch.LBFGS": ("lr", "max_iter", "max_eval", "tolerance_grad", "tolerance_change", "history_size",
                    "line_search_fn", "maximize"),
    "torch.Muon": (*_DECAY, "momentum", "nesterov", "ns_coefficients", "eps", "ns_steps", "adjust_lr_fn"),
    "torch.NAdam": (*_DECAY, *_TORCH, "betas", "eps", "momentum_decay", "decoupled_weight_decay"),
    "torch.RAdam": (*_DECAY, *_TORCH, "betas", "eps", "decoupled_weight_decay"),
    "torch.RMSprop": (*_DECAY, *_TORCH, "alpha", "eps", "momentum", "centered"),
    "torch.Rprop": (*_TORCH, "lr", "etas", "step_sizes"),
    "torch.SGD": (*_DECAY, "momentum", "dampening", "nesterov", "maximize", "foreach", "differentiable", "fused"),
    "torch.SparseAdam": ("lr", "betas", "eps", "maximize"),
}  # fmt: skip
"""Without those that DeepSpeed takes out before (torch_adam, adam_w_mode and, for Adam, fp32_optimizer_states)."""

ADAM_TAKEN_OUT = ("torch_adam", "adam_w_mode", "fp32_optimizer_states")
"""What DeepSpeed reads of Adam's parameters itself (runtime/engine.py:_configure_basic_optimizer)."""

ZERO_TESTED = ("FusedAdam", "DeepSpeedCPUAdam", "ZenFlowCPUAdam", "FusedLion", "DeepSpeedCPULion",
               "DeepSpeedCPUAdagrad", "torch.Adam", "torch.AdamW", "torch.Adagrad", "muon")  # fmt: skip
"""Classes that ZeRO takes without zero_allow_untested_optimizer (runtime/zero/utils.py:45)."""

NOT_CLASSES = ("lr_scheduler", "swa_utils", "Optimizer", "swap_in_optimizer_params_and_state")
"""Other names of torch.optim."""


def optimizer_class(kind: str, *, on_host: bool, torch_adam: bool, decoupled: bool, zenflow: bool) -> str:
    """The class that DeepSpeed makes of optimizer.type; "muon" and mup's types stand for themselves, "" for none."""
    low = kind.lower()
    if low in ("adam", "adamw"):
        if torch_adam:
            return "torch.AdamW" if decoupled or low == "adamw" else "torch.Adam"
        return ("ZenFlowCPUAdam" if zenflow else "DeepSpeedCPUAdam") if on_host else "FusedAdam"
    named = {
        "adagrad": "DeepSpeedCPUAdagrad" if on_host else "torch.Adagrad", "lamb": "FusedLamb",
        "lion": "DeepSpeedCPULion" if on_host else "FusedLion", "muon": "muon", "muadam": "muadam",
        "muadamw": "muadamw", "musgd": "musgd",
    }  # fmt: skip
    if low in named:
        return named[low]
    return f"torch.{kind}" if f"torch.{kind}" in CLASS_PARAMS else ""
