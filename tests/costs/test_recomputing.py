"""Checkpointing that a model cannot run with is refused in one line; what is held and moved follows the config."""

from __future__ import annotations

from typing import Any

import pytest

from tests.jobs import job as plain_job
from zeroplan.costs.ledger import ledger
from zeroplan.costs.passes import alone
from zeroplan.errors import ContradictionError
from zeroplan.ledger import Line
from zeroplan.specs.checkpointing import ActivationCheckpointing
from zeroplan.specs.job import Job

INPUT = 2 * 2 * 512 * 2048
"""Bytes of a layer's input of Llama-3.2-1B in bf16: 2 sequences of 512 tokens, 16 layers."""


def job(name: str = "llama-3.2-1b", stage: int = 2, checkpointing: str = "deepspeed", **fields: Any) -> Job:
    told = {each: fields.pop(each) for each in ActivationCheckpointing._fields if each in fields}
    return plain_job(
        name, gpus=4, seq=512, stage=stage, micro_batch=2, checkpointing=checkpointing,
        activation_checkpointing=ActivationCheckpointing(**told), **fields,
    )  # fmt: skip


REFUSED = [
    (job(contiguous=True, number=16), "without partition_activations"),
    (job(partitions=True, contiguous=True), "no number_checkpoints for 16 layers"),
    (job(partitions=True, contiguous=True, number=15), "number_checkpoints 15 for 16 layers"),
    (job("gpt2", partitions=True), "more than one argument by position"),
    (job("gpt2", on_host=True, attention="eager"), "one mask by position"),
    (job(on_host=True, backend="cpu"), "empties the only copy"),
    (job("bert-base", partitions=True), "more than one argument by position"),
    (job("bloom-560m", checkpointing="selective", attention="eager"), "AttentionInterface"),
    (job("falcon-7b", checkpointing="selective"), "AttentionInterface"),
    (job("gpt-oss-20b", checkpointing="selective-products", attention="eager"), "biases to their products in place"),
    (job("qwen2.5-0.5b", stage=3, checkpointing="selective-products"), "has them twice"),
]


@pytest.mark.parametrize(("one", "why"), REFUSED, ids=[why for _one, why in REFUSED])
def test_refused_in_a_line(one: Job, why: str):
    with pytest.raises(ContradictionError, match=why) as stopped:
        ledger(one)
    assert "write" in str(stopped.value) or "leave it out" in str(stopped.value)
    assert "\n" not in str(stopped.value)


RUNNING = [
    job("gpt2", on_host=True),
    job("gpt2", checkpointing="selective", attention="eager"),
    job("qwen2.5-0.5b", stage=2, checkpointing="selective-products"),
    job("qwen2.5-0.5b", stage=3, checkpointing="selective-products", memory_efficient_linear=False),
    job("llama-3.2-1b", stage=3, checkpointing="selective-products"),
    job(partitions=True, on_host=True, backend="cpu"),
    job("gpt2", checkpointing="full", partitions=True),
]


@pytest.mark.parametrize("one", RUNNING)
def test_others_run(one: Job):
    assert alone(one) is not None


def host(one: Job, phase: str) -> dict[str, Line]:
    return {entry.name: entry for entry in ledger(one).host.worst(phase).lines}


def crossing(one: Job) -> dict[str, int]:
    return {
        entry.target: entry.line.bytes for entry in ledger(one).copies if entry.line.name == "activation checkpoints"
    }


def test_the_pool_keeps_its_buffers():
    """All inputs but the last go to page-locked buffers, of which torch makes each a power of two: 4 MiB they are."""
    one = job(on_host=True, grad_accum=3)
    for phase in ("forward", "backward", "step"):
        assert host(one, phase)["activation checkpoints"].bytes == 4 * 15 * INPUT
    assert crossing(one) == {"host": 3 * 15 * INPUT, "gpu": 3 * 14 * INPUT}


def test_partitions_wait_on_the_host_until_backward():
    one = job(partitions=True, on_host=True)
    for phase in ("forward", "backward"):
        assert host(one, phase)["activation checkpoints"].bytes == 4 * 16 * INPUT
        assert host(one, phase)["shapes of checkpoints"].bytes == 4 * 16 * 24
    assert "activation checkpoints" not in host(one, "step")
    assert crossing(one) == {"host": 16 * INPUT, "gpu": 16 * INPUT}


def test_contiguous_buffers_are_as_many_as_the_config_says():
    one = job(partitions=True, contiguous=True, number=20)
    assert alone(one).saved - alone(job()).saved == 4 * INPUT + 16 * 4
    assert host(job(partitions=True, contiguous=True, number=20, on_host=True), "forward")[
        "activation checkpoints"
    ].bytes == 4 * 20 * INPUT  # fmt: skip


def test_what_stays_on_the_gpu():
    """Of 16 inputs all, a copy of each and 4 bytes in its place, the last two, none."""
    plain = alone(job()).saved
    assert alone(job(partitions=True)).saved == plain + 16 * 4
    assert alone(job(on_host=True)).saved == plain - 14 * INPUT + 16 * 4
    assert alone(job(partitions=True, on_host=True)).saved == plain - 16 * INPUT + 16 * 4
    assert crossing(job(partitions=True)) == {}
