"""Some layers checkpointed, and checkpointing with reentrance, against torch's own run of transformers' models.

Cases are in tests/references/checkpointing_torch_2.13.json; where torch and transformers are installed, more of each
family are drawn, measured and compared, as in test_against_torch.
"""

from __future__ import annotations

import json

import pytest

from tests.autograd.recorded import COUNTED, Case, held, measured_now, name, recomputing_of
from tests.conftest import REFERENCES
from zeroplan.architectures.model import model_of
from zeroplan.architectures.read import read_config
from zeroplan.specs.checkpointing import Recomputing, is_checkpointing, recomputing
from zeroplan.specs.model import TimelineRequest

CASES: list[Case] = json.loads((REFERENCES / "checkpointing_torch_2.13.json").read_text())["measured"]


def label(case: Case) -> str:
    return f"{name(case)} every {case['every']}{' reentrant' * case['reentrant']}{' products' * case['keeps_products']}"


def test_enough_of_both_is_recorded():
    assert len({case["config"]["model_type"] for case in CASES}) == 26
    assert sum(case["every"] > 1 for case in CASES) >= 80
    assert sum(case["reentrant"] for case in CASES) >= 80
    assert sum(case["keeps_products"] for case in CASES) >= 40
    ways = {(case["every"] > 1, case["reentrant"], case["keeps_products"]) for case in CASES}
    whole = {(True, False, False), (True, True, False), (False, True, False)}
    assert ways == whole | {(True, False, True), (False, False, True)}


@pytest.mark.parametrize("case", CASES, ids=label)
def test_as_torch_measured(case: Case):
    assert held(case) == {counted: case[counted] for counted in COUNTED}


@pytest.mark.parametrize("case", CASES, ids=label)
def test_a_few_layers_stand_for_the_others(case: Case):
    """What a job is told comes from a trace of some of the layers: of each make the first two, and the last."""
    family, config = read_config(dict(case["config"]), "recorded")
    request = TimelineRequest(
        batch=case["batch"], seq=case["seq"], width=4 if case["dtype"] == "fp32" else 2, half=False,
        attention=case["attention"], zero_linear=False,
        kernel="cpu" if case["device"] == "cpu" else case["kernel"] or "flash",
        recomputing=recomputing_of(case),
    )  # fmt: skip
    model = model_of(family, config, name="case", source="case")
    assert model.profile.alone(request) == tuple(case[counted] for counted in COUNTED)


@pytest.mark.filterwarnings("ignore")
def test_as_torch_measures_now():
    measured_now("make_checkpointing_reference")


def test_names():
    assert recomputing("none") == Recomputing(0)
    assert recomputing("selective") == Recomputing(0, attention=True)
    assert recomputing("full") == Recomputing(1)
    assert recomputing("deepspeed") == Recomputing(1, reentrant=True)
    assert recomputing("selective-products") == Recomputing(1, keeps_products=True)
    assert recomputing("every-12-reentrant") == Recomputing(12, reentrant=True)
    assert [is_checkpointing(kind) for kind in ("every-2", "full-reentrant", "every-10")] == [True] * 3
    refused = ("every-1", "every-0", "every-", "selective-reentrant", "every-2-", "FULL", "every-02")
    assert not any(is_checkpointing(kind) for kind in refused)


def test_the_first_layer_is_checkpointed():
    """transformers' layer_index % every_n_layers == 0."""
    assert [number for number in range(8) if Recomputing(3).has(number)] == [0, 3, 6]
