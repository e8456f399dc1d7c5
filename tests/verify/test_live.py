"""Runs of DeepSpeed itself, here and now, against the ledger: recorded cases measured anew, and fresh draws.

Where DeepSpeed 0.19.8 is not installed (`pip install 'zeroplan[verify]'`) these are skipped. ZEROPLAN_DRAWS sets how many
fresh cases are drawn, ZEROPLAN_SEED where their seeds start.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os

import pytest

from tests.references.make_adapter_runs import drawn
from tests.verify.recorded import RUNS, job_of, label
from zeroplan.costs.ledger import ledger
from zeroplan.errors import ZeroplanError
from zeroplan.ledger import total
from zeroplan.verify import unusual
from zeroplan.verify.cases import draw, under_muon
from zeroplan.verify.compare import compare
from zeroplan.verify.measure import measure

if any(importlib.util.find_spec(name) is None for name in ("deepspeed", "torch", "transformers")):
    pytest.skip("DeepSpeed is not installed", allow_module_level=True)
if importlib.metadata.version("deepspeed") != "0.19.8":
    pytest.skip("another DeepSpeed than 0.19.8", allow_module_level=True)

LIVE = 12
ADAPTERS = [run for run in RUNS if run["of"] == "adapters"]
RUNNABLE = [
    run for run in RUNS
    if run["of"] not in ("plans", "adapter_plans") and "adapter" not in run["case"]
    and "kernels" not in run["case"] and run["case"]["attention"] in ("eager", "sdpa")
]  # verify itself runs neither Liger nor flash-attn; plans have test_live_plans.py
EVERY = len(RUNNABLE) // LIVE
PEFT = all(importlib.util.find_spec(name) for name in ("peft", "bitsandbytes"))
WITH_PEFT = pytest.mark.skipif(not PEFT, reason="peft and bitsandbytes are not installed")
FRESH = int(os.environ.get("ZEROPLAN_DRAWS", "0"))
FIRST = int(os.environ.get("ZEROPLAN_SEED", "10000"))


def differing(case):
    """What the run shows differently. Cases that DeepSpeed refuses are none of ours, if we refuse them too."""
    try:
        job = job_of(case)
        counted, refused = ledger(job), None
    except ZeroplanError as error:
        if " is not planned: " in str(error):  # ZenFlow under Muon: it runs
            pytest.skip(str(error))
        refused = error
    measured = measure({"steps": 3, **case, "mode": "meta", "activations": False}, timeout=300)
    assert "failed" not in measured, measured["failed"]
    if refused:
        assert "refused" in measured or "of which one gets nothing" in str(refused), refused
        pytest.skip("refused, perhaps on another rank than the one that is measured")
    assert "refused" not in measured, measured["refused"]
    return [row for row in compare(job, counted, measured)
            if not (row.holds or (row.within and abs(row.difference) <= 64))]  # fmt: skip


@pytest.mark.parametrize("run", RUNNABLE[::EVERY], ids=label)
def test_recorded_runs_again(run):
    assert differing(run["case"]) == []


@WITH_PEFT
@pytest.mark.parametrize("run", ADAPTERS[:: len(ADAPTERS) // LIVE][:LIVE], ids=label)
def test_recorded_adapters_again(run):
    assert differing(run["case"]) == []


@WITH_PEFT
@pytest.mark.parametrize("seed", range(FIRST, FIRST + FRESH))
def test_fresh_draws_of_adapters(seed):
    [case] = drawn(1, seed, 0.3)
    assert differing(case) == []


@pytest.mark.parametrize("seed", range(FIRST, FIRST + FRESH))
def test_fresh_draws(seed):
    assert differing({**draw(seed), "freeze": None}) == []


@pytest.mark.parametrize("seed", range(FIRST, FIRST + FRESH // 4))
def test_fresh_draws_of_unusual_keys(seed):
    assert differing(unusual.draw(seed)) == []


@pytest.mark.parametrize("seed", range(FIRST, FIRST + FRESH // 4))
def test_fresh_draws_under_muon(seed):
    assert differing(under_muon(draw(seed))) == []


def phase_of(measured, name):
    return next(phase["peak"] for phase in measured["phases"] if phase["phase"] == name)


@pytest.mark.parametrize("run", [
    run for run in RUNNABLE
    if run["case"]["ds_config"].get("zero_optimization", {}).get("stage") == 2 and run["case"]["model"]["model_type"] == "gemma"
][:2], ids=label)  # fmt: skip
@pytest.mark.parametrize("share", [0.9, 3.0])
def test_flat_copies_are_made_where_there_is_room(run, share):
    """A card of nine tenths of the parameters' bytes, and one of three times as many: GPU and host inside initialize."""
    model = job_of(run["case"])
    case = {**run["case"], "gpu_memory": int(share * model.strategy.element_bytes * model.model.parameters)}
    assert differing(case) == []
    job = job_of(case)
    on_host = [total(m.lines) for m in ledger(job).host.moments if m.place == "the card has no room for flat copies"]
    found = phase_of(measure({"steps": 3, **case, "mode": "meta", "activations": False}, timeout=300), "init")
    assert (on_host[0] // job.cluster.gpus_per_node if on_host else 0) == found["host"]
    assert bool(on_host) == (share < 1)
