"""Copies over PCIe: what runs beside backward, and what is waited for."""

from __future__ import annotations

from typing import Any

import pytest

from tests.costs.timing.test_step import job, timed
from zeroplan.catalog import hardware
from zeroplan.clock import COMPUTE, StepTime
from zeroplan.specs.cluster import SourcedValue
from zeroplan.specs.strategy import Offload

PSI = 8_030_261_248
LINK = 50e9
TO_HOST, FROM_HOST = "copies to the host", "copies from the host"
HIDDEN = (f"{TO_HOST}, beside backward", f"{FROM_HOST}, beside backward")


def step(device: str = "cpu", seq: int = 8192, pin_memory: bool = True, **strategy: Any) -> StepTime:
    """Llama-3.1-8B on one H100 of which PCIe was measured, the optimizer offloaded."""
    gpu = hardware.gpu("h100-80gb")._replace(host_link=SourcedValue(LINK, "test", "", "measured"))
    cluster = hardware.cluster("dgx-h100")._replace(gpus_per_node=1, gpu=gpu)
    offload = Offload(device, pin_memory=pin_memory)
    return timed(job(cluster=cluster, seq=seq, **{"stage": 3, "offload_optimizer": offload, **strategy}))


def seconds(found: StepTime) -> dict[str, float]:
    return {entry.name: entry.seconds for entry in found.terms}


def backward(found: StepTime) -> float:
    return sum(entry.seconds for entry in found.terms if entry.group == COMPUTE and entry.name.endswith("backward"))


def test_gradients_of_all_buckets_but_the_last_hide_behind_backward():
    """2 bytes a parameter to the host, 2 back, 4 for the optimizer; ⌈8.03e9 / 5e8⌉ = 17 buckets."""
    found = step(seq=32768)
    assert backward(found) > 8 * PSI / LINK
    shown = seconds(found)
    assert shown[HIDDEN[0]] == pytest.approx(6 * PSI / LINK / 17)
    assert shown[HIDDEN[1]] == pytest.approx(2 * PSI / LINK / 17)
    assert shown[FROM_HOST] == pytest.approx(2 * PSI / LINK)  # updated parameters, after the update


def test_what_is_longer_than_backward_shows():
    found = step(seq=64)
    copied, room = 8 * PSI / LINK, backward(found)
    assert room < copied
    shown = seconds(found)
    assert shown[HIDDEN[0]] + shown[HIDDEN[1]] == pytest.approx(copied / 17 + (copied - room) * 16 / 17)


def test_the_optimizers_gradients_come_in_the_last_micro_step():
    """Four micro-steps: three of 4 bytes a parameter, one of 8, each beside a quarter of backward."""
    found = step(grad_accum=4)
    room, first, last = backward(found) / 4, 4 * PSI / LINK, 8 * PSI / LINK
    assert first < room < last
    shown = seconds(found)
    expected = 3 * first / 17 + last / 17 + (last - room) * 16 / 17
    assert shown[HIDDEN[0]] + shown[HIDDEN[1]] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("asked", "rate"), [({"overlap_comm": False}, LINK), ({"pin_memory": False}, LINK / 2)], ids=["no stream", "pageable"]
)
def test_without_a_stream_of_their_own_or_pinned_memory_all_of_it_shows(asked: dict[str, Any], rate: float):
    shown = seconds(step(**asked))
    suffix = "" if rate == LINK else ", pageable"
    assert shown[f"{TO_HOST}{suffix}"] == pytest.approx(6 * PSI / rate)
    assert shown[f"{FROM_HOST}{suffix}"] == pytest.approx(4 * PSI / rate)
    assert not {*HIDDEN} & shown.keys()


def test_the_buffers_of_nvme_are_pageable_to_cuda_whatever_pin_memory_says():
    """posix_memalign and mlock, not cudaHostAlloc (csrc/pin_memory/page_alloc.cpp)."""
    shown = seconds(step("nvme"))
    assert shown[f"{TO_HOST}, pageable"] == pytest.approx(4 * PSI / (LINK / 2))
    assert shown[TO_HOST] == pytest.approx(2 * PSI / LINK)
    assert shown[FROM_HOST] == pytest.approx(4 * PSI / LINK)


def test_stage_2_asks_for_every_gradients_overflow_and_hides_nothing():
    shown = seconds(step(stage=2, overlap_comm=True))
    assert shown[TO_HOST] == pytest.approx(4 * PSI / LINK)
    assert not {*HIDDEN} & shown.keys()


def test_parameters_are_fetched_in_full():
    """In forward and backward, where the head and two layers (max_reuse_distance) are there already."""
    shown = seconds(step(offload_param=Offload("cpu")))
    fetched = 2 * PSI - 525_336_576 - 2 * 218_112_000
    assert shown[FROM_HOST] == pytest.approx(2 * fetched / LINK, rel=1e-3)


def test_collectives_go_before_copies():
    """Eight GPUs: the reductions take their share of backward, and less of it is left to hide behind."""
    gpu = hardware.gpu("h100-80gb")._replace(host_link=SourcedValue(1e9, "test", "", "measured"))
    cluster = hardware.cluster("dgx-h100")._replace(gpu=gpu)
    slow = cluster._replace(intra_node=SourcedValue(10e9, "test", "", "measured"), all_reduce=None)
    fast, bound = (
        seconds(timed(job(cluster=one, seq=2048, stage=3, offload_optimizer=Offload("cpu")))) for one in (cluster, slow)
    )
    assert bound[HIDDEN[0]] == pytest.approx(6 * PSI / 8 / 1e9)  # nothing of backward is left
    assert fast[HIDDEN[0]] < bound[HIDDEN[0]]


def test_a_small_models_copies_never_take_less_than_nothing():
    one = job("gpt2", stage=3, grad_accum=16, offload_optimizer=Offload("cpu"), seq=64)
    found = timed(one._replace(cluster=one.cluster._replace(nodes=64)))
    assert all(entry.seconds >= 0 for entry in found.terms)
    assert HIDDEN[1] in seconds(found)
