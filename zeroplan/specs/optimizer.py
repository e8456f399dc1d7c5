"""Optimizers: bytes of state per parameter, the name DeepSpeed knows, and what it demands."""

from __future__ import annotations

from zeroplan.record import NamedTuple


class Optimizer(NamedTuple):
    state_bytes: int
    """Bytes per parameter beside the fp32 master copy."""
    config_type: str | None
    """`optimizer.type` in ds_config.json; None when only the training script can build it."""
    tested: bool
    """In DeepSpeed's tested list; otherwise `zero_allow_untested_optimizer` is needed."""
    trainer: str
    """TrainingArguments' `optim`."""
    note: str


OPTIMIZERS: dict[str, Optimizer] = {
    "adam": Optimizer(8, "Adam", True, "adamw_torch", "two fp32 moments"),
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
