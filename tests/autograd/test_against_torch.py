"""Every byte that a training step holds, against torch's own run of transformers' models.

Where torch and transformers are installed, ZEROPLAN_STEPS more cases of each family (1 unless set) are drawn, measured
and compared.
"""

from __future__ import annotations

import gc

import pytest

from tests.autograd.recorded import COUNTED, FROZEN, Case, held, measured_now, name, read

CASES = read()


def test_enough_of_everything_is_recorded():
    assert len(CASES) >= 300
    assert len({case["config"]["model_type"] for case in CASES}) == 26
    assert {case["batch"] for case in CASES} == {1, 2, 3, 4}
    assert {case["dtype"] for case in CASES} == {"fp32", "bf16", "fp16"}
    ways = {(case["attention"], case["device"], case["kernel"], case["checkpointing"]) for case in CASES}
    places = [("cpu", None), ("meta", None), ("meta", "flash"), ("meta", "efficient"), ("meta", "cudnn")]
    for device, kernel in places:
        for attention in ("eager",) if kernel is None else ("sdpa",):
            assert {(attention, device, kernel, again) for again in (True, False)} <= ways
    assert {("sdpa", "cpu", None, again) for again in (True, False)} <= ways


@pytest.mark.parametrize("case", CASES, ids=name)
def test_as_torch_measured(case: Case):
    assert held(case) == {counted: case[counted] for counted in COUNTED}


@pytest.mark.parametrize("case", CASES[:: len(CASES) // 25], ids=name)
def test_the_same_without_the_garbage_collector(case: Case):
    """Storages die with their last reference: none waits in a cycle."""
    gc.disable()
    try:
        assert held(case) == {counted: case[counted] for counted in COUNTED}
    finally:
        gc.enable()


@pytest.mark.filterwarnings("ignore")
def test_as_torch_measures_now():
    measured_now("make_activation_reference")


FROZEN_CASES = read(FROZEN)


def test_enough_is_frozen():
    assert len(FROZEN_CASES) >= 200
    opened = [case for case in FROZEN_CASES if case["checkpointing"] and {"embed", "embed_tokens", "weight"} & {*case["freeze"]}]
    assert sum(case.get("reentrant", False) for case in opened) >= 30
    assert sum(not case.get("reentrant", False) for case in opened) >= 50
    assert len({case["config"]["model_type"] for case in FROZEN_CASES}) == 26


@pytest.mark.parametrize("case", FROZEN_CASES, ids=lambda case: f"{name(case)} {' '.join(case['freeze'])}")
def test_frozen_weights(case: Case):
    """A product with a weight that does not train keeps no input for it."""
    assert held(case) == {counted: case[counted] for counted in COUNTED}
