"""What stage 3's hooks cost the CPU: DeepSpeed's own run (references/hooks_0.19.8.json), and published runs that wait."""

import json
from itertools import product

import pytest

from benchmarks.published.rows import read
from benchmarks.published.timing.measures import THROUGHPUT, compare
from tests.conftest import REFERENCES
from tests.references.make_hook_seconds import LAYERS, MODELS
from zeroplan.architectures.model import model_of
from zeroplan.architectures.read import read_config
from zeroplan.costs.ledger import ledger
from zeroplan.costs.timing.hooks import hooks
from zeroplan.costs.timing.step import software_of, step_time
from zeroplan.request.options import Options
from zeroplan.request.request import read_request
from zeroplan.specs.software import HOOK, LIGER, TRANSFORMERS

RUNS = {(run["model"], run["layers"], run["zero"]): run
        for run in json.loads((REFERENCES / "hooks_0.19.8.json").read_text())["runs"]}  # fmt: skip
WAITING = ("bf16mwT-fp32", "bf16mwT-bf16", "makramabT-1")
"""Published, data-parallel, and four times as slow as work and traffic say."""


def job(**options):
    usual = {"gpus": "8", "gpu": "h100-80gb", "stage": "3", "seq": "512", "micro_batch": "1", "checkpointing": "none"}
    return read_request(Options(**{**usual, **options})).job()


def modules(model, layers):
    """Modules that forward goes through, of which DeepSpeed hooks each."""
    config = {**MODELS[model], LAYERS[model]: layers}
    kind, read_in = read_config(config, "case")
    return len(model_of(kind, read_in, name="case", source="case", content=config).profile.execution().forward) / 2


@pytest.mark.parametrize(("model", "layers"), [*product(MODELS, (12, 24))])
@pytest.mark.parametrize("way", ["forward", "backward"])
def test_the_constant_lies_where_deepspeeds_hooks_do(model, layers, way):
    """Above what they take where everything is gathered, near what they take with a gather each: a card adds its own."""
    without = RUNS[model, layers, "stage 1"][way]
    kept, anew = ((RUNS[model, layers, zero][way] - without) / modules(model, layers) for zero in ("kept", "anew"))
    assert 0.2e-3 < kept < HOOK.value
    assert abs(anew - HOOK.value) < 0.15e-3


def test_a_pass_waits_for_one_hook_a_module():
    found = hooks(job(model="gpt2"), TRANSFORMERS)
    inside = 12 * 12  # a layer: itself, two norms, attention of itself, two products and two dropouts, and the MLP's four
    around = 7  # the model, its transformer, two embeddings, a dropout, the last norm, the head
    assert found.forward == pytest.approx((inside + around) * 0.5e-3)
    assert found.backward == pytest.approx(found.forward, rel=0.02)  # no gradient enters an embedding


def test_checkpointing_goes_through_layers_twice():
    plain, again = (hooks(job(model="gpt2", checkpointing=kind), TRANSFORMERS) for kind in ("none", "full-reentrant"))
    assert again.forward == plain.forward
    assert again.backward == pytest.approx(plain.backward + 12 * 11 * 0.5e-3)  # what is below each layer


@pytest.mark.parametrize("stage", ["0", "1", "2"])
def test_below_stage_3_there_are_none(stage):
    assert hooks(job(model="gpt2", stage=stage), TRANSFORMERS) == (0, 0)


def test_a_pass_is_not_shorter_than_its_hooks_and_no_longer_where_it_was_longer():
    for seq, waits in (("512", True), ("8192", False)):
        asked = job(params="1.3B", seq=seq, micro_batch="1" if waits else "4", checkpointing="full")
        time, host = step_time(asked, ledger(asked)), hooks(asked, software_of(asked))
        idle = sum(entry.seconds for entry in time.terms if "hooks" in entry.name)
        beside = sum(entry.seconds for entry in time.terms if "after" not in entry.name and entry.group != "optimizer")
        assert (idle > 0) == waits
        assert beside >= sum(host) * 0.999


def test_accumulation_waits_in_each_micro_step():
    once, twice = (job(model="gpt2", grad_accum=count) for count in ("1", "2"))
    idle = [
        sum(entry.seconds for entry in step_time(one, ledger(one)).terms if "hooks" in entry.name) for one in (once, twice)
    ]
    assert idle[1] == pytest.approx(2 * idle[0], rel=0.02)


def test_ligers_kernels_have_the_same_hooks():
    assert LIGER.hook == TRANSFORMERS.hook == HOOK


def test_published_runs_that_wait_for_the_cpu():
    found = {one.row.name: one for one in compare(row for row in read(THROUGHPUT) if row.name in WAITING).compared}
    assert set(found) == set(WAITING)
    for one in found.values():
        assert abs(one.error) < 0.15
        assert one.time.total < 3 * sum(entry.seconds for entry in one.time.terms if "hooks" in entry.name)
