"""`explain KEY`: what a key costs is the ledger under its values."""

from __future__ import annotations

import pytest

from tests.jobs import job
from zeroplan.costs.ledger import ledger
from zeroplan.deepspeed.key_cost import SECTIONS, UNCOUNTED, costs, differ
from zeroplan.deepspeed.keys import KEYS
from zeroplan.ledger import total

NOT_HERE = ("allgather_bucket_size", "compute_grad_norm", "block_size", "parameter_alignment", "pin_memory")
"""Keys on which this model's bytes do not depend: its sizes are aligned, its norm is needed for clipping."""
ONE = job("llama-3.2-1b", gpus=16, stage=3)
TRIED = [known for known in KEYS.values() if known.section in SECTIONS and costs(ONE, known)]


@pytest.mark.parametrize(
    "known", [k for k in TRIED if k.moves_bytes and k.name not in {*UNCOUNTED, *NOT_HERE}], ids=lambda k: k.path
)
def test_a_key_that_moves_bytes_moves_them(known):
    assert differ(costs(ONE, known))


@pytest.mark.parametrize("known", [k for k in TRIED if not k.moves_bytes], ids=lambda k: k.path)
def test_a_key_that_moves_none_moves_none(known):
    assert not differ(costs(ONE, known))


def test_the_default_is_the_job_itself():
    rows = {row.value: row.ledger for row in costs(ONE, KEYS["zero_optimization.stage3_max_live_parameters"])}
    assert rows[1_000_000_000] == ledger(ONE)


def test_the_reduce_bucket_costs_its_elements():
    small, default = (
        row.ledger for row in costs(ONE, KEYS["zero_optimization.reduce_bucket_size"])
        if row.value in (50_000_000, 500_000_000)
    )  # fmt: skip
    assert total(default.gpu.resident) - total(small.gpu.resident) == 2 * 450_000_000
