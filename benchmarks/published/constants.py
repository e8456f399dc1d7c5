"""Constants that no formula gives: each with its range, what speaks for it, and what kind of evidence that is."""

from __future__ import annotations

from typing import NamedTuple

from zeroplan import levels
from zeroplan.units import GiB


class Constant(NamedTuple):
    value: float
    low: float
    high: float
    unit: str
    kind: str
    """published: read in a row. fitted: chosen so that rows come out. code: read in a source. assumed: nobody knows."""
    evidence: str


RESERVED = Constant(
    *levels.OVER_ALLOCATED[:3], "reserved / max allocated", "fitted",
    "torch 2: torchtitan, ml-engineering and FlagPerf rows over their predicted max allocated; 1.05 to 1.08 do as well",
)  # fmt: skip
RESERVED_COMPILED = Constant(
    1.06, 0.97, 1.25, "reserved / max allocated", "fitted",
    "as above, and published pairs: compiled layers reserve 0.92 and 0.93 of what their eager twins do (torchtitan)",
)  # fmt: skip
RESERVED_2021 = Constant(
    1.18, 1.00, 1.31, "reserved / max allocated", "fitted",
    "torch 1: rows that give both, bigscience logs of 2021: 1.08 (ZeRO-3), 1.13 to 1.24 (Megatron-LM), 1.15 (3D)",
)  # fmt: skip
OUTSIDE = Constant(
    levels.BESIDE_RESERVED.likely / GiB, levels.BESIDE_RESERVED.low / GiB, levels.BESIDE_RESERVED.high / GiB,
    "GiB outside the allocator, several GPUs a node", "fitted",
    "FlagPerf and ms-swift rows on 8 x A100 or A800: context, NCCL and libraries, and in part unused reserved blocks",
)  # fmt: skip
OUTSIDE_V100 = Constant(
    2.5, 1.1, 4.0, "GiB used outside the allocator on a node of several V100s", "fitted",
    "1.09 GiB of context (bigscience tr3m-1B3), NCCL and libraries beside it; gpt2 rows of bigscience, quality B",
)  # fmt: skip
CONTEXT = Constant(
    1.1, 0.5, 1.5, "GiB of one CUDA context", "published",
    "1,113 MiB on a V100 (bigscience tr3m-1B3); on other cards assumed",
)  # fmt: skip
LOGIT_MEGATRON = Constant(
    6, 6, 6, "bytes per logit", "code",
    "Megatron-LM: 16-bit logits and one fp32 copy, on which everything happens in place",
)  # fmt: skip
LOGIT_MEGATRON_DEEPSPEED = Constant(
    6, 6, 6, "bytes per logit", "code",
    "bigscience's Megatron-DeepSpeed: the loss clones fp32 logits and works in place; 16-bit gradient",
)  # fmt: skip
LOGIT_PIPELINE = Constant(
    8, 8, 8, "bytes per logit", "code",
    "DeepSpeed's pipeline: the last stage keeps its outputs, fp32 logits, in two buffers, also between steps",
)  # fmt: skip
LOGIT_TORCHTITAN = Constant(
    14, 12, 14, "bytes per logit", "code", "as eager, and the 16-bit prediction that the training loop holds",
)  # fmt: skip
LOGIT_LOSS_PARALLEL = Constant(
    18, 14, 18, "bytes per logit", "fitted", "torchtitan with tensor parallelism (tt-T4a, tt-T4b): the DTensor loss",
)  # fmt: skip
LOGIT_FUSED = Constant(
    6, 2, 6, "bytes per logit", "fitted", "llm-foundry's fused cross-entropy: at 10, 23 of 138 published runs overflow",
)  # fmt: skip
LIVE_PARAMETERS = Constant(
    1.12e9, 1.0e9, 1.12e9, "elements gathered at once at stage 3", "code",
    "replay of DeepSpeed's coordinator at its defaults for Llama-2-7B: 2.25 GB of 16-bit weights",
)  # fmt: skip
