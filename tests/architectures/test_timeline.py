"""Where visits fall in the timeline: DeepSpeed's hooks come one after the other, each beside its own module's work."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.autograd.recorded import read
from zeroplan.architectures.model import model_of
from zeroplan.architectures.read import read_config
from zeroplan.architectures.registry import FAMILIES
from zeroplan.specs.checkpointing import recomputing
from zeroplan.specs.model import Model, TimelineRequest

RUN = list({str(case["config"]): case["config"] for case in read()}.values())
"""Small models of every family that transformers has run: with and without dropout, final norms, a decoder."""
LAYERS = 5
"""So that one of them stands for others."""
HOW = [(attention, again) for attention in ("eager", "sdpa") for again in ("none", "full")]


def deep(config: dict[str, Any]) -> Model:
    field = next(name for name in ("num_hidden_layers", "n_layer") if name in config)
    found = config if "layer_types" in config else {**config, field: LAYERS}
    return model_of(*read_config(found, "recorded"), name="recorded", source="recorded")


def passes(model: Model, attention: str, checkpointing: str):
    """Of forward and of backward: each visit with its module's path and the stretch at whose end it falls, and of each
    stretch the path of the module at work.
    """
    request = TimelineRequest(2, 8, 2, False, attention, "cuda", recomputing(checkpointing), True)
    order, found = model.profile.execution(eager=request.eager), model.profile.timeline(request)
    assert found is not None
    for hooks, one in (
        (order.forward, found.forward),
        (order.recomputing if request.recomputing.every else order.backward, found.backward),
    ):
        backward = one is found.backward
        met = [(hook, order.modules[hook.module], at) for hook, at in zip(hooks, one.hooks, strict=True)]
        yield met, model.profile.places(request, backward=backward)


def test_every_family_was_run():
    assert {config["model_type"] for config in RUN} == set(FAMILIES)


@pytest.mark.parametrize(("attention", "checkpointing"), HOW)
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_visits_never_go_back(family: str, attention: str, checkpointing: str):
    for config in [config for config in RUN if config["model_type"] == family][attention == "eager" :: 2]:
        for met, places in passes(deep(config), attention, checkpointing):
            assert -1 <= met[0][-1] <= met[-1][-1] < len(places)
            back = [path for (_visit, _path, before), (_again, path, at) in pairwise(met) if at < before]
            assert not back, config


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_module_is_entered_before_its_work_and_left_after_it(family: str, attention: str):
    """Of a module that has work in backward, nothing else's is at work when its hooks fire."""
    model = deep(next(config for config in RUN if config["model_type"] == family))
    (forward, ran), (plain, worked) = passes(model, attention, "none")
    assert [path for hook, path, _at in forward if not hook.enters and path] == [
        ran[at] for hook, path, at in forward if not hook.enters and path
    ]
    have_work = {path[:end] for path in set(worked) for end in range(len(path) + 1) if path[end:][:1] in ("", ".")}
    _forward, again = passes(model, attention, "full")
    for met, places in ((plain, worked), again):
        for hook, path, at in met:
            if hook.backward and path in have_work:
                assert f"{places[at + hook.enters]}.".startswith(f"{path}." if path else ""), path
