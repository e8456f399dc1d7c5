"""Parameters, buffers and refusals, against transformers itself on the meta device.

ZEROPLAN_DRAWS sets the number of configs a family (40 unless set).
"""

from __future__ import annotations

import copy
import os
import warnings
from typing import Any

import pytest

from tests.architectures.draws import draw
from tests.described import families_here
from zeroplan.architectures.leaves import class_name
from zeroplan.architectures.module import Activation, GradientCheckpointingLayer
from zeroplan.architectures.read import accepted_architectures, build_module, read_config
from zeroplan.errors import ZeroplanError

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
FAMILIES = families_here(module=True)

Checkpointed = transformers.modeling_layers.GradientCheckpointingLayer
DRAWS = int(os.environ.get("ZEROPLAN_DRAWS", "40"))
transformers.logging.set_verbosity_error()


def theirs(config: dict[str, Any], architecture: str = "") -> Any:
    """The model, or the exception."""
    config = copy.deepcopy(config)
    model_type = config.pop("model_type")
    architecture = architecture or accepted_architectures(model_type)[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with torch.device("meta"):
                read = transformers.CONFIG_MAPPING[model_type](**config)
                model = getattr(transformers, architecture)(read)
                model.tie_weights()
        except Exception as error:
            return error
    return model


def ours(config: dict[str, Any]) -> Any:
    try:
        return build_module(*read_config(config, "config.json"))
    except ZeroplanError as error:
        return error


def shapes(named: Any) -> list[tuple[str, tuple[int, ...]]]:
    return [(name, tuple(tensor.shape)) for name, tensor in named]


def assert_equal(config: dict[str, Any], mine: Any, model: Any) -> None:
    assert shapes(mine.named_parameters()) == shapes(model.named_parameters()), config
    buffers = [(name, buffer.shape, f"torch.{buffer.dtype}") for name, buffer in mine.named_buffers()]
    assert buffers == [(name, tuple(b.shape), str(b.dtype)) for name, b in model.named_buffers()], config
    modules = dict(model.named_modules())
    assert [name for name, _module in mine.named_modules()] == list(modules), config
    for name, module in mine.named_modules():
        theirs = modules[name]
        assert isinstance(module, GradientCheckpointingLayer) == isinstance(theirs, Checkpointed), (config, name)
        if (name or type(model).__name__ != "BertForMaskedLM") and not isinstance(module, Activation):
            described = class_name(config["model_type"], module.transformers_class)
            assert described == f"{type(theirs).__module__}.{type(theirs).__qualname__}", (config, name)


@pytest.mark.parametrize("family", FAMILIES)
def test_draws(family: str) -> None:
    built = 0
    for seed in range(DRAWS):
        config = draw(family, seed)
        model, mine = theirs(config), ours(copy.deepcopy(config))
        if isinstance(model, Exception):
            assert isinstance(mine, ZeroplanError), f"they refuse ({model!r}), not so here: {config}"
            continue
        assert not isinstance(mine, ZeroplanError), f"refused here ({mine}), not so there: {config}"
        assert_equal(config, mine, model)
        built += 1
    print(f"{family}: {built} of {DRAWS} built, the others refused by both")
    assert built >= DRAWS // 4


@pytest.mark.skipif("bert" not in FAMILIES, reason="is not described as this transformers has it")
def test_bert_for_masked_lm_has_the_same_tensors() -> None:
    for seed in range(10):
        config = draw("bert", seed)
        model, mine = theirs(config, "BertForMaskedLM"), ours(config)
        if not isinstance(model, Exception):
            assert_equal(config, mine, model)
