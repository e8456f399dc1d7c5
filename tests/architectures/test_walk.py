"""The walk that follows alike layers against the same walk layer by layer."""

from __future__ import annotations

import random
from contextlib import suppress

import pytest

from tests.architectures.draws import draw
from zeroplan.architectures.module import Module
from zeroplan.architectures.read import build_module, read_config
from zeroplan.architectures.registry import FAMILIES
from zeroplan.architectures.walk import Walk, Walked
from zeroplan.errors import SpecError

HOW = ((False, False, "transformers"), (True, False, "transformers"), (False, True, "liger"))


class Layerwise(Walk):
    """Every layer is walked."""

    def like(self, path: str, layer: Module) -> Walked | None:
        return None


@pytest.mark.parametrize("family", FAMILIES)
def test_following_a_layer_is_walking_it(family: str) -> None:
    """Visits, uses, places and layers are the same, with any modules as leaves."""
    followed = 0
    for seed in range(8):
        with suppress(SpecError):  # some draws are refused, as transformers does
            root = build_module(*read_config(draw(family, seed), "config.json"))
            for eager, flash, kernels in HOW:
                plain = Layerwise(root, frozenset(), eager=eager, flash=flash, kernels=kernels)
                chosen = random.Random(seed).sample(list(plain.places), 3)
                for leaves in (frozenset[str](), frozenset(chosen)):
                    walk = Walk(root, leaves, eager=eager, flash=flash, kernels=kernels)
                    plain = Layerwise(root, leaves, eager=eager, flash=flash, kernels=kernels)
                    followed += len(walk.layers) - len(walk.walked)
                    assert walk.steps.every() == plain.steps.every(), (seed, leaves)
                    assert walk.undo.every() == plain.undo.every(), (seed, leaves)
                    for name in ("places", "uses", "biased", "layers", "layer_places", "saved"):
                        assert getattr(walk, name) == getattr(plain, name), (seed, leaves, name)
    assert followed
