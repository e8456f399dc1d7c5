"""What is run on a card: requests as options of `zeroplan estimate`, and each as a case of `zeroplan.verify.measure`.

A 1.3B model at every stage on 8 and on 64 ranks, with what else moves a byte; larger ones and other families; adapters
beside weights in 16, 8 and 4 bit; recorded models, of images, sound and experts; kernels that only a card has; some too large.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

from tests.references.gpu.kernel_families import FAMILIES, NO_ATTENTION, RECORDINGS
from zeroplan.costs.ledger import ledger
from zeroplan.costs.outside import outside
from zeroplan.ledger import total
from zeroplan.request.options import Options
from zeroplan.request.request import read_request
from zeroplan.specs.job import Job
from zeroplan.verify.case import as_measured, case_of

USUAL = {
    "gpu": "h100-80gb", "host_mem": "2TB", "seq": "2048", "micro_batch": "1", "precision": "bf16", "optimizer": "adamw",
    "attention": "sdpa", "checkpointing": "full", "gpus": "8",
}  # fmt: skip
SMALL: dict[str, Any] = {"model": "opt-1.3b"}
SETTINGS: tuple[dict[str, Any], ...] = (
    *({"stage": stage, "grad_accum": "2"} for stage in "0123"),
    *({"stage": stage, "precision": "fp32"} for stage in "023"),
    *({"stage": stage, "precision": "fp16"} for stage in "13"),
    *({"stage": stage, "attention": "eager", "checkpointing": "none"} for stage in "3"),
    *({"stage": stage, "optimizer": "sgd-momentum"} for stage in "13"),
    {"stage": "2", "optimizer": "lion"},
    {"stage": "2", "zero": {"contiguous_gradients": False, "overlap_comm": True}},
    *({"stage": stage, "zero": {"overlap_comm": True}} for stage in "12"),
    *({"stage": stage, "zero": {"reduce_bucket_size": 20_000_000}} for stage in "123"),
    {"stage": "3", "zero": {"overlap_comm": False}},
    {"stage": "3", "zero": {"max_live_parameters": 100_000_000, "max_reuse_distance": 0}},
)  # fmt: skip
SEVEN, THIRTEEN, EIGHT = "llama-2-7b", "llama-2-13b", "llama-3.1-8b"
OFFLOAD, OFFLOAD_ALL = {"offload_optimizer": "cpu"}, {"offload_optimizer": "cpu", "offload_param": "cpu"}
LARGER: tuple[dict[str, Any], ...] = (
    *({"model": SEVEN, "stage": stage, "checkpointing": kind} for stage, kind in product("123", ("none", "full"))),
    *({"model": SEVEN, "stage": stage, **OFFLOAD} for stage in "123"),
    {"model": SEVEN, "stage": "3", **OFFLOAD_ALL},
    {"model": SEVEN, "stage": "3", "gpus": "8x8"},
    {"model": THIRTEEN, "stage": "3"},
    {"model": THIRTEEN, "stage": "2", "gpus": "8x8"},
    {"model": "llama-3.2-1b", "stage": "3", "checkpointing": "none", "micro_batch": "2"},
    {"model": "qwen2.5-0.5b", "stage": "2", "checkpointing": "none", "seq": "4096"},
    {"model": "qwen3-4b", "stage": "2"},
    {"model": "gemma-2b", "stage": "3", "checkpointing": "none", "seq": "1024"},
    {"model": "gemma-2-2b", "stage": "2", "attention": "eager", "seq": "1024"},
    {"model": "gpt2-xl", "stage": "1", "checkpointing": "none", "seq": "1024"},
    {"model": "phi-2", "stage": "2", "checkpointing": "none"},
    {"model": "bert-large", "stage": "1", "checkpointing": "none", "seq": "512", "micro_batch": "8"},
    {"model": "falcon-7b", "stage": "3"},
    {"model": "qwen1.5-moe-a2.7b", "stage": "3", "gpus": "8x8"},
    {"model": "gpt-oss-20b", "stage": "3", "gpus": "8x8", "attention": "eager"},
)  # fmt: skip
LORA = {"model": EIGHT, "lora": "16"}
PACKED = {"quantize": "nf4", "double_quant": True}
ADAPTERS: tuple[dict[str, Any], ...] = (
    *({**LORA, "stage": stage, "checkpointing": kind} for stage, kind in product("023", ("none", "full"))),
    *({**LORA, **PACKED, "stage": stage, "checkpointing": kind} for stage, kind in product("23", ("none", "full"))),
    *({**LORA, **PACKED, "stage": stage, "micro_batch": "4", "seq": "512"} for stage in "2"),
    *({**LORA, "quantize": "int8", "stage": stage} for stage in "02"),
    {**LORA, "stage": "3", "adapter_dtype": "fp32"},
)  # fmt: skip
RECORDED: tuple[dict[str, Any], ...] = (
    *({"model": name, "stage": "2", "gpus": "8x8"} for name in ("smollm3-3b", "granite-3.3-8b", "olmo-3-7b")),
    *({"model": name, "stage": "3", "gpus": "8x8"} for name in ("glm-4-9b-0414", "granite-3.1-3b-a800m", "ernie-4.5-21b-a3b")),
    {"model": "modernbert-large", "stage": "2", "checkpointing": "none", "seq": "1024", "micro_batch": "8"},
    {"model": "t5-base", "stage": "2", "seq": "512", "micro_batch": "4"},
    {"model": "bart-large", "stage": "1", "checkpointing": "none", "seq": "512", "micro_batch": "4"},
    {"model": "whisper-large-v3", "stage": "2", "checkpointing": "none", "seq": "256"},
    {"model": "deberta-v3-large", "stage": "2", "seq": "512", "attention": "eager"},
    *({"model": name, "stage": "2", "gpus": "8x8"} for name in ("qwen2-vl-7b", "qwen3-vl-4b", "gemma-3-4b", "paligemma-3b-pt-224")),
    *({"model": name, "stage": "3", "gpus": "8x8", "checkpointing": "none"} for name in ("qwen3-vl-4b", "llava-1.5-7b")),
    *({"model": name, "stage": "3", "gpus": "8x8"} for name in ("qwen2.5-vl-7b", "gemma-3-4b")),
)  # fmt: skip
KERNELS: tuple[dict[str, Any], ...] = (
    *({"model": name, "stage": "2", "gpus": "8x8", "checkpointing": kind}
      for name, kind in product(("lfm2-1.2b", "qwen3.5-4b"), ("none", "full"))),
    {"model": "qwen3.5-4b", "stage": "3", "gpus": "8x8"},
    {"model": "nemotron-3-nano-30b-a3b", "stage": "3", "gpus": "8x8"},
)  # fmt: skip
"""Layers with a state, whose kernels are packages of their own."""
EACH_KERNEL: tuple[dict[str, Any], ...] = tuple(
    {
        "model": family, "seq": "1280", "micro_batch": "2", "stage": stage, "checkpointing": checkpointing,
        **({"attention": "eager"} if family in NO_ATTENTION else {}),
    }
    for family in FAMILIES
    for stage, checkpointing in (("2", "none"), ("3", "full"), ("3", "none"))
)  # fmt: skip
"""Small ones of every family that runs them; 1,280 tokens are five of the longest chunks."""
LIGER: tuple[dict[str, Any], ...] = (
    *({"model": "llama-3.2-1b", "stage": stage, "checkpointing": kind, "kernels": kernels, "micro_batch": "2"}
      for stage, kind, kernels in (("2", "none", "liger"), ("3", "full", "liger"), ("1", "none", "liger-loss"))),
    {"model": "qwen2.5-0.5b", "stage": "2", "checkpointing": "none", "seq": "4096", "kernels": "liger"},
    {"model": "qwen3-0.6b", "stage": "3", "checkpointing": "none", "kernels": "liger"},
    {"model": "gemma-2b", "stage": "3", "seq": "1024", "kernels": "liger"},
    {"model": "gemma-2-2b", "stage": "2", "attention": "eager", "seq": "1024", "kernels": "liger"},
    {"model": "phi-3-mini", "stage": "3", "gpus": "8x8", "kernels": "liger"},
    {"model": "smollm2-135m", "stage": "0", "checkpointing": "none", "micro_batch": "4", "kernels": "liger"},
    {"model": "tinyllama-1.1b", "stage": "2", "precision": "fp16", "kernels": "liger"},
)  # fmt: skip
AUTOCAST: tuple[dict[str, Any], ...] = tuple(
    {"model": name, "precision": "fp32", "autocast": dtype, "stage": stage, "checkpointing": kind}
    for name, dtype, stage, kind in (
        ("opt-1.3b", "bf16", "2", "none"), ("llama-3.2-1b", "bf16", "3", "full"),
        ("llama-3.2-1b", "fp16", "1", "none"), ("qwen2.5-0.5b", "bf16", "3", "none"),
    )
)  # fmt: skip
TOO_LARGE = (
    {"model": SEVEN, "stage": "0"},
    {"model": THIRTEEN, "stage": "2", "checkpointing": "none", "micro_batch": "4"},
)


class Case(NamedTuple):
    request: dict[str, Any]
    job: Job
    needed: int
    """Bytes of the card by the ledger, with what lies beside the allocator."""

    @property
    def to_measure(self) -> dict[str, Any]:
        alone = self.job.model.is_recorded or self.job.model.adapter is not None or self.job.strategy.kernels != "transformers"
        return case_of(self.job, None, mode="cuda", activations=alone)


def wanted() -> Iterator[dict[str, Any]]:
    """All but those too large."""
    for stage, gpus, checkpointing in product("0123", ("8", "8x8"), ("none", "full")):
        one = {**SMALL, "stage": stage, "gpus": gpus, "checkpointing": checkpointing}
        if gpus == "8" or checkpointing == "full":
            yield one
        if stage != "0" and gpus == "8" and checkpointing == "full":
            yield {**one, **OFFLOAD}
        if stage == "3" and gpus == "8":
            yield {**one, **OFFLOAD_ALL}
    yield from ({**SMALL, **settings} for settings in SETTINGS)
    yield from (*LARGER, *ADAPTERS, *RECORDED, *KERNELS, *EACH_KERNEL, *LIGER, *AUTOCAST)


def job_of(request: dict[str, Any], usual: dict[str, str] = USUAL) -> Job:
    """`usual`: options of all requests."""
    by_config = request.get("zero", {}) | ({"autocast": request["autocast"]} if "autocast" in request else {})
    left_out = ("zero", "autocast", "initializer_range")
    options = {**usual, **{name: value for name, value in request.items() if name not in left_out}}
    if options["model"] in FAMILIES:
        options["model"] = str(RECORDINGS / f"{options['model']}.trace.json.gz")
    job = as_measured(read_request(Options(**options)).job(), real=False)
    return job.at(**by_config) if by_config else job


def case(request: dict[str, Any]) -> Case:
    job = job_of(request)
    counted = ledger(job)
    most = max(total(counted.gpu.worst(phase).lines) for phase in counted.gpu.phases)
    return Case(request, job, most + total(outside(job)))


def cases(room: int) -> list[Case]:
    """Those that fit, and at the end those that should not."""
    drawn = [case(request) for request in wanted()]
    return [one for one in drawn if one.needed <= room] + [case(request) for request in TOO_LARGE]
