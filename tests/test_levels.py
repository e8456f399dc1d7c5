"""Reserved and nvidia-smi against published runs; what is outside the allocator by card and world."""

from __future__ import annotations

import pytest

from tests.jobs import job
from zeroplan.catalog.hardware import gpu, gpu_of_class
from zeroplan.costs.ledger import ledger
from zeroplan.fit import outside
from zeroplan.ledger import total
from zeroplan.levels import levels, shown_by
from zeroplan.units import GiB


def on(card, one):
    return one._replace(cluster=one.cluster._replace(gpu=gpu(card)))


def shown(one):
    return {level.name: level for level in levels(one, ledger(one))}


@pytest.mark.parametrize(
    ("seq", "micro_batch", "used"),
    [(4096, 1, 57), (2048, 3, 70)],
)
def test_llama_2_7b_at_stage_3_as_flagperf_ran_it(seq, micro_batch, used):
    """FlagPerf, DeepSpeed 0.11.1, 8 × A800 80 GB, reduce and prefetch buckets of 1e7: nvidia-smi, whole GB."""
    one = job("llama-2-7b", seq=seq, stage=3, micro_batch=micro_batch, reduce_bucket_size=10**7, overlap_comm=True,
              prefetch_bucket_size=10**7, memory_efficient_linear=False)  # fmt: skip
    level = shown(on("a100-80gb", one))["nvidia-smi"]
    assert level.low <= used * GiB <= level.high
    assert level.bytes == pytest.approx(used * GiB, rel=0.05)
    assert level.evidence == "published"


@pytest.mark.parametrize(("kernels", "reserved"), [("transformers", 99), ("liger", 80)])
def test_llama_3_1_8b_at_stage_2_as_ml_engineering_ran_it(kernels, reserved):
    """DeepSpeed 0.19.2 on 8 × H200, one sequence of 8,192, no checkpointing: max_memory_reserved, rounded."""
    one = job("llama-3.1-8b", seq=8192, stage=2, kernels=kernels)
    level = shown(on("h200", one))["reserved"]
    assert level.low <= reserved * GiB <= level.high
    assert level.bytes == pytest.approx(reserved * GiB, rel=0.08)


def test_allocated_is_the_peak_that_was_compared_with_runs():
    one = job("gpt2", gpus=2, stage=2)
    found = shown(one)
    assert found["allocated"].bytes == found["allocated"].low == total(ledger(one).gpu.peak.lines)
    assert (found["allocated"].evidence, found["reserved"].evidence) == ("measured", "published")
    assert found["allocated"].bytes <= found["reserved"].low < found["reserved"].bytes < found["reserved"].high


@pytest.mark.parametrize(("gpus", "buffers"), [(1, 495), (2, 544), (4, 688), (512, 688)])
def test_nccl_by_world(gpus, buffers):
    """MiB of one communicator on A100s over NVLink (NVIDIA/nccl#964); no more beyond two nodes (#864). On one H100 a
    process of DeepSpeed held 1,332 MiB beside the allocator with NCCL and 837 without (h100_steps, h100_runs).
    """
    lines = {entry.name: entry.bytes for entry in outside(job("gpt2", gpus=gpus))}
    assert lines.get("NCCL buffers", 0) == buffers << 20


def test_the_context_is_the_presets():
    """A100 80 GB: 503 MiB (an out-of-memory message); half a GiB where no card is named."""
    a100, h100, unknown = (
        outside(one)[0].bytes for one in (*(on(card, job("gpt2", gpus=1)) for card in ("a100-80gb", "h100-80gb")), job("gpt2"))
    )
    assert (a100, h100, unknown) == (503 << 20, (837 + 64) << 20, GiB // 2)


def test_other_cards_are_assumed():
    assert shown(on("h100-80gb", job("gpt2", stage=1)))["nvidia-smi"].evidence == "assumed"


@pytest.mark.parametrize(
    ("card", "names"),
    [
        ("mi300x", ["HIP context", "RCCL buffers"]),
        ("gaudi2", ["device context", "HCCL buffers"]),
        ("t4", ["CUDA context", "NCCL buffers"]),
    ],
)
def test_other_makers_have_no_cuda(card, names):
    assert [entry.name for entry in outside(on(card, job("gpt2", gpus=2)))] == names


def test_what_is_not_counted_was_not_measured():
    """Activations in fp8 are counted as in bf16."""
    assert shown(job("llama-3.2-1b", stage=3, precision="fp8"))["allocated"].evidence == "assumed"


def test_what_flattening_leaves_is_in_the_reason():
    """GPT-2 in bf16: 2 bytes of each of its 124,439,808 parameters are 0.23 GiB."""
    assert "leaves 0.23 GiB" in shown(job("gpt2", gpus=2, stage=2))["reserved"].reason
    assert "leaves" not in shown(job("gpt2", gpus=2, stage=3))["reserved"].reason


def test_a_size_alone_names_no_card():
    """`--gpu-mem 80` counts with an A100, but may be any card of 80 GB."""
    one = job("gpt2", stage=1)
    of_size = one._replace(cluster=one.cluster._replace(gpu=gpu_of_class(80)))
    assert shown(on("a100-80gb", one))["nvidia-smi"].evidence == "published"
    assert shown(of_size)["nvidia-smi"].evidence == "assumed"


def test_the_cpu_backend_has_no_card():
    one = job("gpt2", stage=2, backend="cpu")
    assert (outside(one), shown_by(one, ledger(one))) == ((), ())
