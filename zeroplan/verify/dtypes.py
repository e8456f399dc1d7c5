"""Torch's dtypes by the names that precisions have here. Only the child process imports this module."""

from __future__ import annotations

import torch

DTYPES = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32}
