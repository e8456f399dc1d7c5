"""Requests to `zeroplan recommend`, drawn from a seed, and the plan of each as a case to measure.

`drawn(seed)` is the first request of a seed whose plan fits and can be measured in good time: not much more than so many
layers run in a step, and at stage 3 fewer where ranks are many, for each of which DeepSpeed takes slices of each gradient.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from tests.deepspeed.test_write import GPU_MEM, UNOFFLOADABLE, ranks_of
from zeroplan.errors import ZeroplanError
from zeroplan.plan import plan
from zeroplan.request.options import Options
from zeroplan.request.request import Request, read_request
from zeroplan.specs.job import Job
from zeroplan.verify.case import RUNNABLE, as_measured, case_of

KEPT_FREE = 0.05
"""Share of each card, as the recorded plans were made."""

FAMILIES = (
    ("llama-2-7b", "llama-3.1-8b", "llama-3.2-1b", "llama-3.2-3b", "tinyllama-1.1b", "smollm2-135m", "llama-2-13b",
     "llama-2-70b", "codellama-34b"),
    ("qwen2.5-0.5b", "qwen2.5-7b", "qwen2.5-32b"), ("qwen3-0.6b", "qwen3-8b"), ("mistral-7b-v0.3", "mistral-nemo"),
    ("gemma-2b", "gemma-7b"), ("gemma-2-2b", "gemma-2-9b"), ("gemma-3-1b", "gemma-3-4b-text"), ("phi-1.5", "phi-2"),
    ("phi-3-mini", "phi-4"), ("gpt2", "gpt2-medium", "gpt2-xl"), ("pythia-1.4b", "gpt-neox-20b"), ("gpt-j-6b",),
    ("opt-1.3b", "opt-13b"), ("bloom-560m", "bloom-7b1"), ("falcon-7b",), ("olmo-7b",), ("olmo-2-7b",),
    ("starcoder",), ("starcoder2-15b",), ("bert-base", "bert-large"),
    ("mixtral-8x7b",), ("qwen1.5-moe-a2.7b",), ("qwen3-30b-a3b",), ("deepseek-v2-lite",), ("gpt-oss-20b",),
)  # fmt: skip
"""Presets by family; a family is drawn first."""
FEW_LAYERS = (
    ("llama-3.2-1b",), ("gpt2",), ("gemma-2b",), ("bert-base",), ("qwen2.5-0.5b",), ("opt-1.3b",), ("bloom-560m",),
)  # fmt: skip
PARAMS = ("125M", "350M", "1.3B", "3B", "7B", "13B", "34B", "70B")
GPUS = ("1", "2", "3", "4", "8", "2x4", "3x2", "2x8", "4x8", "6x8", "8x8", "16x8", "32x8", "64x8")
CARDS = ("v100-16gb", "a10g", "rtx-4090", "v100-32gb", "a100-40gb", "l40s", "a100-80gb", "h100-80gb", "h200")
CHECKPOINTING = (
    "none", "full", "selective", "every-2", "every-5", "full-reentrant", "every-3-reentrant", "selective-products",
    "deepspeed",
)  # fmt: skip
MOST_WORK, LEAST_WORK = 48, 24
"""Of a recorded case, and of a live one."""


def draw_adapters(r: random.Random) -> dict[str, str]:
    """LoRA on all linear layers mostly, or on those of queries and values; weights in 4 bit sometimes."""
    options = {"lora": r.choice(("4", "8", "16", "64"))}
    if r.random() < 0.3:
        options |= {"quantize": r.choice(("nf4", "fp4")), "double_quant": r.choice(("yes", "no"))}
    return options


def draw_dtypes(r: random.Random) -> dict[str, str]:
    """Adapters in float32, or weights in uint8 or int8, at stage 3."""
    lora = {"lora": r.choice(("8", "16", "64")), "stage": "3", "precision": r.choice(("fp16", "bf16", "bf16"))}
    kinds: tuple[dict[str, str], ...] = (
        {"adapter_dtype": "fp32"}, {"quantize": "int8"}, {"quantize": "nf4", "quant_storage": "uint8"},
    )  # fmt: skip
    return lora | r.choice(kinds)


def draw(r: random.Random, *, small: bool) -> dict[str, str]:
    """Options of one request, by name; `small`: models of few layers, and micro-steps few."""
    gpus = r.choice(GPUS)
    ranks = ranks_of(gpus)
    options = {
        "gpus": gpus,
        "precision": r.choice(("fp32", "fp16", "bf16", "bf16")),
        "optimizer": r.choice((*RUNNABLE, "adam", "adamw", "adamw", "adamw")),
        "seq": r.choice(("512", "1024", "2048", "4096")),
        "host_mem": r.choice(("256GiB", "1TB", "2TB", "8TB")),
        "global_batch": str(ranks * r.choice((1, 2, 3, 4, 8, 16))),
    }
    options |= {"gpu": r.choice(CARDS)} if r.random() < 0.3 else {"gpu_mem": r.choice(GPU_MEM)}
    if r.random() < 0.75:
        options["model"] = r.choice(r.choice(FEW_LAYERS if small else FAMILIES))
    else:
        options["params"] = r.choice(PARAMS[: 2 if small else None])
    if r.random() < 0.5:
        options["nvme"] = "8TB"
    if r.random() < 0.6:
        options["stage"] = r.choice("0123")
    if r.random() < 0.5:
        options["checkpointing"] = r.choice(CHECKPOINTING)
    if r.random() < 0.15:
        options["attention"] = "eager"
    if r.random() < 0.2:
        options["micro_batch"] = r.choice("12")
    if options["optimizer"] not in UNOFFLOADABLE and r.random() < 0.5:
        options |= draw_offload(r, options.get("stage", "3"), nvme="nvme" in options)
    return options


def draw_offload(r: random.Random, stage: str, *, nvme: bool) -> dict[str, str]:
    """Where the optimizer goes, and at stage 3 perhaps the parameters."""
    if stage == "0":
        return {}
    devices = ["cpu", *(["nvme"] * 2 if nvme and stage == "3" else [])]
    drawn = {"offload_optimizer": r.choice(devices)}
    if stage == "3" and r.random() < 0.6:
        drawn |= {"offload_param": r.choice(devices), "stage": "3"}
    return drawn


def read(options: dict[str, str]) -> Request:
    return read_request(Options(**options), default_params="7B", default_gpus=8)


def planned(options: dict[str, str]) -> Job | None:
    """The plan's job; None where nothing fits, where what is asked for contradicts itself, or where the model stops.

    It does with a sequence beyond learned positions (BERT; GPT-2 and OPT outside of torch's meta device), and may under
    selective-products at stage 3: gemma-2b with its optimizer on NVMe gathered in a layer's second forward and not in its
    first, which torch's selective checkpointing takes for another computation.
    """
    try:
        request = read(options)
        if not request.model.inferred and 0 < request.model.shape.positions < request.workload.seq:
            return None
        best = plan(request.job(), request.fixed, reserve=KEPT_FREE).chosen
    except ZeroplanError:
        return None
    if best is None or (best.strategy.stage == 3 and best.strategy.checkpointing == "selective-products"):
        return None
    return best.job


def work(job: Job) -> float:
    """Layers that run in a step, as often as they take the time of one on few ranks."""
    times = 1 + job.ranks / 128 if job.strategy.stage == 3 else 1
    return job.model.shape.layers * job.strategy.micro_steps * times


ADAPTERS: dict[str, Callable[[random.Random], dict[str, str]]] = {"adapters": draw_adapters, "dtypes": draw_dtypes}
"""What else is drawn where adapters train."""


def drawn(seed: int, *, small: bool = False, adapters: str = "") -> tuple[dict[str, str], Job]:
    """Options, and the job of their plan at a drawn rank, as it is measured; `adapters`: one of ADAPTERS."""
    r = random.Random(f"{'adapter ' * bool(adapters)}plan {seed}")
    most = LEAST_WORK if small else MOST_WORK
    while True:
        options, place = draw(r, small=small), r.random()
        if adapters:
            options |= ADAPTERS[adapters](r)
        if adapters and options.get("model") == "gpt-j-6b":  # when the plans were recorded it was described as transformers 5.23 has it
            continue
        job = planned(options)
        if job and work(job) <= most:
            rank = min(int(place * (job.ranks + 1)), job.ranks - 1)
            return options, as_measured(job._replace(rank=rank), real=False)


def case(job: Job) -> dict[str, Any]:
    """What `zeroplan verify` runs of the ds_config that `recommend --for deepspeed` writes, without the model alone."""
    return case_of(job, None, mode="meta", activations=False)
