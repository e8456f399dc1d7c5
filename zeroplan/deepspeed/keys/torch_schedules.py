"""The classes of torch.optim.lr_scheduler, which DeepSpeed takes by name, and their parameters (torch 2.13)."""

from __future__ import annotations

TORCH_SCHEDULES: dict[str, tuple[str, ...]] = {
    "ConstantLR": ("factor", "total_iters", "last_epoch"),
    "CosineAnnealingLR": ("T_max", "eta_min", "last_epoch"),
    "CosineAnnealingWarmRestarts": ("T_0", "T_mult", "eta_min", "last_epoch"),
    "CyclicLR": ("base_lr", "max_lr", "step_size_up", "step_size_down", "mode", "gamma", "scale_fn", "scale_mode",
                 "cycle_momentum", "base_momentum", "max_momentum", "last_epoch"),
    "ExponentialLR": ("gamma", "last_epoch"),
    "LambdaLR": ("lr_lambda", "last_epoch"),
    "LinearLR": ("start_factor", "end_factor", "total_iters", "last_epoch"),
    "MultiStepLR": ("milestones", "gamma", "last_epoch"),
    "MultiplicativeLR": ("lr_lambda", "last_epoch"),
    "OneCycleLR": ("max_lr", "total_steps", "epochs", "steps_per_epoch", "pct_start", "anneal_strategy",
                   "cycle_momentum", "base_momentum", "max_momentum", "div_factor", "final_div_factor", "three_phase",
                   "last_epoch"),
    "PolynomialLR": ("total_iters", "power", "last_epoch"),
    "ReduceLROnPlateau": ("mode", "factor", "patience", "threshold", "threshold_mode", "cooldown", "min_lr", "eps"),
    "StepLR": ("step_size", "gamma", "last_epoch"),
}  # fmt: skip

TORCH_REQUIRED: dict[str, tuple[str, ...]] = {
    "CosineAnnealingLR": ("T_max",), "CosineAnnealingWarmRestarts": ("T_0",), "CyclicLR": ("base_lr", "max_lr"),
    "ExponentialLR": ("gamma",), "LambdaLR": ("lr_lambda",), "MultiStepLR": ("milestones",),
    "MultiplicativeLR": ("lr_lambda",), "OneCycleLR": ("max_lr",), "StepLR": ("step_size",),
}  # fmt: skip
"""Those without a default."""
