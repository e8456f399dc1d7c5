"""Recordings of small models of families that no description has, against torch on the CPU and DeepSpeed, without either.

What DeepSpeed did with them is compared in test_against_recorded.py, as of every recorded run. Here is what transformers'
own modules hold in float32 with real tensors.
"""

from __future__ import annotations

import json

import pytest

from tests.conftest import REFERENCES
from tests.verify.recorded import RUNS, recorded_family
from zeroplan.specs.checkpointing import recomputing
from zeroplan.specs.model import TimelineRequest

ON_THE_CPU = json.loads((REFERENCES / "families_cpu.json").read_text())["measured"]
FAMILIES = sorted(path.name.removesuffix(".trace.json.gz") for path in (REFERENCES / "families").iterdir())
OF_DEEPSPEED = [run["case"] for run in RUNS if run["of"] == "families"]


def test_there_are_enough():
    """Families; of them those that DeepSpeed ran at each stage, and those with images."""
    stages = {name: set() for name in FAMILIES}
    for case in OF_DEEPSPEED:
        stages[case["recording"]].add(case["ds_config"].get("zero_optimization", {}).get("stage", 0))
    assert len(FAMILIES) == len(stages) >= 100
    assert all(found == {0, 1, 2, 3} for found in stages.values())
    of_images = [case for case in OF_DEEPSPEED if case.get("images")]
    assert len({case["recording"] for case in of_images}) == len([case for case in of_images if case.get("freeze")]) >= 23
    assert len({case["recording"] for case in OF_DEEPSPEED if case.get("target")}) >= 6
    assert {case["checkpointing"] for case in OF_DEEPSPEED} == {"none", "full"}
    assert len({row["recording"] for row in ON_THE_CPU}) >= 50


@pytest.mark.parametrize("row", ON_THE_CPU, ids=lambda row: row["recording"])
def test_bytes_on_the_cpu(row):
    """Saved for backward, and the peaks of forward and backward, at a batch and a sequence that were not recorded."""
    model = recorded_family(row["recording"])
    asked = TimelineRequest(
        batch=row["batch"], seq=row["seq"], width=4, half=False, attention="eager", kernel="cpu",
        recomputing=recomputing(row["checkpointing"]), zero_linear=False, frozen=model.frozen,
    )  # fmt: skip
    measured = row["saved"], row["forward_peak"], row["backward_peak"]
    assert model.profile.alone(asked) == measured
