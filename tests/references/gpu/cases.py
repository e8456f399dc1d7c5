"""What is run on a card: requests as options of `zeroplan estimate`, and each as a case of `zeroplan.verify.measure`.

A 1.3B, a 7B and a 13B model at every stage, on 8 and on 64 ranks, with and without checkpointing and offload, as far as
the ledger says that it fits the card; some that should not; and on the smallest model what else moves a byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any, NamedTuple

from zeroplan.request.options import Options
from zeroplan.request.request import read_request
from zeroplan.costs.ledger import ledger
from zeroplan.costs.outside import outside
from zeroplan.ledger import total
from zeroplan.specs.job import Job
from zeroplan.verify.case import as_measured, case_of

MODELS = ("opt-1.3b", "llama-2-7b", "llama-2-13b")
USUAL = {
    "gpu": "h100-80gb", "host_mem": "2TB", "seq": "2048", "micro_batch": "1", "precision": "bf16", "optimizer": "adamw",
    "attention": "sdpa", "checkpointing": "full",
}  # fmt: skip
TOO_LARGE = (
    {"model": "llama-2-7b", "gpus": "8", "stage": "0"},
    {"model": "llama-2-13b", "gpus": "8", "stage": "1"},
    {"model": "llama-2-13b", "gpus": "8", "stage": "2", "checkpointing": "none", "micro_batch": "4"},
)
SMALL: dict[str, str] = {"model": "opt-1.3b", "gpus": "8"}
MORE: tuple[dict[str, Any], ...] = (
    *({**SMALL, "stage": stage, "grad_accum": "2"} for stage in "0123"),
    *({**SMALL, "stage": stage, "precision": "fp32"} for stage in "023"),
    *({**SMALL, "stage": stage, "precision": "fp16"} for stage in "123"),
    *({**SMALL, "stage": stage, "attention": "eager", "checkpointing": "none"} for stage in "23"),
    *({**SMALL, "stage": stage, "optimizer": "sgd-momentum"} for stage in "13"),
    *({**SMALL, "stage": stage, "optimizer": "lion"} for stage in "2"),
    *({**SMALL, "stage": "2", "zero": {"contiguous_gradients": False, "overlap_comm": overlap}} for overlap in (False, True)),
    *({**SMALL, "stage": stage, "zero": {"overlap_comm": True}} for stage in "12"),
    *({**SMALL, "stage": stage, "zero": {"reduce_bucket_size": 20_000_000}} for stage in "123"),
    {**SMALL, "stage": "3", "zero": {"overlap_comm": False}},
    {**SMALL, "stage": "3", "zero": {"max_live_parameters": 100_000_000, "max_reuse_distance": 0}},
    {"model": "llama-2-7b", "gpus": "8", "stage": "2", "zero": {"contiguous_gradients": False}},
    {"model": "llama-2-7b", "gpus": "8", "stage": "2", "zero": {"contiguous_gradients": False, "overlap_comm": True}},
    {"model": "llama-2-7b", "gpus": "8", "stage": "2", "zero": {"overlap_comm": True}},
    {"model": "llama-3.2-1b", "gpus": "8", "stage": "3", "checkpointing": "none", "micro_batch": "2"},
    {"model": "qwen2.5-0.5b", "gpus": "8", "stage": "2", "checkpointing": "none", "seq": "4096"},
    {"model": "gemma-2b", "gpus": "8", "stage": "3", "checkpointing": "none", "seq": "1024"},
    {"model": "gpt2-xl", "gpus": "8", "stage": "1", "checkpointing": "none", "seq": "1024"},
)  # fmt: skip


class Case(NamedTuple):
    request: dict[str, Any]
    job: Job
    needed: int
    """Bytes of the card by the ledger, with what lies beside the allocator."""

    @property
    def to_measure(self) -> dict[str, Any]:
        return case_of(self.job, None, mode="cuda")


def wanted() -> Iterator[dict[str, Any]]:
    """All but those too large, smallest model first."""
    for model, stage, gpus, checkpointing in product(MODELS, "0123", ("8", "8x8"), ("none", "full")):
        one = {"model": model, "stage": stage, "gpus": gpus, "checkpointing": checkpointing}
        yield one
        if stage != "0":
            yield {**one, "offload_optimizer": "cpu"}
        if stage == "3":
            yield {**one, "offload_optimizer": "cpu", "offload_param": "cpu"}
    yield from MORE


def case(request: dict[str, Any]) -> Case:
    zero = request.get("zero", {})
    options = {**USUAL, **{name: value for name, value in request.items() if name != "zero"}}
    job = as_measured(read_request(Options(**options)).job(), real=False)
    job = job.at(**zero) if zero else job
    counted = ledger(job)
    most = max(total(counted.gpu.worst(phase).lines) for phase in counted.gpu.phases)
    return Case(request, job, most + total(outside(job)))


def cases(room: int) -> list[Case]:
    """Those that fit, and at the end those that should not."""
    found = [case(request) for request in wanted()]
    return [one for one in found if one.needed <= room] + [case(request) for request in TOO_LARGE]
