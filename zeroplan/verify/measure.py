"""Run one case of real DeepSpeed in a child process and read what it measured.

A case is a dict (JSON):

    model            HF configuration with model_type, as in config.json
    ds_config        DeepSpeed's configuration; the case's micro_batch and its gradient_accumulation_steps count
    world, rank      number of data-parallel ranks, and the one that is measured
    ranks_per_node   ranks that share a host (LOCAL_SIZE)
    seq, micro_batch tokens per sequence, sequences per micro-batch
    steps            optimizer steps, 3: the third equals all later ones
    mode             "meta" (sizes without bytes, any model), "real" (real tensors on the CPU, small models) or
                     "cuda" (real tensors on this machine's GPU)
    attention        "eager" or "sdpa"
    checkpointing    "none", "full", "every-2" (or another number), and with "-reentrant" behind: transformers'
                     activation_checkpointing_enable with every_n_layers and use_reentrant; or "deepspeed":
                     deepspeed.checkpointing.checkpoint as the model's function, configured with the ds_config; or
                     "selective-products": use_reentrant=False and a context_fn that keeps products and attention; or
                     "selective": transformers' AttentionInterface through torch.utils.checkpoint
    optimizer        null: ds_config's; or {"type": class of torch.optim, ...}, a client optimizer
    zero_init        build the model under deepspeed.zero.Init
    kernels          "liger" or "liger-loss" (the loss alone), in mode "cuda"; none: transformers' own
    built_in         the dtype in which the model is built, null: the training dtype
    images           number, height, width and tokens of each sequence's images, null: the model takes none
    pads             the script sets the padding token that a classifier of sequences needs
    parameter_groups 1, 2 (decay and no decay, as the Trainer) or k (tensor i in group i mod k)
    freeze           globs of names of parameters that do not train: requires_grad_(False) before `initialize`
    train            globs of names of those that train all the same
    activations      false: do not run the model without DeepSpeed as well
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

TIMEOUT = 600
"""Seconds after which a measurement is given up."""


def environment(case: dict[str, Any]) -> dict[str, str]:
    """The variables that DeepSpeed reads at import, as its launcher sets them."""
    rank, local = case["rank"], case.get("ranks_per_node") or min(case["world"], 8)
    card = case["mode"] == "cuda"
    return {
        "DS_ACCELERATOR": "cuda" if card else "cpu",
        "RANK": str(rank),
        "WORLD_SIZE": str(case["world"]),
        "LOCAL_RANK": "0" if card else str(rank % local),  # the first card stands for any rank's
        "LOCAL_SIZE": str(local),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "29500",
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
        # Muon's update asks to be compiled: on a card it is, elsewhere that takes minutes, and no `meta` tensors.
        "TORCHDYNAMO_DISABLE": "0" if card else "1",
        "PYTHONWARNINGS": "",  # torch and DeepSpeed warn of much
        "PYTHONOPTIMIZE": "",  # DeepSpeed refuses by assertions
        "PYTHONPATH": os.pathsep.join([str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]),
    }


def measure(case: dict[str, Any], timeout: float = TIMEOUT, python: str = sys.executable) -> dict[str, Any]:
    """What DeepSpeed held and moved on the case's rank.

    Instead of that it may hold "refused", DeepSpeed's message, or "failed", what went wrong in the measurement.
    """
    with tempfile.TemporaryDirectory(prefix="zeroplan-verify-") as folder:
        given, output = Path(folder, "case.json"), Path(folder, "out.json")
        given.write_text(json.dumps(case))
        try:
            finished = subprocess.run(  # noqa: S603 (our own module, no shell)
                [python, "-m", "zeroplan.verify.child", str(given), str(output)],
                env={**os.environ, **environment(case)},
                capture_output=True, text=True, timeout=timeout, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return {"case": case, "failed": f"no result after {timeout:g} s"}
        if not output.exists():
            return {"case": case, "failed": finished.stderr[-2000:] or f"exit status {finished.returncode}"}
        result: dict[str, Any] = json.loads(output.read_text())
        return result
