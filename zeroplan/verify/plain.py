"""Activations alone: the same model without DeepSpeed, gradients dropped as they are born.

Only the child process imports this module (it needs torch).
"""

from __future__ import annotations

import gc
from typing import Any

import torch

from zeroplan.verify import job
from zeroplan.verify.storages import GPU


def activations(case: dict[str, Any], setting: Any) -> dict[str, int]:
    """Bytes over what is held before forward: saved for backward, and the peaks of forward and backward."""
    storages = setting.storages
    model = job.build({**case, "built_in": None, "packed_from": case.get("built_in")}, setting.device)
    batch = job.inputs(case, setting.device)

    def drop(parameter: torch.Tensor) -> None:
        parameter.grad = None

    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(drop)
    if case.get("quantization"):  # bitsandbytes' first forward casts biases for good
        with torch.no_grad(), setting.autocast():
            model(**batch)
    gc.collect()
    gc.disable()
    base = storages.totals[GPU]
    storages.start("forward")
    with setting.autocast():
        loss = model(**batch).loss
    saved, forward_peak = storages.totals[GPU] - base, storages.peaks[GPU] - base
    storages.start("backward")
    loss.backward()
    del loss
    backward_peak = storages.peaks[GPU] - base
    gc.enable()
    return {"saved": saved, "forward_peak": forward_peak, "backward_peak": backward_peak}
