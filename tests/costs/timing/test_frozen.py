"""Seconds of backward where some parameters do not train: of each product the gradients that are asked for."""

from __future__ import annotations

import pytest

from tests.jobs import job
from zeroplan.costs.timing.computing import PRODUCTS, backward_share, computing
from zeroplan.specs.model import with_frozen
from zeroplan.specs.software import TRANSFORMERS


def trained(patterns: list[str], name: str = "llama-3.2-1b"):
    one = job(name, stage=2)
    return one._replace(model=with_frozen(one.model, ["*"], patterns))


def seconds(one, way):
    passed = getattr(computing(one, TRANSFORMERS), way)
    return sum(term.seconds for term in passed.terms if term.name.startswith(PRODUCTS))


def test_all_train():
    assert backward_share(job("llama-3.2-1b")) == (2.0, 2.0, 1.0)


def test_norms_alone_need_the_gradient_of_each_input():
    """One product for each of forward's: the first layer's norm stands before its own products."""
    one = trained(["*norm*"])
    assert backward_share(one) == (1.0, 1.0, 1.0)
    assert seconds(one, "backward") == pytest.approx(seconds(one, "forward"))


def test_the_products_of_the_last_layer_alone():
    """Of 16 layers backward runs one, of which the queries', keys' and values' products have no input that asks for a
    gradient: 2·h² of its two products each, and of the others (h² and 3·h·f) both, where f is 4·h and keys and values
    are a quarter of h wide. The head's table is the words', which is frozen: one product.
    """
    h, f = 2048, 8192
    narrow, wide = h * h + 2 * h * h // 4, h * h + 3 * h * f
    share = backward_share(trained(["model.layers.15.*_proj.weight"]))
    assert share.products == pytest.approx((narrow + 2 * wide) / (16 * (narrow + wide)))
    assert share.head == 1.0
    assert share.layers == pytest.approx(1 / 16)
