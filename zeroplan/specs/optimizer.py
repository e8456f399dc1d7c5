"""Optimizers: bytes of state per parameter, the name DeepSpeed knows, and what it demands."""

from typing import NamedTuple


class Optimizer(NamedTuple):
    state_bytes: int
    """Bytes per parameter beside the fp32 master copy."""
    config_type: str | None
    """`optimizer.type` in ds_config.json; None when only the training script can build it."""
    tested: bool
    """In DeepSpeed's tested list; otherwise `zero_allow_untested_optimizer` is needed."""
    trainer: str
    """TrainingArguments' `optim`; empty where the Trainer makes none such."""
    note: str


OPTIMIZERS: dict[str, Optimizer] = {
    "adam": Optimizer(8, "Adam", True, "", "two fp32 moments"),
    "adamw": Optimizer(8, "AdamW", True, "adamw_torch", "two fp32 moments"),
    "sgd": Optimizer(0, "SGD", False, "sgd", "no state"),
    "sgd-momentum": Optimizer(4, "SGD", False, "sgd", "one fp32 momentum"),
    "adagrad": Optimizer(4, "Adagrad", True, "adagrad", "one fp32 sum of squares"),
    "lion": Optimizer(4, "Lion", True, "lion_32bit", "one fp32 momentum"),
    "lamb": Optimizer(8, "Lamb", False, "", "two fp32 moments"),
    "adafactor": Optimizer(0, None, False, "adafactor", "row and column sums, under 1 % of 4Ψ; under ZeRO, whole"),
    "adam8bit": Optimizer(2, None, False, "adamw_8bit", "two 8-bit moments, and a scale per block of 256"),
    "muon": Optimizer(4, "Muon", True, "", "one momentum for matrices; Adam's two for the rest"),
}


def master_bytes(precision: str) -> int:
    """Bytes per parameter of the fp32 master copy that 16-bit training keeps."""
    return 0 if precision == "fp32" else 4


def paper_state_bytes(optimizer: str, precision: str) -> int:
    """K of the ZeRO paper: the master copy and the optimizer's own states, in bytes per parameter."""
    return master_bytes(precision) + OPTIMIZERS[optimizer].state_bytes


OFFLOADABLE = ("adam", "adamw", "adagrad", "lion")
"""Optimizers that DeepSpeed has a CPU build of."""


class Optim(NamedTuple):
    """What a name of TrainingArguments' `optim` makes (transformers 5.24 trainer_optimizer.py)."""

    optimizer: str
    update: str = "foreach"
    """How torch's classes go through their tensors on CUDA; the others have kernels of their own."""


ASSUMED_OPTIM = "adamw_torch_fused"
"""The Trainer's own choice from torch 2.8 on; before it was adamw_torch (transformers 5.24 training_args.py)."""
OPTIMS: dict[str, Optim] = {
    "adamw_torch_fused": Optim("adamw", "fused"),
    "adamw_torch": Optim("adamw"),
    "adamw_bnb_8bit": Optim("adam8bit"),
    "adamw_8bit": Optim("adam8bit"),
    "adafactor": Optim("adafactor"),
    "adagrad": Optim("adagrad"),
    "lion_32bit": Optim("lion"),
    "sgd": Optim("sgd"),
}
SINGLE_TENSOR = "-single-tensor"
"""Behind the name of a class of torch's: as before torch 2.0, or with foreach false."""
TORCHS_OPTIMS = ("adamw_torch", "adagrad", "sgd")
UNPLANNED_OPTIMS = (
    "adamw_torch_xla", "adamw_torch_npu_fused", "adamw_anyprecision", "adamw_torch_4bit", "adamw_torch_8bit",
    "ademamix", "ademamix_8bit", "lion_8bit", "paged_adamw_32bit", "paged_adamw_8bit", "paged_ademamix_32bit",
    "paged_ademamix_8bit", "paged_lion_32bit", "paged_lion_8bit", "rmsprop", "rmsprop_bnb", "rmsprop_bnb_8bit",
    "rmsprop_bnb_32bit", "galore_adamw", "galore_adamw_8bit", "galore_adafactor", "galore_adamw_layerwise",
    "galore_adamw_8bit_layerwise", "galore_adafactor_layerwise", "lomo", "adalomo", "grokadamw", "schedule_free_radam",
    "schedule_free_adamw", "schedule_free_sgd", "apollo_adamw", "apollo_adamw_layerwise", "stable_adamw",
)  # fmt: skip
"""The Trainer's other names."""
PAGED = {
    "paged_adamw_32bit": "adamw_torch_fused", "paged_adamw_8bit": "adamw_8bit", "paged_lion_32bit": "lion_32bit",
}  # fmt: skip
"""Of these, optimizers with the states of one that is planned, in unified memory: it may move them to the host when a
card is full (bitsandbytes 0.50.2 optim/optimizer.py, get_state_buffer)."""
