"""What a named card cannot run is refused in a line; of a card that is not named nothing is known."""

from __future__ import annotations

import pytest

from zeroplan.catalog import hardware, presets

JOB = ("estimate", "--model", "llama-3.1-8b", "--gpus", "8", "--stage", "3", "-q")
FLASH_2, FLASH_3, FP8 = ("--attention", "flash_attention_2"), ("--attention", "flash_attention_3"), ("--precision", "fp8")
GENERATIONS = {
    # https://developer.nvidia.com/cuda-gpus
    (7.0,): {"v100-16gb", "v100-32gb"},
    (7.5,): {"t4"},
    (8.0, 8.6): {"a100-40gb", "a100-80gb", "a100-pcie-40gb", "a100-pcie-80gb", "a30", "a10g", "a6000", "rtx-3090",
                 "a800", "a40", "rtx-a5000", "rtx-3090-ti"},
    (8.9,): {"l4", "l20", "l40", "l40s", "rtx-4080", "rtx-4090"},
    (9.0,): {"h100-80gb", "h100-nvl", "h100-pcie", "h200", "gh200", "gh200-144gb", "h800", "h20"},
    (10.0, 10.3, 12.0): {"b200", "gb200", "b300", "gb300", "rtx-5080", "rtx-5090", "rtx-pro-6000"},
}


@pytest.mark.parametrize("name", presets.names("GPU"))
def test_each_card_of_nvidia_has_the_compute_capability_of_its_generation(name):
    card = hardware.gpu(name)
    if card.maker != "NVIDIA":
        assert card.compute_capability is None
        return
    assert name in next(cards for numbers, cards in GENERATIONS.items() if card.compute_capability.value in numbers)
    assert ("fp8" in card.peak) is (card.compute_capability.value >= 8.9)  # Ada and Hopper brought it


@pytest.mark.parametrize(
    ("typed", "found", "write"),
    [
        (("--gpu", "t4", *FLASH_2), "flash_attention_2 on NVIDIA T4", "--attention sdpa"),
        (("--gpu", "v100", "--attention", "flash"), "flash_attention_2 on NVIDIA V100", "--attention sdpa"),
        (("--cluster", "dgx-1", *FLASH_3), "flash_attention_3 on NVIDIA V100", "--attention sdpa"),
        (("--gpu", "b200", *FLASH_3), "compute capability 10.0", "Hopper (8.0 to 9.0)"),
        (("--gpu", "rtx-5090", *FLASH_3), "compute capability 12.0", "--attention sdpa"),
        (("--gpu", "a100-80gb", *FP8), "fp8 on NVIDIA A100", "--precision bf16"),
        (("--cluster", "dgx-a100", *FP8), "fp8 on NVIDIA A100", "--precision bf16"),
        (("--gpu", "t4", *FP8), "fp8 on NVIDIA T4", "--precision fp16"),
        (("--gpu", "mi250x", *FP8), "fp8 on AMD Instinct MI250X", "--precision bf16"),
    ],
)
def test_what_a_named_card_cannot_run_is_one_line(zeroplan, typed, found, write):
    ran = zeroplan(*JOB, *typed)
    assert (ran.code, ran.out) == (2, "")
    assert len(ran.err.splitlines()) == 1
    assert found in ran.err
    assert write in ran.err


@pytest.mark.parametrize(
    "typed",
    [
        ("--gpu", "a100-80gb", *FLASH_3),  # Dao-AILab/flash-attention#1049: "FA3 now works on Ampere, Ada, and Hopper"
        ("--gpu", "h100", *FLASH_3),
        ("--gpu", "b200", *FLASH_2),
        ("--gpu", "mi300x", *FLASH_2),
        ("--gpu", "mi300x", *FP8),
        ("--gpu", "l40s", *FP8),
        ("--gpu-mem", "80", *FP8),
        ("--gpu-mem", "32", *FLASH_3),
        ("--gpu-mem", "16GB", *FLASH_2),
    ],
)
def test_what_runs_or_is_not_known_is_answered(zeroplan, typed):
    ran = zeroplan(*JOB, *typed)
    assert (ran.code in (0, 1), ran.err) == (True, "")
