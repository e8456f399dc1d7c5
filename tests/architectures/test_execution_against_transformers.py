"""The order of execution, against transformers' own models under DeepSpeed's own hooks.

ZEROPLAN_EXECUTIONS sets the number of configs a family (6 unless set) and for each setting of leaves (a third of
it); ZEROPLAN_RECORD=1 writes execution_reference.json anew.
"""

from __future__ import annotations

import os
from itertools import islice

import pytest

from tests.architectures import execution_reference
from tests.architectures.execution_reference import Row
from tests.described import families_here
from zeroplan.architectures.execution import execution
from zeroplan.architectures.leaves import class_name, leaf_paths
from zeroplan.architectures.module import GradientCheckpointingLayer, Module
from zeroplan.specs.execution import Execution
from zeroplan.specs.model import LeafModules

torch = pytest.importorskip("torch")
pytest.importorskip("deepspeed")
transformers = pytest.importorskip("transformers")
FAMILIES = families_here(module=True)
recorder = pytest.importorskip("tests.architectures.execution_recorder")

pytestmark = pytest.mark.filterwarnings("ignore")
DRAWS = int(os.environ.get("ZEROPLAN_EXECUTIONS", "6"))
KEPT = 2  # configs a family in the reference, where nothing is a leaf
KEPT_LEAVES = {
    "mixtral": LeafModules(),
    "qwen2_moe": LeafModules(),
    "qwen3_moe": LeafModules(),
    "llama": LeafModules(classes=("transformers.models.llama.modeling_llama.LlamaDecoderLayer",)),
    "bloom": LeafModules(classes=("BloomBlock",)),
    "gpt2": LeafModules(granularity_threshold=400),
}
SETTINGS = {
    "default": LeafModules(),
    "bare class": LeafModules(
        classes=("Linear", "BertAttention", "GPT2Attention", "LlamaAttention", "Qwen3MoeExperts")
    ),
    "names": LeafModules(classes=(), names=("model", "transformer", "gpt_neox", "bert.encoder", "nowhere")),
    "suffixes": LeafModules(classes=(), name_suffixes=(".0", "mlp", "norm")),
    "a list of modules": LeafModules(classes=("torch.nn.modules.container.ModuleList",)),
    **{f"granularity {n}": LeafModules(granularity_threshold=n) for n in (20, 100, 400, 1500, 100_000)},
}


def ours(family: str, root: Module, leaves: LeafModules, attention: str) -> Execution:
    return execution(root, leaf_paths(root, family, leaves), eager=attention == "eager")._replace(layers=())


def layers(root: Module) -> list[Module]:
    return [module for _path, module in root.named_modules() if isinstance(module, GradientCheckpointingLayer)]


def assert_equal(family: str, leaves: LeafModules, draws: int) -> None:
    compared = 0
    for config, mine, theirs in islice(recorder.runnable(family, leaves=leaves), draws):
        for attention, found in theirs.items():
            assert ours(family, mine, leaves, attention) == found, (config, attention)
        compared += 1
    assert compared == draws


@pytest.mark.parametrize("family", FAMILIES)
def test_draws(family: str) -> None:
    assert_equal(family, recorder.NO_LEAVES, DRAWS)


@pytest.mark.parametrize("family", FAMILIES)
def test_bfloat16_runs_in_the_same_order(family: str) -> None:
    ((config, mine, theirs),) = islice(recorder.runnable(family, torch.bfloat16), 1)
    assert ours(family, mine, recorder.NO_LEAVES, "eager") == theirs["eager"], config


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("family", FAMILIES)
def test_leaves(family: str, settings: str) -> None:
    assert_equal(family, SETTINGS[settings], (DRAWS + 2) // 3)


@pytest.mark.parametrize("family", FAMILIES)
def test_layers_as_leaves(family: str) -> None:
    ((_config, any_size, _theirs),) = islice(recorder.runnable(family), 1)
    leaves = LeafModules(classes=(class_name(family, layers(any_size)[0].transformers_class),))
    assert len(execution(any_size, leaf_paths(any_size, family, leaves)).leaves) == len(layers(any_size))
    assert_equal(family, leaves, (DRAWS + 2) // 3)


def rows_of(family: str, leaves: LeafModules, count: int) -> list[Row]:
    drawn = (
        Row(config, leaves, list(theirs.values())[-1])
        for config, mine, theirs in recorder.runnable(family, leaves=leaves)
        if len(layers(mine)) <= 2
    )
    return list(islice((row for row in drawn if row.execution.leaves or leaves == recorder.NO_LEAVES), count))


@pytest.mark.parametrize("family", FAMILIES)
def test_reference(family: str) -> None:
    rows = [row for row in execution_reference.read() if row.config["model_type"] == family]
    if os.environ.get("ZEROPLAN_RECORD"):
        rows = rows_of(family, recorder.NO_LEAVES, KEPT)
        if family in KEPT_LEAVES:
            rows += rows_of(family, KEPT_LEAVES[family], 1)
        others = [row for row in execution_reference.read() if row.config["model_type"] != family]
        execution_reference.write(sorted(others + rows, key=lambda row: str(row.config["model_type"])))
    assert len(rows) == KEPT + (family in KEPT_LEAVES)
    for config, leaves, found in rows:
        assert list(recorder.recorded(config, leaves=leaves).values())[-1] == found
