"""`gpus`, `clusters` and `models` for a program: numbers in base units, the unit in the key."""

from __future__ import annotations

from typing import Any

import pytest

LISTS = {"gpus": "gpu", "clusters": "cluster", "models": "model"}


def entry(zeroplan: Any, command: str, name: str) -> dict[str, Any]:
    found = zeroplan(command, "--json").json[command]
    return next(one for one in found if one[LISTS[command]] == name)


def test_a_card_in_bytes_and_flops(zeroplan):
    card = entry(zeroplan, "gpus", "h100-80gb")  # the figures of presets/gpus/h100-80gb.json, multiplied out
    assert card["memory_bytes"] == int(79.21 * 2**30)
    assert card["context_bytes"] == (837 + 64) * 2**20
    assert card["memory_bandwidth_bytes_per_s"] == 3350e9
    assert card["link_bytes_per_s"] == 450e9
    assert card["host_link_bytes_per_s"] == 63e9
    assert card["sustained_matmul_flops_per_s"] == 625e12
    assert card["peak_flops_per_s"]["fp8"] == 1979e12
    assert card["compute_capability"] == 9.0


def test_a_node_in_bytes(zeroplan):
    node = entry(zeroplan, "clusters", "dgx-h100")
    assert (node["gpu"], node["gpus_per_node"]) == ("h100-80gb", 8)
    assert node["host_memory_bytes"] == 2048 * 2**30
    assert node["inter_node_bytes_per_s"] == 400e9


def test_a_model_s_counts_are_integers(zeroplan):
    model = entry(zeroplan, "models", "llama-3.1-8b")
    assert (model["parameters"], model["layers"], model["hidden"]) == (8_030_261_248, 32, 4096)


@pytest.mark.parametrize("command", LISTS)
def test_no_number_is_text(zeroplan, command):
    names = {LISTS[command], "title", "evidence", "usual_node", "gpu", "family"}
    for one in zeroplan(command, "--json").json[command]:
        for key in one.keys() - names:
            values = one[key].values() if isinstance(one[key], dict) else [one[key]]
            assert not [found for found in values if isinstance(found, str)], key
