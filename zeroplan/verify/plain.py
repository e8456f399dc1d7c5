"""Activations alone: the same model without DeepSpeed, gradients dropped as they are born.

Only the child process imports this module (it needs torch).
"""

from __future__ import annotations

import gc
from typing import Any

import torch

from zeroplan.verify import job
from zeroplan.verify.storages import GPU


def narrow_parameters(model: torch.nn.Module, dtype: torch.dtype, wide: str | None = None) -> None:
    """Cast what transformers makes in fp32 whatever the model is built in, as DeepSpeed does in 16 bit; buffers stay.

    `wide`: a part of the names of those that stay.
    """
    for name, parameter in model.named_parameters() if dtype != torch.float32 else ():
        if parameter.dtype == torch.float32 and not (wide and wide in name):
            parameter.data = parameter.data.to(dtype)


def activations(case: dict[str, Any], setting: Any) -> dict[str, int]:
    """Bytes over what is held before forward: saved for backward, and the peaks of forward and backward."""
    storages = setting.storages
    model = job.build({**case, "built_in": None, "packed_from": case.get("built_in")}, setting.device)
    batch = job.inputs(case, setting.device, setting.stand_ins)
    wide = job.ADAPTERS if case.get("autocast_adapter_dtype") else None
    narrow_parameters(model, job.training_dtype(case["ds_config"]), wide)

    def drop(parameter: torch.Tensor) -> None:
        parameter.grad = None

    for parameter in model.parameters():
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(drop)
    if case.get("quantization"):  # bitsandbytes' first forward casts biases for good
        with torch.no_grad(), setting.autocast():
            model(**batch)
    if setting.cuda:  # Triton's kernels are tuned in their first pass, and what fails there stays until it is collected
        with setting.autocast():
            model(**batch).loss.backward()
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
