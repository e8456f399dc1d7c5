"""The bibliography: where a formula comes from, and what kind of evidence that is."""

from __future__ import annotations

from typing import NamedTuple

KINDS = ("paper", "code", "measured", "published", "datasheet", "assumed")
"""paper: a closed form as printed. code: read in the source of the version named. measured: compared with a run.
published: someone else's measurement. datasheet: a vendor's figure. assumed: nobody compared it yet."""


class Source(NamedTuple):
    title: str
    address: str
    kind: str


DEEPSPEED = "0.19.8"
TRANSFORMERS = "5.23.0"
NEWER = {"gptj": "5.24.0"}
"""Families whose modules a newer transformers has rewritten, as which they are described."""
LIGER = "0.8.5"
FLASH_ATTN = "2.8.3"
PEFT = "0.21.2"
BITSANDBYTES = "0.50.2"

SOURCES: dict[str, Source] = {
    "ZeRO": Source(
        "Rajbhandari et al., ZeRO: Memory Optimizations Toward Training Trillion Parameter Models",
        "https://arxiv.org/abs/1910.02054", "paper",
    ),
    "ZeRO-Offload": Source("Ren et al., ZeRO-Offload", "https://arxiv.org/abs/2101.06840", "paper"),
    "ZeRO-Infinity": Source("Rajbhandari et al., ZeRO-Infinity", "https://arxiv.org/abs/2104.07857", "paper"),
    "Korthikanti": Source(
        "Korthikanti et al., Reducing Activation Recomputation in Large Transformer Models",
        "https://arxiv.org/abs/2205.05198", "paper",
    ),
    "PaLM": Source("Chowdhery et al., PaLM", "https://arxiv.org/abs/2204.02311", "paper"),
    "DeepSpeed": Source(
        f"DeepSpeed {DEEPSPEED}, source", f"https://github.com/deepspeedai/DeepSpeed/tree/v{DEEPSPEED}/deepspeed",
        "code",
    ),
    "transformers": Source(
        f"transformers {TRANSFORMERS}, source",
        f"https://github.com/huggingface/transformers/tree/v{TRANSFORMERS}/src/transformers", "code",
    ),
    "Megatron-LM": Source("Megatron-LM of 2021 and 2023, source", "https://github.com/NVIDIA/Megatron-LM", "code"),
    "Megatron-DeepSpeed": Source(
        "Megatron-DeepSpeed of BigScience, source", "https://github.com/bigscience-workshop/Megatron-DeepSpeed", "code"
    ),
    "torchtitan": Source("torchtitan of 2024, source", "https://github.com/pytorch/torchtitan", "code"),
    "published": Source(
        "published measurements, fitted to those of one source", "tests/references/published/memory.csv", "published"
    ),
    "throughput": Source(
        "published training throughput, one fit for all sources", "tests/references/published/throughput.csv",
        "published",
    ),
    "NCCL-tests": Source(
        "all_reduce sweeps of 8 A100, 8 H200, 8 and 32 B200, stas00/ml-engineering network/README.md",
        "https://github.com/stas00/ml-engineering/tree/744d01e18/network", "published",
    ),
    "torch": Source("PyTorch 2.13, source", "https://github.com/pytorch/pytorch/tree/v2.13.0", "code"),
    "NCCL": Source("NVIDIA/nccl", "https://github.com/NVIDIA/nccl/issues/964", "published"),
    "Liger": Source(
        f"liger-kernel {LIGER}, source; its kernels ran in no run",
        f"https://github.com/linkedin/Liger-Kernel/tree/v{LIGER}/src/liger_kernel", "code",
    ),
    "flash-attn": Source(
        f"flash-attn {FLASH_ATTN}, source; its kernels ran in no run",
        f"https://github.com/Dao-AILab/flash-attention/tree/v{FLASH_ATTN}", "code",
    ),
    "bitsandbytes": Source(
        f"bitsandbytes {BITSANDBYTES}, source",
        f"https://github.com/bitsandbytes-foundation/bitsandbytes/tree/{BITSANDBYTES}/bitsandbytes", "code",
    ),
    "peft": Source(
        f"peft {PEFT}, source", f"https://github.com/huggingface/peft/tree/v{PEFT}/src/peft", "code"
    ),
    "reports": Source(
        "public reports of jobs that ran or ran out of memory", "tests/references/published/reports.csv", "published"
    ),
    "zeroplan": Source("zeroplan's own rule, not compared with a measurement yet", "README.md", "assumed"),
}  # fmt: skip


def transformers_of(family: str) -> str:
    """The version as which a family is described."""
    return NEWER.get(family, TRANSFORMERS)
