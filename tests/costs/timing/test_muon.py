"""Muon's Newton-Schulz products: their FLOP against torch's own count, and whose they are."""

from __future__ import annotations

from typing import Any

import pytest

from tests.costs.timing.test_step import job, timed
from zeroplan.catalog import hardware
from zeroplan.clock import OPTIMIZER, Term
from zeroplan.costs.deepspeed.muon_update import products
from zeroplan.specs.cluster import Cluster, SourcedValue
from zeroplan.specs.strategy import Offload

COUNTED = {
    ("gram", (64, 64)): 7864320, ("gram", (64, 160)): 12582912, ("gram", (160, 64)): 12582912,
    ("gram", (3, 48, 96)): 14598144, ("gram", (2, 40, 40)): 3840000, ("standard", (64, 64)): 7864320,
    ("standard", (64, 160)): 15728640, ("standard", (160, 64)): 15728640, ("standard", (3, 48, 96)): 16588800,
    ("standard", (2, 40, 40)): 3840000,
}  # fmt: skip
"""torch 2.13.0's FlopCounterMode over DeepSpeed 0.19.8's muon_update, not compiled, on the CPU."""
SQUARE, NARROW, WIDE = 30 * 4096**3, 8 * 1024**2 * 4096 + 28 * 1024**3, 8 * 4096**2 * 14336 + 28 * 4096**3
LAYER = 2 * SQUARE + 2 * NARROW + 3 * WIDE
"""Llama-3.1-8B: queries and output, keys and values, gate, up and down; by the gram iteration."""


def newton_schulz(cluster: Cluster | None = None, **strategy: Any) -> Term:
    one = job(cluster=cluster, **{"optimizer": "muon", **strategy})
    (found,) = (entry for entry in timed(one).terms if entry.name == "Newton-Schulz products")
    assert found.group == OPTIMIZER
    return found


@pytest.mark.parametrize(("method", "shape"), COUNTED, ids=str)
def test_products_are_those_that_torch_counts(method: str, shape: tuple[int, ...]):
    assert products(shape, method).flops == COUNTED[method, shape]


def test_operands_by_hand():
    # 2 bytes: ten products of 64 x 160 with its own, each 2*64*160 + 64*64 elements; five of three 64 x 64
    assert products((160, 64), "standard").touched == 2 * (10 * (2 * 64 * 160 + 64 * 64) + 5 * 3 * 64 * 64)


@pytest.mark.parametrize("strategy", [{"stage": 0}, {"stage": 2, "offload_optimizer": Offload("cpu")},
                                      {"stage": 3, "offload_optimizer": Offload("cpu")}], ids=str)  # fmt: skip
def test_every_rank_has_every_matrix_at_stage_0_and_with_offload(strategy: dict[str, Any]):
    assert newton_schulz(**strategy).symbols["flops"] == 32 * LAYER


def test_they_run_in_16_bit_at_the_rate_of_other_products():
    gpu = hardware.gpu("h100-80gb")._replace(
        sustained_matmul=SourcedValue(500e12, "test", "", "measured"),
        memory_bandwidth=SourcedValue(2e12, "test", "", "measured"),
    )
    found = newton_schulz(hardware.cluster("dgx-h100")._replace(gpu=gpu), stage=0, precision="fp32")
    touched = products((4096, 4096), "gram").touched * 2 + products((1024, 4096), "gram").touched * 2
    touched = 32 * (touched + 3 * products((4096, 14336), "gram").touched)
    assert found.seconds == pytest.approx(32 * LAYER / 500e12 + touched / 2e12)


def test_stage_3_gives_each_rank_one_matrix_of_a_round():
    """One rank has all of them; eight have a round's largest each, an eighth of all at best."""
    alone = newton_schulz(Cluster(), stage=3).symbols["flops"]
    shared = newton_schulz(stage=3).symbols["flops"]
    assert alone == 32 * LAYER
    assert 32 * LAYER / 8 <= shared <= 32 * 7 * WIDE / 8 + 32 * WIDE
    assert shared < 0.5 * alone


@pytest.mark.parametrize("stage", [1, 2])
def test_stages_1_and_2_share_matrices_out_and_some_lie_on_two_ranks(stage: int):
    """Partitions have equal elements, not equal products; a rank shares at most two matrices with its neighbours."""
    found = newton_schulz(stage=stage).symbols["flops"]
    assert newton_schulz(Cluster(), stage=stage).symbols["flops"] == 32 * LAYER
    assert 32 * LAYER / 8 <= found <= 1.3 * 32 * LAYER / 8 + 2 * WIDE


def test_another_optimizer_has_none():
    assert all("Newton" not in entry.name for entry in timed(job(stage=2)).terms)
