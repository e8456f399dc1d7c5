"""Real DeepSpeed on an H100 (make_gpu_runs) beside the ledger: peaks of its tensors, and what CUDA's allocator gave out."""

from __future__ import annotations

import json
from math import ceil
from pathlib import Path
from typing import Any

import pytest

from tests.references.gpu.cases import USUAL, job_of
from tests.references.gpu.kernel_families import FAMILIES, NO_ATTENTION
from zeroplan.costs.ledger import ledger
from zeroplan.costs.passes import timeline_request
from zeroplan.ledger import Ledger, total
from zeroplan.units import GiB

RECORD: dict[str, Any] = json.loads((Path(__file__).parents[1] / "references/gpu/h100_runs.json").read_text())
RUNS: list[dict[str, Any]] = RECORD["runs"]
WORKSPACES = 64 << 20
"""cuBLAS's: 32 MiB for the thread of forward, as much for that of backward."""
ROUNDED = 0.001
"""Of a peak, what rounding up to 512 bytes and a kernel's own scratch add at most, beside MIB."""
MIB = 9 << 20
OF_A_KERNEL = 97 << 20
"""What two of opt-1.3b's runs at stage 2 have more in backward: a block of 128 MiB that no tensor of Python's is lies at
the fullest moment, of a kernel that was not looked for."""


def name(run: dict[str, Any]) -> str:
    return " ".join(str(value) for value in run["request"].values())


def near(size: int) -> int:
    return max(600, size // 10**6)


def peaks(counted: Ledger, phase: str) -> int:
    return max(total(counted.gpu.worst(each).lines) for each in counted.gpu.phases if each == phase)


def measured(run: dict[str, Any], phase: str, column: str) -> int:
    """The first runs have no max_requested: what was asked for, without what a block has that is not split."""
    at = RECORD["phases"].index(column)
    if at == len(run["phases"][0]):
        return measured(run, phase, "max_memory_allocated")
    last = max(row[1] for row in run["phases"])
    rows = [row for row in run["phases"] if row[0] == phase and row[1] == last]
    micro = max(row[2] for row in rows)
    return max(row[at] for row in rows if phase != "step" or row[2] == micro)


def in_parts(run: dict[str, Any]) -> int:
    """Bytes of the parts in which Mamba-2's kernels sum what the heads of a group make, so that none of an H100's 132
    multiprocessors is idle, beyond one part (mamba_ssm/ops/triton/ssd_chunk_scan.py: _chunk_scan_bwd_dcb): fp32, a
    square of each chunk. 32 heads, 2 sequences of 5 chunks of 256 tokens.
    """
    groups = {"bamba": 1, "falcon_h1": 1, "zamba2": 2, "mamba2": 8}.get(run["request"]["model"], 32)
    heads, chunks = 32, 2 * 5
    parts = ceil(heads / groups / min(ceil(chunks * heads / 132), heads // groups))
    return chunks * groups * (parts - 1) * 256**2 * 4


def dropped(run: dict[str, Any]) -> int:
    """B and C of the layer whose backward runs, [2,560 tokens, 16] in bf16, which Falcon-Mamba's norms replace: what
    runs again has no other hold on them.
    """
    is_so = run["request"]["model"] == "falcon_mamba" and run["request"]["checkpointing"] == "full"
    return is_so * 2 * 2560 * 16 * 2


STEADY = [run for run in RUNS if not run["skipped_steps"]]
OUTLIERS = [run for run in STEADY if run["request"].get("quantize") == "int8" and "initializer_range" not in run["request"]]
"""int8 sets columns of outliers apart: with the weights that transformers draws nearly all of the widest layer's are some,
with weights of a tenth of that none are."""
EXACT = [run for run in STEADY if run not in OUTLIERS]


def test_there_are_enough() -> None:
    assert len(EXACT) >= 98
    kernels = [run["request"].get("kernels") for run in EXACT]
    assert kernels.count("liger") >= 8
    assert sum("autocast" in run["request"] for run in EXACT) == 4
    assert {run["request"]["model"] for run in EXACT} >= FAMILIES.keys()
    assert {run["request"]["stage"] for run in EXACT} == set("0123")


@pytest.mark.parametrize("run", EXACT, ids=name)
def test_peaks_are_those_counted(run: dict[str, Any]) -> None:
    """Every tensor of forward, backward and step, to within a millionth, but for what kernels make in parts; the
    allocator's own peak is that and cuBLAS's workspaces.
    """
    counted = ledger(job_of(run["request"]))
    for phase in ("forward", "backward", "step"):
        predicted = peaks(counted, phase)
        peak = measured(run, phase, "peak")
        parts, fewer = (in_parts(run), dropped(run)) if phase == "backward" else (0, 0)
        assert predicted - fewer - near(predicted) <= peak <= predicted + parts + near(predicted), phase
        assert 64 <= (measured(run, phase, "max_memory_allocated") - peak) >> 20 <= 163
        given_out = min(measured(run, phase, column) for column in ("max_memory_allocated", "max_requested"))
        beside = given_out - peak - WORKSPACES
        has_block = run["request"]["model"] == "opt-1.3b" and run["request"]["stage"] == "2" and phase == "backward"
        scratch = OF_A_KERNEL if has_block else 0
        assert -1024 <= beside <= MIB + ROUNDED * predicted + scratch, phase


@pytest.mark.parametrize("run", [run for run in EXACT if run["activations"]], ids=name)
def test_activations_alone(run: dict[str, Any]) -> None:
    """Of adapters beside weights in 16, 8 and 4 bit, and of kernels that only a card has: Liger's, fla's, causal-conv1d's
    and mamba_ssm's.
    """
    job = job_of(run["request"])
    counted = job.model.profile.alone(timeline_request(job))
    assert counted is not None
    *others, backward = run["activations"].values()
    assert others == pytest.approx(counted[:2], abs=600)
    assert counted[2] - dropped(run) - 600 <= backward <= counted[2] + in_parts(run) + 600
    if run["request"]["model"] == "mamba2":  # nothing else is as large
        assert backward == counted[2] + in_parts(run)


@pytest.mark.parametrize("run", OUTLIERS, ids=name)
def test_outliers_are_what_int8_needs_more(run: dict[str, Any]) -> None:
    """Saved are fp16 copies of their columns, at most all of the widest layer's: 32 layers of 2,048 x 14,336 x 2 bytes."""
    job = job_of(run["request"])
    counted = job.model.profile.alone(timeline_request(job))
    assert counted is not None
    more = run["activations"]["saved"] - counted[0]
    assert 0.95 * 32 * 2048 * 14336 * 2 < more < 1.01 * 32 * 2048 * 14336 * 2


def test_what_a_process_holds_beside_the_allocator() -> None:
    """Of those that had the card to themselves; NCCL is none of it, its calls were not sent."""
    alone = [run for run in RUNS if run["outside"] < GiB]
    no_attention = [run["outside"] for run in alone if run["request"]["model"] in NO_ATTENTION]
    others = [run["outside"] for run in alone if run["request"]["model"] not in NO_ATTENTION]
    assert len(others) >= 10
    assert all(836 << 20 <= size <= 844 << 20 for size in others)
    assert [size >> 20 for size in no_attention] == [823]  # fewer kernels are loaded
    assert RECORD["total"] == 85_017_493_504
    assert USUAL["gpu"] == "h100-80gb"
